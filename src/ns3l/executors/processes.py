"""Several processes on this machine's CPU, each with the same fixed number of threads, so the numbers stay the same."""

import multiprocessing
import os
import pickle
import signal
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import torch

from ns3l.data.reference import DataReference
from ns3l.errors import UserError
from ns3l.executors.follow import Follower
from ns3l.executors.task import Executor, Outcome, Outcomes, Task, perform, record_failure
from ns3l.record import Interruption
from ns3l.shared import How
from ns3l.train import Stopped

POLL = 0.5
PATIENCE = 10.0
"""Seconds that a run folder of a crashed worker is waited for."""


@dataclass(frozen=True)
class Processes(Executor):
    """Worker processes (as many as cores allow where None) with `threads` of torch each; started anew, not forked.

    The runs of a worker that is lost are continued once by another, from their checkpoints.
    """

    workers: int | None = None
    threads: int = 1

    def __post_init__(self) -> None:
        if self.threads < 1 or (self.workers is not None and self.workers < 1):
            raise UserError(f"processes need workers >= 1 and threads >= 1, got {self.workers} and {self.threads}")

    def execute(self, tasks: Sequence[Task], data: DataReference, how: How) -> Outcomes:
        """Carry out tasks, the next one where a worker is free."""
        if how.where().type != "cpu":
            raise UserError(f"worker processes are for CPUs, the device is {how.where()}; use the local executor")
        _refuse_unsendable(how)
        follower, how = Follower(how.progress), replace(how, device="cpu", progress="quiet")
        crew = _Crew(tuple(tasks), data, how, self)
        try:
            with Interruption() as stop:
                while crew.busy:
                    if stop.requested:
                        crew.stop()
                    yield from crew.turn()
                    follower.look(run for worker in crew.workers if worker.task for run in worker.task.runs)
                if stop.requested:
                    raise Stopped(128 + stop.requested)
        finally:
            crew.end()

    def width(self, how: How) -> int:
        """One: tasks as small as can be keep all workers busy."""
        return how.replicas or 1

    def abreast(self, tasks: int) -> int:
        """As many as there are workers."""
        return min(tasks, self.workers or max(1, (os.cpu_count() or 1) // self.threads))


def _refuse_unsendable(how: How) -> None:
    """Functions reach a process that is started anew only by their name."""
    try:
        pickle.dumps((how.network, how.watch))
    except (pickle.PicklingError, AttributeError, TypeError) as problem:
        raise UserError(
            f"worker processes need a network and a watch that are functions of a module, not lambdas: {problem}"
        ) from problem


@dataclass
class _Worker:
    """A process, the line to it, and what it works on."""

    process: BaseProcess
    line: Connection
    task: Task | None = None
    tries: int = 0
    ended: set[Any] = field(default_factory=set)

    @property
    def unfinished(self) -> Task:
        assert self.task is not None
        return Task(tuple(run for run in self.task.runs if run.path not in self.ended))


class _Crew:
    """The workers of a study and the tasks that wait for them."""

    def __init__(self, tasks: tuple[Task, ...], data: DataReference, how: How, executor: Processes) -> None:
        self._waiting = deque((task, 0) for task in tasks)
        self._started = (data, how, executor.threads)
        self._stopping = False
        self.workers = [self._start() for _ in range(executor.abreast(len(tasks)))]

    @property
    def busy(self) -> bool:
        """Whether anything is under way or still to be begun."""
        return any(worker.task for worker in self.workers) or bool(self._waiting)

    def _start(self) -> _Worker:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs, *self._started), daemon=True)
        process.start()
        theirs.close()
        return _Worker(process, ours)

    def turn(self) -> Iterator[Outcome]:
        """Hand out tasks, then take in what workers report within half a second."""
        for worker in self.workers:
            if worker.task is None and self._waiting:
                worker.task, worker.tries = self._waiting.popleft()
                worker.ended = set()
                with suppress(OSError):
                    worker.line.send(worker.task)
        ready = wait([worker.line for worker in self.workers if worker.task], POLL)
        for place, worker in enumerate(self.workers):
            if worker.line in ready:
                try:
                    yield from self._hear(worker, worker.line.recv())
                except (EOFError, OSError):
                    yield from self._lost(place)

    def _hear(self, worker: _Worker, said: Outcome | None) -> Iterator[Outcome]:
        """An outcome, or None at the end of a task."""
        if said is None:
            worker.task = None
        else:
            worker.ended.add(said.path)
            yield said

    def _lost(self, place: int) -> Iterator[Outcome]:
        """A worker died: another one takes its place, and once its runs."""
        worker = self.workers[place]
        worker.process.join()
        left, code = worker.unfinished, worker.process.exitcode
        if self._stopping:
            worker.task = None
            return
        self.workers[place] = self._start()
        if worker.tries == 0:
            self._waiting.append((left, 1))
            return
        for run in left.runs:
            reason = f"its worker process was lost twice, at last with exit code {code}"
            record_failure(run, reason)
            yield Outcome(run.path, "failed", reason)

    def stop(self) -> None:
        """Begin nothing more and ask every worker to save what it has."""
        if not self._stopping:
            self._stopping = True
            self._waiting.clear()
            for worker in self.workers:
                if worker.task and worker.process.pid:
                    with suppress(ProcessLookupError):
                        os.kill(worker.process.pid, signal.SIGTERM)

    def end(self) -> None:
        """Let workers go; those that are still at work are ended."""
        for worker in self.workers:
            worker.line.close()
            if worker.task:
                worker.process.terminate()
            else:
                worker.process.kill()  # it holds nothing
        for worker in self.workers:
            worker.process.join(PATIENCE)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()


def _work(line: Connection, data: DataReference, how: How, threads: int) -> None:
    """The life of a worker: tasks in, outcomes out, None after each task; it ends when the line is cut."""
    torch.set_num_threads(threads)
    with Interruption() as stop, suppress(EOFError, BrokenPipeError, Stopped):
        while True:
            task = line.recv()
            if not stop.requested:
                for outcome in perform(task, data, how, PATIENCE):
                    line.send(outcome)
            line.send(None)
