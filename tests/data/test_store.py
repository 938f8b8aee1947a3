import errno
import json
import logging
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from filelock import FileLock
from PIL import Image

from ns3l.data import store as stores
from ns3l.data.decode import Wanted
from ns3l.data.store import Source, finished_store, open_store
from ns3l.errors import DataError

FORM = Wanted(8, 3)


def source(path, name=None):
    state = path.stat()
    return Source(name or path.name, path, state.st_size, state.st_mtime_ns)


def picture(folder, k, size=(8, 8)):
    path = folder / f"{k:03}.png"
    Image.new("RGB", size, (k % 256, 0, 0)).save(path)
    return path


@pytest.fixture
def sources(tmp_path):
    (tmp_path / "images").mkdir()
    return [source(picture(tmp_path / "images", k)) for k in range(40)]


def values(store):
    return store.pixels[:, 0, 0, 0].tolist()


def files(place):
    return sorted(path.name.split("-")[0] for path in place.iterdir())


def test_rows_come_in_order_and_are_mapped(tmp_path, sources):
    store = open_store(tmp_path / "s", sources, FORM)
    assert isinstance(store.pixels, np.memmap) and not store.pixels.flags.writeable
    assert store.pixels.shape == (40, 8, 8, 3) and values(store) == list(range(40))
    assert store.names == tuple(s.name for s in sources) and store.decoded == 40
    assert files(tmp_path / "s") == ["images", "lock", "manifest.json"]


def test_only_what_is_new_is_decoded(tmp_path, sources):
    open_store(tmp_path / "s", sources, FORM)
    assert open_store(tmp_path / "s", sources, FORM).decoded == 0
    more = [source(picture(tmp_path / "images", k)) for k in (100, 101)]
    grown = open_store(tmp_path / "s", [*sources[:20], *more, *sources[20:]], FORM)
    assert grown.decoded == 2 and values(grown) == [*range(20), 100, 101, *range(20, 40)]
    shrunk = open_store(tmp_path / "s", sources[5:], FORM)
    assert shrunk.decoded == 0 and values(shrunk) == list(range(5, 40))
    assert files(tmp_path / "s") == ["images", "lock", "manifest.json"]


def test_a_changed_file_is_decoded_again(tmp_path, sources):
    open_store(tmp_path / "s", sources, FORM)
    path = sources[7].path
    Image.new("RGB", (8, 8), (200, 0, 0)).save(path)
    changed = [*sources[:7], source(path), *sources[8:]]
    again = open_store(tmp_path / "s", changed, FORM)
    assert again.decoded == 1 and values(again)[7] == 200


def test_a_changed_file_is_decoded_again_where_the_form_comes_from_the_headers(tmp_path, sources):
    assert values(open_store(tmp_path / "store", sources))[3] == 3
    Image.new("RGB", (8, 8), (200, 0, 0)).save(sources[3].path)
    again = [source(given.path) for given in sources]
    assert values(open_store(tmp_path / "store", again))[3] == 200


def test_another_form_is_another_build(tmp_path, sources):
    open_store(tmp_path / "s", sources, FORM)
    again = open_store(tmp_path / "s", sources, Wanted(4, 1))
    assert again.decoded == 40 and again.pixels.shape == (40, 4, 4, 1)


def test_defaults_read_headers_of_new_files_only(tmp_path, sources, monkeypatch):
    assert open_store(tmp_path / "s", sources).pixels.shape == (40, 8, 8, 3)
    read = []
    real = stores.read_header
    monkeypatch.setattr(stores, "read_header", lambda path: read.append(path.name) or real(path))
    more = [*sources, source(picture(tmp_path / "images", 200, size=(9, 9)))]
    assert open_store(tmp_path / "s", more).pixels.shape == (41, 32, 32, 3)
    assert read == ["200.png"]


