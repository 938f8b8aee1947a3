"""A study carried out: begun, continued or only read; safe to start twice; failures kept and told at the end."""

import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from ns3l.data.dataset import Dataset
from ns3l.environment import environment
from ns3l.errors import InUseError, RunError, UserError
from ns3l.executors.local import Local
from ns3l.executors.task import Executor, Outcome
from ns3l.record import differences, read_json, write_json
from ns3l.record.files import plain, remove_temporaries, writing
from ns3l.record.lock import FolderLock, holder
from ns3l.shared import How
from ns3l.study.description import Cell, Study, safe
from ns3l.study.plan import Planned, StudyPlan, plan_of

FILE = "study.json"


@dataclass(frozen=True)
class StudyResult:
    """How every run of a study ended, the ones that were complete before among them."""

    study: Study
    outcomes: tuple[tuple[Cell, Outcome], ...]

    @property
    def failed(self) -> tuple[tuple[Cell, Outcome], ...]:
        """The runs that did not reach their end, with the reasons."""
        return tuple((cell, outcome) for cell, outcome in self.outcomes if outcome.status != "complete")

    @property
    def succeeded(self) -> bool:
        """Whether every run is complete."""
        return not self.failed

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values."""
        return {
            "study": self.study.name,
            "out": str(self.study.root),
            "complete": len(self.outcomes) - len(self.failed),
            "failed": [{"run": str(o.path), "name": cell.name, "reason": o.reason} for cell, o in self.failed],
        }


def execute(
    study: Study, executor: Executor | None = None, how: How = How(), tell: Callable[[str], None] = print
) -> StudyResult:
    """Carry out what is left of a study. A run that fails does not stop the others.

    A signal saves all runs and raises `Stopped`; the same call later continues. A second start while the first is
    under way is refused with an `InUseError`.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UserError("a study is started by one process; torchrun is for `ns3l train`, a single run on several GPUs")
    executor = executor or Local()
    with writing(study.root):
        study.root.mkdir(parents=True, exist_ok=True)
    lock = _lock(study)
    try:
        remove_temporaries(study.root)
        data = study.data.load()
        _describe(study, data, executor)
        plan = plan_of(study, executor, how)
        if data.x_test is None and not all(row.split.validation for row in study.rows.values()):
            tell(f"{data.name} has no test part: set split.validation, or no errors will be known")
        tell(f"{study.name}: {sum(run.status == 'complete' for run in plan.runs)} of {len(plan.runs)} runs complete")
        ended = _carry_out(plan, executor, how, tell)
    finally:
        lock.release()
    result = StudyResult(study, tuple((run.cell, _outcome(run, ended)) for run in plan.runs))
    _report_failures(result, tell)
    return result


def _lock(study: Study) -> FolderLock:
    try:
        return FolderLock(study.root)
    except InUseError as problem:
        raise InUseError(
            f"the study in {study.root} is being carried out by {holder(study.root)}. Wait for it to end or stop it; "
            "then the same command continues it."
        ) from problem


def _carry_out(plan: StudyPlan, executor: Executor, how: How, tell: Callable[[str], None]) -> dict[Any, Outcome]:
    names = {run.cell.run.path: run.cell.name for run in plan.runs}
    ended: dict[Any, Outcome] = {}
    left = sum(len(task.runs) for task in plan.tasks)
    if not left:
        return ended
    with closing(executor.execute(plan.tasks, plan.study.data, how)) as outcomes:
        for outcome in outcomes:
            ended[outcome.path] = outcome
            tell(f"[{len(ended)}/{left}] {names[outcome.path]}: {_worded(outcome)}")
    return ended


def _worded(outcome: Outcome) -> str:
    """Complete with its error, or failed with its reason, in a few words."""
    if outcome.status != "complete":
        return f"{outcome.status}: {outcome.reason}"
    result = read_json(outcome.path / "result.json")
    errors = {part: (result.get(f"{part}_error") or {}).get(result.get("rule")) for part in ("validation", "test")}
    said = [f"{part} error {error:.2f} %" for part, error in errors.items() if error is not None]
    return ", ".join(["complete", *said])


def _outcome(run: Planned, ended: dict[Any, Outcome]) -> Outcome:
    path = run.cell.run.path
    if path in ended:
        return ended[path]
    status = "failed" if run.status == "blocked" else run.status
    return Outcome(path, status, run.reason if status == "failed" else None)


def _report_failures(result: StudyResult, tell: Callable[[str], None]) -> None:
    if result.failed:
        tell(f"{len(result.failed)} of {len(result.outcomes)} runs failed; the same command tries them again:")
    for cell, outcome in result.failed:
        tell(f"  {cell.name}: {outcome.reason}")


def _describe(study: Study, data: Dataset, executor: Executor) -> None:
    """Write study.json: what the study is, with which version; earlier descriptions that differ are kept in it."""
    path, told = study.root / FILE, environment()
    described = study.to_dict()
    described["data"] = described["data"] | {"hash": data.hash}
    described |= {"executor": repr(executor), **{name: told[name] for name in ("ns3l", "git", "command", "packages")}}
    earlier: list[Any] = []
    if path.exists():
        stored = read_json(path)
        earlier = stored.pop("earlier", [])
        _refuse_other_study(study, stored, data)
        if differences(_what(stored), _what(plain(described))):
            earlier = [*earlier, stored]
    write_json(path, {"format": 1, **described, "earlier": earlier}, lossy=True)


def _what(described: dict[str, Any]) -> dict[str, Any]:
    return {name: described.get(name) for name in ("methods", "grid", "seeds")}


def _refuse_other_study(study: Study, stored: dict[str, Any], data: Dataset) -> None:
    """More methods, seeds or grid values are welcome; other settings under the same name, or other data, are not."""
    found = differences((stored.get("data") or {}).get("hash"), data.hash, "data.hash")
    for label, recipe in (stored.get("methods") or {}).items():
        if label in study.rows and (study.root / safe(label)).exists():
            found += differences(recipe, plain(study.rows[label].to_dict()), f"{label}: ")
    if found:
        raise RunError(
            f"{study.root} holds another study:\n  "
            + "\n  ".join(found[:10])
            + "\nGive the same settings to continue it, or another folder. Nothing was changed."
        )
