"""The environment is said in JSON, quickly, and only git of our own source counts."""

import json
import subprocess
import time
from importlib import metadata

import pytest
import torch

from ns3l import __version__
from ns3l.environment import environment, git_state, hardware


def test_it_names_versions_and_hardware():
    started = time.perf_counter()
    found = environment()
    assert time.perf_counter() - started < 5
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["ns3l"] == __version__
    assert found["packages"]["torch"] == str(torch.__version__)
    assert found["threads"] == torch.get_num_threads()
    assert found["cpu"] and found["command"]
    assert found["git"] is None or len(found["git"]["commit"]) in (40, 64)


@pytest.mark.installed
def test_the_version_is_that_of_the_package():
    assert metadata.version("ns3l") == __version__


def test_hardware_in_words():
    assert hardware({"gpus": ["H200", "H200"], "cpu": "x", "threads": 2}) == "2 x H200"
    assert hardware({"gpus": [], "cpu": "Some CPU", "threads": 2}) == "Some CPU, 2 threads"


def git(folder, *command):
    person = ("-c", "user.name=a", "-c", "user.email=a@b.invalid", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", str(folder), *person, *command], check=True, capture_output=True)


def test_git_state_of_a_checkout_and_of_none(tmp_path):
    assert git_state(tmp_path / "absent") is None
    git(tmp_path, "init", "-q")
    (tmp_path / "a.py").write_text("1")
    installed = tmp_path / "site-packages"
    installed.mkdir()
    (installed / "b.py").write_text("1")
    git(tmp_path, "add", "a.py")
    git(tmp_path, "commit", "-qm", "first")
    assert git_state(installed) is None  # a package that lies inside somebody else's checkout
    (installed / "b.py").unlink()
    assert git_state(tmp_path)["dirty"] is False
    git_state.cache_clear()
    (tmp_path / "a.py").write_text("2")
    assert git_state(tmp_path)["dirty"] is True
