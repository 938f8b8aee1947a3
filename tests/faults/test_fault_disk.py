"""Disks that are full, broken, slow or forgetful: nothing committed is lost, and the message says what to do."""

import errno
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.faults.campaign import LONG, QUIET, blobs, many, refused, row, same_end, tiny

from ns3l.errors import RunError
from ns3l.report import report
from ns3l.train import fit

DATA = blobs()
RECIPE = tiny(steps=30)
CALLS = ("fsync", "replace")


class Crash(BaseException):
    """The process dies here, as far as the code can tell."""


def train(out: Path) -> None:
    """The run whose disk fails."""
    fit(RECIPE, DATA, out=out, how=QUIET)


@contextmanager
def failing(name: str, number: int | None, problem: BaseException | None) -> Iterator[list[int]]:
    """Count the calls of a function of `os`; the one of a number, counted from 1, raises a problem."""
    true, count = getattr(os, name), [0]

    def call(*given: object, **named: object) -> object:
        count[0] += 1
        if count[0] == number and problem is not None:
            raise problem
        return true(*given, **named)

    setattr(os, name, call)
    try:
        yield count
    finally:
        setattr(os, name, true)


def crashed(out: Path, number: int = 25) -> Path:
    """A run that died at its n-th write to disk."""
    with failing("fsync", number, Crash()), pytest.raises(Crash):
        train(out)
    return out / "seed-0"


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """The uninterrupted run."""
    out = tmp_path_factory.mktemp("whole")
    train(out)
    return out / "seed-0"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS], ids=lambda code: errno.errorcode[code])
def test_a_write_that_fails(tmp_path, whole, code):
    """Every write of a run fails once, each in a run of its own; started again, the run ends as uninterrupted."""
    places: list[tuple[str, int]] = []
    for name in CALLS:
        with failing(name, None, None) as count:
            train(tmp_path / f"count-{name}")
        places += [(name, number) for number in range(1, count[0] + 1)]
    apart = many(1 + len(places) // 4, 1)
    chosen = places[code % apart :: apart]
    with row("disk", f"{errno.errorcode[code]} at each write of a run") as told:
        for name, number in chosen:
            with told.trying(f"{name} {number}"):
                out = tmp_path / f"{name}-{number}"
                with failing(name, number, OSError(code, os.strerror(code))):
                    try:
                        train(out)
                    except RunError as problem:
                        assert os.strerror(code) in str(problem) and "intact" in str(problem)
                train(out)
                same_end(out / "seed-0", whole)
        told.note = f"{len(chosen)} of the {len(places)} writes of a run"


def test_a_process_that_dies_at_a_write(tmp_path, whole):
    with row("disk", "process dead at a write") as told:
        for number in range(3, 60, many(19, 1)):
            with told.trying(str(number)):
                out = tmp_path / str(number)
                with failing("fsync", number, Crash()), suppress(Crash):
                    train(out)
                train(out)
                same_end(out / "seed-0", whole)


@pytest.mark.skipif(not LONG or os.geteuid() != 0, reason="mounts a small disk: the long form, as root")
@pytest.mark.parametrize("state", ["full", "read-only"])
def test_a_small_disk(tmp_path, whole, state):
    disk = tmp_path / "disk"
    disk.mkdir()
    with row("disk", f"a real {state} disk (tmpfs)") as told:
        for number in range(10):
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)], check=True)
            try:
                with told.trying(str(number)):
                    small_disk(disk, state, number, whole)
            finally:
                subprocess.run(["umount", str(disk)], check=True)


