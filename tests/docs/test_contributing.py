"""What CONTRIBUTING.md promises of a new term, done in a copy of the package: one file and one line."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
BROKEN = (".amax(1)", ".detach().amax(1)")


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The package and its tests, with the term of CONTRIBUTING added."""
    place = tmp_path_factory.mktemp("copy")
    for part in ("src", "tests/terms"):
        shutil.copytree(ROOT / part, place / part, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "tests/conftest.py"):
        shutil.copy(ROOT / name, place / name)
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    term = text.split("```python\n")[1].split("```")[0]
    (place / "src/ns3l/terms/confidence.py").write_text(term.partition("\n")[2], encoding="utf-8")
    registry = place / "src/ns3l/terms/__init__.py"
    lines = registry.read_text(encoding="utf-8").replace(
        "TERMS: dict", "from ns3l.terms.confidence import Confidence\n\nTERMS: dict"
    )
    line = '    "confidence": Confidence,\n'
    assert line in text
    registry.write_text(lines.rstrip().removesuffix("}") + line + "}\n", encoding="utf-8")
    return place


def run(place, *words):
    environment = os.environ | {"PYTHONPATH": str(place / "src")}
    command = [sys.executable, "-m", *words]
    return subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_contract_covers_a_new_term(copy):
    told = run(copy, "pytest", "-q", "tests/terms/test_contract.py", "-k", "confidence")
    assert told.returncode == 0 and "12 passed" in told.stdout, told.stdout[-3000:]
    path = copy / "src/ns3l/terms/confidence.py"
    good = path.read_text(encoding="utf-8")
    path.write_text(good.replace(*BROKEN), encoding="utf-8")
    told = run(copy, "pytest", "-q", "tests/terms/test_contract.py", "-k", "confidence")
    path.write_text(good, encoding="utf-8")
    assert told.returncode == 1 and "8 failed" in told.stdout, told.stdout[-3000:]


@pytest.mark.slow
@pytest.mark.parametrize("words", [["vat+confidence"], ["confidence", "--set", "confidence.power=2"]])
def test_a_new_term_is_a_method(copy, words):
    told = run(copy, "ns3l", "train", "digits", "--labels", "30", "--schedule", "0.02", "--method", *words)
    assert told.returncode == 0, told.stderr[-3000:]
