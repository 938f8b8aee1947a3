"""Every reader under a fuzzer that is guided by coverage, where atheris is installed."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from tests.faults.campaign import many, row

ENDINGS = ("idx.gz", "gz", "pkl", "safetensors", "json", "recipe", "split", "png", "jpg", "gif", "bmp", "mat", "npz",
           "tar.gz", "zip", "labels.csv", "csv", "parquet")  # fmt: skip
ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="needs atheris: pip install atheris")
def test_guided_fuzz():
    runs, found = many(200, 2_000), []
    with row("hostile", "coverage-guided fuzzing of every reader (atheris)") as told:
        for ending in ENDINGS:
            command = [sys.executable, "-m", "tests.faults.guided", ending, f"-runs={runs}", "-seed=1"]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=1_800)
            told.tried += runs
            if done.returncode:
                told.lost.append(f"{ending}: {(done.stdout + done.stderr)[-400:]}")
            edges = [line.split("cov: ")[1].split()[0] for line in done.stderr.splitlines() if "cov: " in line]
            found.append(f"{ending} {edges[0]} to {edges[-1]}" if edges else f"{ending} ?")
        told.note = f"{runs:,} inputs a reader, edges covered at the beginning and at the end: {', '.join(found)}"
