"""The program itself, in processes of its own: console script, module, signals, torchrun."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = Path(sys.executable).with_name("ns3l")
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}
RUN = ["train", "digits", "--labels", "30", "--method", "ns3l", "--seed", "1"]


def call(*words):
    """A process that ran to its end."""
    return subprocess.run([*map(str, words)], check=False, capture_output=True, text=True, env=ENVIRONMENT)


@pytest.mark.installed
def test_script_and_module_are_the_same_program():
    wrong = call(PROGRAM, "train", "cifra10")
    assert wrong.returncode == 2
    assert "cifar10" in wrong.stderr
    assert "Traceback" not in wrong.stderr
    assert call(sys.executable, "-m", "ns3l", "--version").stdout.startswith("ns3l ")


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_continued_ends_equal(tmp_path, number, code):
    words = [PROGRAM, *RUN, "--steps", "120", "--set", "evaluation.every=30"]
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert call(*words, "--out", whole).returncode == 0
    begun = subprocess.Popen([*map(str, words), "--out", str(cut)], stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    deadline = time.monotonic() + 120
    while not (cut / "metrics.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    begun.send_signal(number)
    told = begun.communicate(timeout=120)[1]
    assert begun.returncode == code, told
    assert "same command again" in told
    assert json.loads((cut / "result.json").read_text())["status"] == "running"
    assert call(*words, "--out", cut).returncode == 0
    assert (cut / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


@pytest.mark.slow
def test_a_job_of_two_processes(tmp_path):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
    words = [*torchrun, "--nproc-per-node", "2", "-m", "ns3l", *RUN, "--steps", "4", "--out", tmp_path / "r"]
    done = call(*words)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("ns3l on digits") == 1
    assert done.stderr.count("is held out for validation") == 1
    assert json.loads((tmp_path / "r" / "result.json").read_text())["status"] == "complete"
    wrong = call(*words[:-1], tmp_path / "other", "--method", "nsl")
    assert wrong.stderr.count("did you mean 'ns3l'") == 1