def small_disk(disk: Path, state: str, number: int, whole: Path) -> None:
    """A run on a disk that is too small, or that cannot be written any more; then there is room again."""
    if state == "full":
        (disk / "ballast").write_bytes(bytes(2**18 - 4096 * (2 + number // 2)))  # from 8 to 24 kB are left
        refused(lambda: train(disk / "run"), (RunError,), "No space left")
        (disk / "ballast").unlink()
    else:
        with failing("fsync", 5 + 3 * number, Crash()), pytest.raises(Crash):
            train(disk / "run")
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        refused(lambda: train(disk / "run"), (RunError,), "Read-only")
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
    train(disk / "run")
    same_end(disk / "run" / "seed-0", whole)


def test_slow_writes(tmp_path, whole, monkeypatch):
    true = os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: (time.sleep(0.01), true(handle))[1])
    with row("disk", "slow writes") as told, told.trying():
        train(tmp_path)
        same_end(tmp_path / "seed-0", whole)


def newest(folder: Path) -> Path:
    """The newest checkpoint."""
    return max((folder / "checkpoint").glob("step-*.safetensors"))


DAMAGE: dict[str, Callable[[Path], object]] = {
    "flipped byte": lambda path: path.write_bytes(path.read_bytes()[:-9] + b"\xff" + path.read_bytes()[-8:]),
    "cut in half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "empty": lambda path: path.write_bytes(b""),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "gone": lambda path: path.unlink(),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
}


def test_damaged_newest_checkpoint(tmp_path, whole):
    with row("disk", "damaged newest checkpoint") as told:
        for number in range(20, 34, many(14, 3)):
            begun = crashed(tmp_path / f"begun-{number}", number)
            for name, damage in DAMAGE.items():
                with told.trying(name):
                    out = tmp_path / f"{number} {name}"
                    shutil.copytree(begun, out / "seed-0")
                    damage(newest(out / "seed-0"))
                    train(out)
                    same_end(out / "seed-0", whole)


def test_every_checkpoint_damaged(tmp_path):
    begun = crashed(tmp_path / "begun", 30)
    with row("disk", "every checkpoint damaged") as told, told.trying():
        for path in (begun / "checkpoint").glob("step-*.safetensors"):
            path.write_bytes(b"")
        refused(lambda: train(tmp_path / "begun"), (RunError,), "remove the folder 'checkpoint'")


def test_damaged_metrics(tmp_path, whole):
    """What was torn after the last checkpoint is made again; a line before it is told of and left out."""
    begun = crashed(tmp_path / "begun", 30)
    tails = [b'{"step": 5', b"\x00" * 4096, b"\xff\xfe\n", b'{"step": 99}\n' * 3, b"[" * 100_000 + b"\n"]
    with row("disk", "damaged metrics") as told:
        for number, tail in enumerate(tails):
            with told.trying(repr(tail[:10])):
                out = tmp_path / str(number)
                shutil.copytree(begun, out / "seed-0")
                with (out / "seed-0" / "metrics.jsonl").open("ab") as file:
                    file.write(tail)
                train(out)
                same_end(out / "seed-0", whole)
        with told.trying("first line"):
            shutil.copytree(whole, tmp_path / "line" / "seed-0")
            path = tmp_path / "line" / "seed-0" / "metrics.jsonl"
            path.write_bytes(b"x" + path.read_bytes())
            row_ = report(tmp_path / "line").table("runs").rows[0]
            assert any("metrics.jsonl, line 1: left out" in cell.text for cell in row_)


def test_missing_files(tmp_path, whole):
    """A missing file is made again or asked for; never is a run begun anew in silence."""
    begun = crashed(tmp_path / "begun", 30)
    with row("disk", "missing file") as told:
        for name in ("recipe.json", "split.json", "result.json", "environment.json", "metrics.jsonl"):
            with told.trying(name):
                out = tmp_path / name
                shutil.copytree(begun, out / "seed-0")
                (out / "seed-0" / name).unlink()
                if name == "recipe.json":
                    refused(lambda out=out: train(out), (RunError,), "Restore recipe.json")
                    continue
                train(out)
                model = (out / "seed-0" / "model.safetensors").read_bytes()
                assert model == (whole / "model.safetensors").read_bytes()


def test_clock_set_back(tmp_path, whole, monkeypatch):
    with row("disk", "clock set back") as told, told.trying():
        begun = crashed(tmp_path / "run", 30)
        for path in begun.rglob("*"):
            os.utime(path, (4e9, 4e9))
        monkeypatch.setattr(time, "time", lambda: 1000.0)
        train(tmp_path / "run")
        same_end(begun, whole)
