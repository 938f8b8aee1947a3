"""What a study would do now: which runs are done, begun, failed or new, and what the rest will cost."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ns3l.errors import RunError
from ns3l.executors.local import Local
from ns3l.executors.task import Executor, Task
from ns3l.progress import duration
from ns3l.record import differences, read_json
from ns3l.record.files import plain
from ns3l.shared import How
from ns3l.study.description import Cell, Study
from ns3l.study.estimate import Estimate, likeness, measure, recorded
from ns3l.train import form

MEANING = {
    "complete": "skipped",
    "begun": "continued",
    "failed": "tried again",
    "new": "trained",
    "blocked": "refused: the folder holds another run or cannot be read",
}


@dataclass(frozen=True)
class Planned:
    """A run of a study, what its folder says of it, and what it is expected to cost."""

    cell: Cell
    status: str
    step: int = 0
    reason: str | None = None
    estimate: Estimate = field(default_factory=Estimate)

    @property
    def left(self) -> int:
        """Steps still to be trained."""
        return 0 if self.status in ("complete", "blocked") else max(0, self.cell.run.recipe.steps - self.step)


@dataclass(frozen=True)
class StudyPlan:
    """All runs of a study with their status; `tasks` are those that are left, grouped."""

    study: Study
    runs: tuple[Planned, ...]
    tasks: tuple[Task, ...]
    abreast: int

    @property
    def seconds(self) -> float | None:
        """Estimated time of everything that is left; None where the pace of a run is unknown."""
        each = [run.estimate.seconds(run.left) for run in self.runs if run.left]
        known = [seconds for seconds in each if seconds is not None]
        return sum(known) / max(1, self.abreast) if len(known) == len(each) else None

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values."""
        return {
            "study": self.study.name,
            "out": str(self.study.root),
            "seconds": self.seconds,
            "tasks": len(self.tasks),
            "runs": [_row(run) for run in self.runs],
        }

    def to_text(self) -> str:
        """A table for the terminal: a line for each row and grid point, then the sums."""
        head = ("method", "grid point", "seeds", "status", "steps left", "time", "memory", "from")
        lines = [head, *_lines(self.runs)]
        widths = [max(len(line[place]) for line in lines) for place in range(len(head))]
        told = ["  ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)) for line in lines]
        return "\n".join([*(line.rstrip() for line in told), "", *_sums(self)])


def plan_of(
    study: Study,
    executor: Executor | None = None,
    how: How = How(),
    *,
    measured: bool = False,
    records: Iterable[Path] = (),
) -> StudyPlan:
    """Look at the folders of a study. Pace and memory come from its own earlier runs and those below `records`.

    `measured` trains a few steps of every kind of run of which nothing is known.
    """
    executor = executor or Local()
    known = recorded([study.root, *records])
    runs = tuple(_planned(cell, known) for cell in study.cells())
    if measured:
        runs = _with_measurements(runs, study, how)
    tasks = _tasks(runs, executor.width(how))
    return StudyPlan(study, runs, tasks, executor.abreast(len(tasks)))


def _planned(cell: Cell, known: Mapping[str, Estimate]) -> Planned:
    recipe = cell.run.recipe.to_dict()
    estimate = known.get(likeness(recipe), Estimate())
    try:
        status, step, reason = _found(cell.run.path, recipe)
    except RunError as problem:
        status, step, reason = "blocked", 0, str(problem)
    return Planned(cell, status, step, reason, estimate)


def _found(path: Path, recipe: dict[str, Any]) -> tuple[str, int, str | None]:
    """Status, step and reason of a run by its folder."""
    if not (path / "recipe.json").exists():
        return "new", 0, None
    found = differences(read_json(path / "recipe.json"), plain(recipe), "recipe.")
    if found:
        return "blocked", 0, f"{path} holds another run: {found[0]}"
    if not (path / "result.json").exists():
        return "begun", 0, None
    result = read_json(path / "result.json")
    status = str(result.get("status", "running"))
    step = int(result.get("checkpoint") or 0)
    return {"running": "begun"}.get(status, status), step, result.get("reason")


def _with_measurements(runs: tuple[Planned, ...], study: Study, how: How) -> tuple[Planned, ...]:
    data, made = study.data.load(), dict[str, Estimate]()
    told = []
    for run in runs:
        key = likeness(run.cell.run.recipe.to_dict())
        if run.left and run.estimate.steps_per_second is None:
            made[key] = made.get(key) or measure(run.cell.run.recipe, data, how)
        told.append(Planned(run.cell, run.status, run.step, run.reason, made.get(key, run.estimate)))
    return tuple(told)


def _tasks(runs: tuple[Planned, ...], width: int) -> tuple[Task, ...]:
    """Runs that are left, those of one row and form together, at most so many in a task."""
    alike: dict[object, list[Planned]] = {}
    for run in runs:
        if run.status not in ("complete", "blocked"):
            alike.setdefault((run.cell.label, form(run.cell.run.recipe)), []).append(run)
    groups = (members[i : i + width] for members in alike.values() for i in range(0, len(members), width))
    return tuple(Task(tuple(run.cell.run for run in group)) for group in groups)


def _row(run: Planned) -> dict[str, Any]:
    return {
        "method": run.cell.label,
        "values": dict(run.cell.values),
        "seed": run.cell.run.seed,
        "path": str(run.cell.run.path),
        "status": run.status,
        "reason": run.reason,
        "steps": run.cell.run.recipe.steps,
        "steps_left": run.left,
        "seconds": run.estimate.seconds(run.left),
        "memory_mb": run.estimate.memory_mb,
        "source": run.estimate.source,
    }


def _lines(runs: tuple[Planned, ...]) -> list[tuple[str, ...]]:
    points: dict[tuple[str, str], list[Planned]] = {}
    for run in runs:
        points.setdefault((run.cell.label, run.cell.run.path.parent.name), []).append(run)
    return [_line(label, point, members) for (label, point), members in points.items()]


def _line(label: str, point: str, members: list[Planned]) -> tuple[str, ...]:
    counts = Counter(run.status for run in members)
    status = ", ".join(f"{counts[name]} {name}" for name in MEANING if counts[name])
    estimate, left = members[0].estimate, sum(run.left for run in members)
    seconds = estimate.seconds(left)
    return (
        label,
        point,
        str(len(members)),
        status,
        f"{left:,}",
        "unknown" if seconds is None else duration(seconds),
        "unknown" if estimate.memory_mb is None else f"{estimate.memory_mb:,.0f} MB",
        estimate.source,
    )


def _sums(plan: StudyPlan) -> list[str]:
    counts = Counter(run.status for run in plan.runs)
    said = "; ".join(f"{counts[name]} {name} ({meaning})" for name, meaning in MEANING.items() if counts[name])
    time = "unknown" if plan.seconds is None else duration(plan.seconds)
    tasks = f"{len(plan.tasks)} task{'' if len(plan.tasks) == 1 else 's'}, {plan.abreast} at a time"
    reasons = [f"{run.cell.name}: {run.reason}" for run in plan.runs if run.reason and run.status != "complete"]
    return [f"{len(plan.runs)} runs: {said}", f"{tasks}; estimated time {time}", *reasons]
