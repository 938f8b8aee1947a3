"""Processes killed, stopped and doubled at random moments: every one ends as if nothing had happened."""

import multiprocessing
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.data.test_download import CONTENT, Server, remote
from tests.faults.campaign import QUIET, blobs, end_of, many, row, same_end, tiny
from tests.report.stored import write_all

from ns3l.data.decode import Wanted
from ns3l.data.download import Remote, download
from ns3l.data.store import Source, open_store
from ns3l.errors import RunError
from ns3l.report import report, write_html
from ns3l.split import make_split
from ns3l.train import Stopped, fit

DATA = blobs()
RECIPE = tiny("ns3l", steps=80)
FORK = multiprocessing.get_context("fork")
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


def train(out: Path) -> None:
    """The run that is killed."""
    fit(RECIPE, DATA, out=out, how=QUIET)


def child(work: Callable[[], object]) -> int:
    """The id of a forked process that does some work; it ends with 130 or 143 where it was asked to stop."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            work()
            code = 0
        except Stopped as stopped:
            code = stopped.code
        except RunError:
            code = 3
        finally:
            os._exit(code)
    return pid


def struck(work: Callable[[], object], after: float, number: int) -> int:
    """How a process ended that got a signal after some seconds: its exit code, negative for a signal."""
    pid = child(work)
    time.sleep(after)
    os.kill(pid, number)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> tuple[Path, float]:
    """An uninterrupted run, and how long it took in a process of its own."""
    folder = tmp_path_factory.mktemp("whole")
    began = time.monotonic()
    assert os.waitstatus_to_exitcode(os.waitpid(child(lambda: train(folder)), 0)[1]) == 0
    return folder / "seed-0", time.monotonic() - began


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda n: n.name)
def test_training(tmp_path, whole, number):
    """Each run is struck again and again until it ends, and must then be the uninterrupted one.

    Only signals that came before the end count; where one came too late, the next ones come earlier.
    """
    folder, seconds = whole
    draw = random.Random(int(number))
    with row("kills", f"training and checkpointing, {number.name}") as told:
        strikes = resumed = 0
        while resumed < many(2, 100 if number == signal.SIGKILL else 20):
            out = tmp_path / f"run-{told.tried}"
            with told.trying(out.name):
                for _ in range(4):
                    code = struck(lambda out=out: train(out), draw.uniform(0.1, 0.9) * seconds, number)
                    strikes += 1
                    assert code in (0, -number, 128 + number), code
                    resumed += code != 0
                    if code == 0:
                        seconds *= 0.9
                        break
                train(out)
                same_end(out / "seed-0", folder)
                assert not list(out.rglob("*.tmp"))
        late = strikes - resumed
        told.note = f"{resumed} signals before the end, {late} after it; each run ended bit for bit as uninterrupted"


def test_two_processes_on_one_folder(tmp_path, whole):
    with row("kills", "two processes on one run folder") as told:
        for number in range(many(1, 10)):
            with told.trying(str(number)):
                out = tmp_path / str(number)
                pair = [child(lambda out=out: train(out)) for _ in range(2)]
                codes = sorted(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pair)
                assert codes in ([0, 3], [0, 0]), codes  # one refused, or begun when the other had ended
                same_end(out / "seed-0", whole[0])


def test_store_building(tmp_path):
    images = tmp_path / "images"
    images.mkdir()
    for number in range(80):
        Image.new("RGB", (24, 24), (number, 0, 0)).save(images / f"{number:03}.png")
    state = {path: path.stat() for path in sorted(images.iterdir())}
    sources = [Source(path.name, path, found.st_size, found.st_mtime_ns) for path, found in state.items()]
    form = Wanted(16, 3)
    began = time.monotonic()
    open_store(tmp_path / "whole", sources, form)
    seconds = time.monotonic() - began
    draw = random.Random(0)
    with row("kills", "building an image store, SIGKILL") as told:
        for number in range(many(3, 40)):
            place = tmp_path / f"store-{number}"
            with told.trying(place.name):
                struck(
                    lambda place=place: open_store(place, sources, form), draw.uniform(0, 1.2) * seconds, signal.SIGKILL
                )
                assert open_store(place, sources, form).pixels[:, 0, 0, 0].tolist() == list(range(80))
                assert sorted(path.name.split("-")[0] for path in place.iterdir()) == [
                    "images",
                    "lock",
                    "manifest.json",
                ]


def test_downloading(tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    draw = random.Random(0)
    with row("kills", "downloading, SIGKILL") as told:
        for number in range(many(3, 25)):
            server = Server("stall:70000", "stall:50000")
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
            wanted: Remote = remote(server)
            root = tmp_path / str(number)
            with told.trying(str(number)):
                for _ in range(2):
                    struck(
                        lambda r=root, w=wanted: download(w, r, progress=False), draw.uniform(0, 0.3), signal.SIGKILL
                    )
                    assert not (root / "sub/file.bin").exists()
                server.plan.clear()
                assert download(wanted, root, progress=False).read_bytes() == CONTENT
            server.release.set()
            server.shutdown()
            server.server_close()


def test_report_writing(tmp_path):
    made = report(write_all(tmp_path / "runs"))
    target = tmp_path / "report.html"
    write_html(made, target)
    good = target.read_bytes()

    def work() -> None:
        while True:
            write_html(made, target)

    draw = random.Random(0)
    with row("kills", "writing a report, SIGKILL") as told:
        for number in range(many(3, 30)):
            with told.trying(str(number)):
                struck(work, draw.uniform(0.0, 0.4), signal.SIGKILL)
                assert target.read_bytes() == good


def test_a_complete_run_is_read_and_not_trained_again(tmp_path, whole):
    with row("kills", "a complete run started again") as told, told.trying():
        before = {path: path.read_bytes() for path in whole[0].iterdir() if path.is_file()}
        fit(RECIPE, DATA, out=whole[0].parent, how=QUIET, splits=[make_split(DATA, RECIPE.split, 0)])
        assert {path: path.read_bytes() for path in before} == before
        assert np.isfinite(end_of(whole[0])["result"]["test_error"]["last"])
