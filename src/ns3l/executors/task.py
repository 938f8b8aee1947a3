"""What executors carry out: tasks of runs that may share a device, one after the other or side by side."""

import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ns3l.data.dataset import Dataset
from ns3l.data.reference import DataReference
from ns3l.environment import environment
from ns3l.errors import DiskError, InUseError, UserError
from ns3l.recipe import Recipe
from ns3l.record import RunFolder, read_json
from ns3l.record.folder import LARGEST_SPLIT
from ns3l.shared import How, Plan
from ns3l.split import Split, make_split
from ns3l.train import Stopped, train

AGAIN = 0.5
"""Seconds between two looks at a folder that another process still holds."""


@dataclass(frozen=True)
class Assignment:
    """One run of a study: its recipe, its seed (of the split too) and its folder."""

    recipe: Recipe
    seed: int
    path: Path


@dataclass(frozen=True)
class Task:
    """Runs of one form, which may be trained side by side."""

    runs: tuple[Assignment, ...]


@dataclass(frozen=True)
class Outcome:
    """How a run ended: `complete`, or `failed` for a reason, perhaps one that only concerns this machine."""

    path: Path
    status: str
    reason: str | None = None
    local: bool = False


Outcomes = Generator[Outcome, None, None]


class Executor(ABC):
    """Where and in how many processes tasks are carried out. The numbers of a run do not depend on it."""

    @abstractmethod
    def execute(self, tasks: Sequence[Task], data: DataReference, how: How) -> Outcomes:
        """Carry out tasks; an outcome for every run as it ends. A signal saves the runs and raises `Stopped`."""

    @abstractmethod
    def width(self, how: How) -> int:
        """How many runs of one form a task should have."""

    @abstractmethod
    def abreast(self, tasks: int) -> int:
        """How many of so many tasks go on at the same time."""


def perform(task: Task, data: DataReference, how: How, patience: float = 0.0) -> Iterator[Outcome]:
    """Carry out one task in this process; where runs side by side fail, in halves, until the one at fault is alone.

    A folder that another process holds is waited for `patience` seconds: a lost worker may still be going down.
    """
    try:
        dataset = data.load()
    except (UserError, OSError) as problem:
        yield from (Outcome(run.path, "failed", reason_of(problem), local=True) for run in task.runs)
        return
    yield from _attempt(task.runs, dataset, how, time.monotonic() + patience)


def _attempt(runs: tuple[Assignment, ...], data: Dataset, how: How, until: float) -> Iterator[Outcome]:
    splits: list[Split] = []
    try:
        splits += [make_split(data, run.recipe.split, run.seed) for run in runs]
        pairs = zip(runs, splits, strict=True)
        done = train([Plan(run.recipe, split, run.seed, run.path) for run, split in pairs], data, how)
        outcomes = [_outcome(trained.plan.path or Path(), trained.result) for trained in done]
    except Stopped:
        raise
    except Exception as problem:
        yield from _after(problem, runs, splits, data, how, until)
    else:
        yield from outcomes


def _after(
    problem: Exception, runs: tuple[Assignment, ...], splits: list[Split], data: Dataset, how: How, until: float
) -> Iterator[Outcome]:
    """What follows a failure: patience, halves, or its reason recorded."""
    if isinstance(problem, InUseError) and time.monotonic() < until:
        time.sleep(AGAIN)
        yield from _attempt(runs, data, how, until)
    elif len(runs) > 1:
        half = len(runs) // 2
        yield from _attempt(runs[:half], data, how, until)
        yield from _attempt(runs[half:], data, how, until)
    else:
        reason = reason_of(problem)
        record_failure(runs[0], reason, splits[0].to_dict() if splits else None)
        yield Outcome(runs[0].path, "failed", reason, local=isinstance(problem, DiskError))


def _outcome(path: Path, result: dict[str, Any]) -> Outcome:
    reason = None if result["status"] == "complete" else read_json(path / "result.json").get("reason")
    return Outcome(path, str(result["status"]), reason)


def reason_of(problem: BaseException) -> str:
    """An error in one line: a user's mistake as it is worded, anything else with its kind."""
    text = " ".join(str(problem).split())
    return text if isinstance(problem, UserError) else f"{type(problem).__name__}: {text}"


def record_failure(run: Assignment, reason: str, split: dict[str, Any] | None = None) -> None:
    """Keep the reason in the run's folder, unless that is not this run's, is complete, in use or cannot be written."""
    with suppress(UserError, OSError):
        split = split or read_json(run.path / "split.json", LARGEST_SPLIT)
        with RunFolder.open(run.path, run.recipe.to_dict(), split, run.seed, environment()) as folder:
            if folder.status != "complete":
                folder.fail(reason)
