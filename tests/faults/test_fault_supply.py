"""No network: neither where the library is imported, nor where it trains, reports, saves and predicts."""

import re
import subprocess
import sys
from pathlib import Path

from tests.faults.campaign import row

WATCH = """
import sys
def watch(event, given):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.bind", "socket.sendto", "urllib.Request"):
        print(event, given, file=sys.stderr)
        import os; os._exit(9)
sys.addaudithook(watch)
"""
TRAIN = """
import pathlib, sys, tempfile, ns3l
from ns3l.report import report, write_html
from ns3l.train import fit
from tests.faults.campaign import QUIET, blobs, tiny
out = pathlib.Path(tempfile.mkdtemp())
model = fit(tiny("vat+ns3l"), blobs(), out=out, how=QUIET).models[0]
from ns3l.model import load_model
load_model(out / "seed-0").probabilities(blobs().x)
write_html(report(out), out / "report.html")
ns3l.load("digits")
"""
CONNECT = "import socket; socket.create_connection(('127.0.0.1', 9))"


def ended(code: str) -> int:
    """How a process ends in which every use of the network is deadly."""
    command = [sys.executable, "-c", WATCH + code]
    return subprocess.run(command, capture_output=True, check=False, timeout=120).returncode


def test_no_network():
    with row("supply", "no network while importing, training, reporting, predicting") as told:
        for name, code in {"import": "import ns3l", "train": TRAIN}.items():
            with told.trying(name):
                assert ended(code) == 0
    assert ended(CONNECT) == 9


def test_every_promise_names_its_tests():
    root = Path(__file__).parents[2]
    promised = (root / "SECURITY.md").read_text(encoding="utf-8").partition("Not promised")[0]
    for promise in re.findall(r"^- \*\*.*?(?=^- \*\*|^What was)", promised, flags=re.MULTILINE | re.DOTALL):
        named = re.findall(r"`(tests/[a-z0-9_/]+\.py)`", promise)
        assert named and all((root / path).is_file() for path in named), promise
