"""`ns3l data`: fetch, check, info."""

import json

import numpy as np
from PIL import Image
from tests.cli.terminal import ns3l


def test_info():
    told = json.loads(ns3l("data", "info", "digits", "--json").out)
    assert (told["name"], told["train"], told["shape"]) == ("digits", 1797, [8, 8, 1])
    shown = ns3l("data", "info", "digits")
    assert shown.code == 0
    assert "1,797" in shown.out


def test_fetch_what_needs_no_download(tmp_path):
    ended = ns3l("data", "fetch", "digits", "--root", tmp_path)
    assert ended.code == 0
    assert "comes with scikit-learn" in ended.err
    assert ns3l("data", "fetch", "cifra10").code == 2


def test_check_a_folder_with_a_sheet(tmp_path):
    draw = np.random.default_rng(0)
    for name in ("cat/a.png", "cat/b.png", "dog/c.png", "dog/d.png"):
        path = tmp_path / "photos" / "labeled" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw.integers(0, 256, (9, 9, 3), np.uint8)).save(path)
    (tmp_path / "photos/labeled/dog/e.png").write_bytes(b"not an image")
    ended = ns3l("data", "check", tmp_path / "photos", "--sheet", tmp_path / "s.png", "--size", 8)
    assert ended.code == 0
    assert "damaged: labeled/dog/e.png" in ended.out
    assert (tmp_path / "s.png").exists()
    told = json.loads(ns3l("data", "check", tmp_path / "photos", "--size", 8, "--json").out)
    assert told["per_class"] == {"cat": 2, "dog": 2}
    assert told["shape"] == [8, 8, 3]


def test_check_something_that_is_not_there():
    ended = ns3l("data", "check", "none/at/all")
    assert ended.code == 2
    assert "no data set and no file" in ended.err
