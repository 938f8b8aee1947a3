"""A small trained run that the tests of this folder share."""

from pathlib import Path

import pytest
from tests.cli.terminal import ns3l


@pytest.fixture(scope="session")
def run(tmp_path_factory) -> Path:
    """A run folder: digits, supervised, three steps."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    words = ("--labels", 30, "--method", "supervised", "--steps", 3, "--validation", 20, "--quiet")
    ended = ns3l("train", "digits", *words, "--out", folder)
    assert ended.code == 0, ended.err
    assert not ended.out
    return folder
