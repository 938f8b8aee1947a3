"""What is said to worker processes and what follows from what they say: lines whose far ends a test holds."""

import multiprocessing
import subprocess
import sys
import threading
import time
from multiprocessing.connection import Connection
from types import SimpleNamespace

import pytest
import torch
from tests.executors.small_study import small

import ns3l
from ns3l.executors import Outcome, Processes, Task, processes
from ns3l.executors.local import threads
from ns3l.executors.processes import _Crew, _work, _Worker
from ns3l.record.lock import FolderLock

QUIET = ns3l.How(device="cpu", progress="quiet")


class Gone:
    """A process that is not there any more, or one that stays whatever it is told."""

    exitcode: int | None = None

    def __init__(self, stays: bool = False) -> None:
        ended = subprocess.Popen([sys.executable, "-c", ""])
        ended.wait()
        self.pid, self.stays, self.told = ended.pid, stays, []

    def join(self, seconds: float | None = None) -> None:
        self.told.append("join")
        self.exitcode = -9

    def terminate(self) -> None:
        self.told.append("terminate")

    def kill(self) -> None:
        self.told.append("kill")

    def is_alive(self) -> bool:
        return self.stays


@pytest.fixture
def far(monkeypatch) -> list[Connection]:
    """The far ends of the lines to workers, in the order in which they are started."""
    ends: list[Connection] = []

    def start(crew: _Crew) -> _Worker:
        ours, theirs = multiprocessing.Pipe()
        ends.append(theirs)
        return _Worker(Gone(), ours)

    monkeypatch.setattr(processes, "POLL", 0)
    monkeypatch.setattr(_Crew, "_start", start)
    return ends


def crew_of(one, workers: int, *widths: int) -> _Crew:
    """A crew that has tasks of so many runs of a study."""
    runs = [cell.run for cell in one.cells()]
    tasks = [Task(tuple(runs.pop(0) for _ in range(width))) for width in widths]
    return _Crew(tuple(tasks), one.data, QUIET, Processes(workers))


def test_a_worker_has_one_task_at_a_time(tmp_path, far):
    crew = crew_of(small(tmp_path), 1, 1, 1)
    assert not [*crew.turn(), *crew.turn()]
    first = far[0].recv()
    assert not far[0].poll()
    far[0].send(None)
    assert not [*crew.turn(), *crew.turn()]
    assert far[0].recv() != first and crew.busy
    far[0].send(None)
    assert not list(crew.turn()) and not crew.busy


def test_what_a_lost_worker_reported_is_not_done_again(tmp_path, far):
    crew = crew_of(small(tmp_path), 1, 2)
    list(crew.turn())
    first, second = far[0].recv().runs
    done = Outcome(first.path, "complete")
    far[0].send(done)
    assert list(crew.turn()) == [done]
    far[0].close()
    assert not [*crew.turn(), *crew.turn()]
    assert far[1].recv().runs == (second,)
    far[1].close()
    (lost,) = crew.turn()
    assert (lost.path, lost.status) == (second.path, "failed")
    assert lost.reason == "its worker process was lost twice, at last with exit code -9"


@pytest.mark.parametrize("handed_out", [False, True])
def test_a_worker_may_be_lost_before_it_reads_its_task(tmp_path, far, handed_out):
    crew = crew_of(small(tmp_path), 1, 1)
    if handed_out:
        list(crew.turn())
    far[0].close()
    assert not [*crew.turn(), *crew.turn()]
    assert len(far[1].recv().runs) == 1


def test_an_idle_worker_may_be_lost(tmp_path, far):
    crew = crew_of(small(tmp_path), 2, 1, 1)
    list(crew.turn())
    far[0].send(None)
    list(crew.turn())
    far[0].close()
    assert not list(crew.turn()) and crew.busy
    far[1].send(None)
    assert not list(crew.turn()) and not crew.busy


@pytest.mark.parametrize("lost", [False, True])
def test_nothing_is_begun_after_a_stop(tmp_path, far, lost):
    crew = crew_of(small(tmp_path), 1, 1, 1)
    list(crew.turn())
    crew.stop()
    far[0].recv()
    if lost:
        far[0].close()
    else:
        far[0].send(None)
    assert not [*crew.turn(), *crew.turn()]
    assert not crew.busy and len(far) == 1
    assert lost or not far[0].poll()


def test_a_worker_that_stays_is_killed(tmp_path, far):
    crew = crew_of(small(tmp_path), 1, 1)
    list(crew.turn())
    crew.workers[0].process = Gone(stays=True)
    crew.end()
    assert crew.workers[0].process.told == ["terminate", "join", "kill", "join"]


@pytest.mark.parametrize("begun", [False, True])
def test_a_worker_ends_where_its_line_is_cut(tmp_path, begun):
    ours, theirs = multiprocessing.Pipe()
    if begun:
        ours.send(Task(()))
    ours.close()
    before = torch.get_num_threads()
    with threads(before):
        _work(theirs, small(tmp_path).data, QUIET, before + 1)
        assert torch.get_num_threads() == before + 1


def test_a_worker_waits_for_a_folder_that_a_lost_one_still_holds(tmp_path, monkeypatch):
    one = small(tmp_path, seeds=1)
    run = one.cells()[0].run
    run.path.mkdir(parents=True)
    lock = FolderLock(run.path)
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=lambda seconds: lock.release())
    monkeypatch.setattr("ns3l.executors.task.time", clock)
    ours, theirs = multiprocessing.Pipe()
    worker = threading.Thread(target=_work, args=(theirs, one.data, QUIET, 1), daemon=True)
    worker.start()
    ours.send(Task((run,)))
    assert ours.recv() == Outcome(run.path, "complete")
    assert ours.recv() is None
    ours.close()
    worker.join()
