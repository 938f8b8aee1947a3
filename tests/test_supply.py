"""Dependencies: pinned, hashed, without addresses; the bill of materials and the audit say what is so."""

import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from scripts import audit, sbom

ROOT = Path(__file__).resolve().parent.parent

LOCKED = (ROOT / "requirements" / "locked.txt").read_text()
LINES = (ROOT / "constraints.txt").read_text().splitlines()
PINS = [Requirement(line) for line in LINES if line and not line.startswith("#")]
HERE = {canonicalize_name(pin.name): pin for pin in PINS if pin.marker is None or pin.marker.evaluate()}


def test_every_pin_is_exact():
    assert all([spec.operator for spec in pin.specifier] == ["=="] for pin in PINS)


def test_every_locked_requirement_has_a_hash_and_torch_is_apart():
    entries = re.findall(r"^[a-zA-Z0-9].*(?:\n    .*)*", LOCKED, flags=re.MULTILINE)
    assert len(entries) > 100
    assert all("--hash=sha256:" in entry for entry in entries)
    assert not [entry for entry in entries if entry.startswith(("torch==", "nvidia-", "triton=="))]


def test_locked_and_constraints_hold_the_same_versions():
    locked = re.findall(r"^[a-zA-Z0-9][^\\\n]*", LOCKED, flags=re.MULTILINE)
    assert sorted([*map(str.strip, locked), "torch==2.13.0"]) == sorted(map(str, LINES[1:]))


def test_everything_that_development_installs_is_pinned():
    needed = sbom.reached("ns3l", frozenset({"dev", "data", "onnx", "tensorboard"}))
    assert set(needed) - {"ns3l"} <= set(HERE)


@pytest.mark.installed
def test_the_package_asks_for_no_version_that_the_pins_deny():
    asked = [Requirement(line) for line in metadata.requires("ns3l") or []]
    for want in asked:
        if (pin := HERE.get(canonicalize_name(want.name))) is not None:
            version = next(iter(pin.specifier)).version
            assert want.specifier.contains(version, prereleases=True), f"{pin} is pinned, {want} is asked for"


def test_no_requirements_file_names_an_address():
    for path in [ROOT / "constraints.txt", *Path(ROOT / "requirements").iterdir()]:
        assert not re.search(r"https?:|--index-url|--find-links|file:", path.read_text()), path.name


@pytest.mark.installed
def test_bill_of_materials_is_complete_and_repeatable(tmp_path):
    texts = []
    for name in ("one", "two"):
        command = [sys.executable, str(ROOT / "scripts" / "sbom.py"), "--out", str(tmp_path / name)]
        subprocess.run(command, check=True, capture_output=True)
        texts.append((tmp_path / name).read_text())
    assert texts[0] == texts[1]
    bill = json.loads(texts[0])
    components = {entry["name"]: entry for entry in bill["components"]}
    assert {"torch", "numpy", "scikit-learn", "safetensors"} <= set(components)
    assert components["numpy"]["version"] == metadata.version("numpy")
    assert {edge["ref"] for edge in bill["dependencies"]} >= {entry["bom-ref"] for entry in bill["components"]}


def test_an_audit_that_looked_nothing_up_is_no_audit():
    verdict = audit.verdict
    fine = {"name": "a", "version": "1", "vulns": []}
    hurt = {"name": "b", "version": "2", "vulns": [{"id": "CVE-1"}]}
    skipped = {"name": "c", "skip_reason": "not found"}
    assert verdict([fine])[0] == 0
    assert verdict([fine, hurt])[0] == 1
    assert verdict([fine, skipped])[0] == 3
    assert verdict([])[0] == 3
    assert "NOT AUDITED" in verdict([skipped])[1][-1]


def test_an_audit_without_its_program_did_not_happen(tmp_path):
    command = [sys.executable, str(ROOT / "scripts" / "audit.py"), "--tool", str(tmp_path / "pip-audit")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 3 and done.stdout.startswith("NOT AUDITED") and "No such file" in done.stdout


def test_import_opens_no_connection():
    code = (
        "import sys\n"
        "def watch(event, arguments):\n"
        "    if event in ('socket.connect', 'socket.getaddrinfo', 'socket.bind', 'urllib.Request'):\n"
        "        sys.exit(f'{event} {arguments}')\n"
        "sys.addaudithook(watch)\n"
        "import ns3l"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