def test_damaged_files_are_remembered_until_they_change(tmp_path, sources, monkeypatch):
    sources[3].path.write_text("no image")
    bad = [*sources[:3], source(sources[3].path), *sources[4:]]
    store = open_store(tmp_path / "s", bad, FORM)
    assert store.damaged == {"003.png": "not an image, or of an unknown format"} and len(store.pixels) == 39
    tried = []
    monkeypatch.setattr(stores, "decode", lambda path, form: tried.append(path))
    assert open_store(tmp_path / "s", bad, FORM).damaged == store.damaged and not tried


@pytest.mark.parametrize(
    "damage",
    [
        lambda place: (place / "manifest.json").write_text("{"),
        lambda place: (place / "manifest.json").write_text("[" * 100_000),
        lambda place: (place / "manifest.json").write_text('{"version": 1, "pixels": "../../secret"}'),
        lambda place: (place / "manifest.json").write_bytes(b" " * 2_000_000),
        lambda place: (place / "manifest.json").unlink(),
        lambda place: next(place.glob("images-*")).unlink(),
        lambda place: os.truncate(next(place.glob("images-*")), 100),
        lambda place: edit(place, lambda text: text["form"].update(height="8")),
        lambda place: edit(place, lambda text: text["form"].update(height=-8)),
        lambda place: edit(place, lambda text: text["files"].append(["x", 1, 1, [0, 0, 1], ""])),
        lambda place: edit(place, lambda text: text["files"].append("x")),
        lambda place: edit(place, lambda text: text.update(version=0)),
        lambda place: edit(place, lambda text: text.update(pixels=3)),
    ],
)
def test_a_damaged_store_is_built_anew(tmp_path, sources, damage):
    place = tmp_path / "s"
    open_store(place, sources, FORM)
    damage(place)
    assert values(open_store(place, sources, FORM)) == list(range(40))
    assert files(place) == ["images", "lock", "manifest.json"]


def edit(place, change):
    text = json.loads((place / "manifest.json").read_text())
    change(text)
    (place / "manifest.json").write_text(json.dumps(text))


def test_pixels_that_are_a_link_are_not_read(tmp_path, sources):
    place = tmp_path / "s"
    open_store(place, sources, FORM)
    pixels = next(place.glob("images-*"))
    (tmp_path / "secret").write_bytes(b"\xff" * pixels.stat().st_size)
    pixels.unlink()
    pixels.symlink_to(tmp_path / "secret")
    assert values(open_store(place, sources, FORM)) == list(range(40))
    assert (tmp_path / "secret").read_bytes()[:1] == b"\xff"


def test_a_manifest_cannot_point_elsewhere(tmp_path, sources):
    place = tmp_path / "s"
    open_store(place, sources, FORM)
    (tmp_path / "secret").write_bytes(b"\xff" * next(place.glob("images-*")).stat().st_size)
    edit(place, lambda text: text.update(pixels="../secret"))
    assert open_store(place, sources, FORM).decoded == 40


def test_an_absurdly_long_manifest_is_not_read(tmp_path, sources):
    place = tmp_path / "s"
    open_store(place, sources, FORM)
    with (place / "manifest.json").open("a") as text:
        text.write(" " * 2_000_000)
    assert open_store(place, sources, FORM).decoded == 40


def test_leftovers_beside_a_finished_store_are_swept(tmp_path, sources):
    place = tmp_path / "s"
    open_store(place, sources, FORM)
    for name in ("images-0123456789abcdef.uint8", "images-0123456789abcdef.uint8.part", "manifest.json.part"):
        (place / name).write_bytes(b"left over")
    (place / "mine.txt").write_text("not ours to remove")
    assert open_store(place, sources, FORM).decoded == 0
    assert files(place) == ["images", "lock", "manifest.json", "mine.txt"]


