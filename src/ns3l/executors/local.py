"""This process carries out all tasks, one after the other; on a GPU the runs of a task go side by side."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from ns3l.data.reference import DataReference
from ns3l.executors.task import Executor, Outcomes, Task, perform
from ns3l.record import Interruption
from ns3l.shared import How
from ns3l.train import MOST, Stopped


@dataclass(frozen=True)
class Local(Executor):
    """This process; `threads` of torch, as many as it has where that is None."""

    threads: int | None = None

    def execute(self, tasks: Sequence[Task], data: DataReference, how: How) -> Outcomes:
        """Carry out tasks in order."""
        with Interruption() as stop, threads(self.threads):
            for task in tasks:
                if stop.requested:
                    raise Stopped(128 + stop.requested)
                yield from perform(task, data, how)

    def width(self, how: How) -> int:
        """As many as a GPU takes; on a CPU one, which ends with an outcome of its own."""
        return how.replicas or (MOST if how.where().type == "cuda" else 1)

    def abreast(self, tasks: int) -> int:
        """One."""
        return min(1, tasks)


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """So many threads of torch, and afterwards as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