def test_an_interrupted_build_leaves_the_old_store(tmp_path, sources, monkeypatch):
    place = tmp_path / "s"
    open_store(place, sources[:10], FORM)
    before = sorted(path.name for path in place.iterdir())
    real, calls = stores.decode, []

    def interrupted(path, form):
        calls.append(path)
        if len(calls) == 20:
            raise KeyboardInterrupt
        return real(path, form)

    monkeypatch.setattr(stores, "decode", interrupted)
    with pytest.raises(KeyboardInterrupt):
        open_store(place, sources, FORM)
    monkeypatch.undo()
    assert sorted(path.name for path in place.iterdir()) == before
    assert open_store(place, sources[:10], FORM).decoded == 0


def test_a_full_disk_is_a_clear_error_and_leaves_nothing(tmp_path, sources, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(stores.os, "fsync", full)
    with pytest.raises(DataError, match="cannot be written: No space left on device; free some space"):
        open_store(tmp_path / "s", sources, FORM)
    assert files(tmp_path / "s") == ["lock"]


BUILD = """
import sys, time
from pathlib import Path
from ns3l.data import store
from ns3l.data.decode import Wanted
slow = float(sys.argv[3])
real = store.decode
def decode(path, form):
    time.sleep(slow)
    return real(path, form)
store.decode = decode
folder = Path(sys.argv[1])
sources = [store.Source(p.name, p, p.stat().st_size, p.stat().st_mtime_ns) for p in sorted(folder.iterdir())]
built = store.open_store(Path(sys.argv[2]), sources, Wanted(8, 3))
print(built.decoded, built.pixels[:, 0, 0, 0].tolist() == list(range(len(sources))))
"""


def builder(folder, place, slow):
    command = [sys.executable, "-c", BUILD, str(folder), str(place), str(slow)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_two_builds_at_once_decode_once(tmp_path, sources):
    pair = [builder(tmp_path / "images", tmp_path / "s", 0.02) for _ in range(2)]
    told = [process.communicate(timeout=60) for process in pair]
    assert sorted(out.split() for out, _ in told) == [["0", "True"], ["40", "True"]], told
    assert files(tmp_path / "s") == ["images", "lock", "manifest.json"]


def test_a_killed_build_leaves_nothing_that_counts(tmp_path, sources):
    place = tmp_path / "s"
    process = builder(tmp_path / "images", place, 0.5)
    deadline = time.monotonic() + 60
    while not list(place.glob("images-*.part")) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert list(place.glob("images-*.part")) and not (place / "manifest.json").exists()
    assert values(open_store(place, sources, FORM)) == list(range(40))
    assert files(place) == ["images", "lock", "manifest.json"]


def test_waiting_for_another_build_is_told(tmp_path, sources, caplog, monkeypatch):
    (tmp_path / "s").mkdir()
    other = FileLock(tmp_path / "s" / "lock")
    other.acquire()
    monkeypatch.setattr(stores.log, "warning", lambda *_: other.release())
    with caplog.at_level(logging.WARNING):
        assert open_store(tmp_path / "s", sources, FORM).decoded == 40
    assert not other.is_locked


def test_a_finished_store_is_told_from_a_stale_one(tmp_path, sources):
    place = tmp_path / "s"
    assert finished_store(place, sources, FORM) is None
    open_store(place, sources, FORM)
    assert values(finished_store(place, sources, FORM)) == list(range(40))
    assert finished_store(place, sources[1:], FORM) is None
    assert finished_store(place, sources, Wanted(4, 3)) is None
    assert finished_store(place, [*sources[:-1], source(picture(tmp_path / "images", 39, (9, 9)))], FORM) is None


def test_an_older_view_stays_readable_while_the_store_moves_on(tmp_path, sources):
    first = open_store(tmp_path / "s", sources, FORM)
    open_store(tmp_path / "s", sources[20:], FORM)
    assert values(first) == list(range(40))


def test_no_progress_bar_where_nobody_looks(tmp_path, sources, capfd):
    open_store(tmp_path / "s", sources, FORM)
    assert capfd.readouterr() == ("", "")
