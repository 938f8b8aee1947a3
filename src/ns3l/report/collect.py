"""Read runs, from folders or saved results, complete or not, and say what is damaged instead of giving up."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ns3l.errors import RunError
from ns3l.record import find_runs, read_json, read_run
from ns3l.report.run import Run, is_step, plain
from ns3l.report.saved import load

_WRITTEN_LATE = ("result.json", "split.json", "environment.json")


def read(path: Path) -> Run:
    """One run folder; files that are missing are empty, files that are damaged become `problems`."""
    found = read_run(path)
    told = [problem.replace(f"{path}/", "") for problem in found.problems]
    problems = [problem for problem in told if not _is_missing(problem, path)]
    by_step = {line["step"]: line for line in found.metrics if is_step(line["step"])}
    return Run(
        path=path,
        result=found.result,
        recipe=found.recipe,
        split=found.split,
        environment=found.environment,
        model=_model(path),
        metrics=tuple(by_step[step] for step in sorted(by_step)),
        problems=tuple(map(plain, problems)),
    )


def _is_missing(problem: str, path: Path) -> bool:
    """Whether a problem only says that a file is not there yet."""
    return any(name in problem and not (path / name).exists() for name in _WRITTEN_LATE)


def _model(path: Path) -> Mapping[str, Any]:
    """The model's description, where there is one."""
    try:
        return read_json(path / "model.json")
    except RunError:
        return {}


def find(roots: Iterable[Path]) -> tuple[Path, ...]:
    """Every run folder at or below some folders, each once."""
    return tuple(dict.fromkeys(folder.resolve() for root in roots for folder in find_runs(root)))


@dataclass(frozen=True)
class Found:
    """Runs in reading order, and the titles of the saved results among their sources."""

    runs: tuple[Run, ...]
    titles: tuple[str, ...] = ()


def collect(paths: Iterable[str | Path]) -> Found:
    """All runs at or below some folders and in files of saved results; RunError where there is none."""
    roots = [Path(path) for path in paths]
    saved = [load(root) for root in roots if root.is_file()]
    runs = tuple(read(folder) for folder in find(root for root in roots if not root.is_file()))
    runs += tuple(run for one in saved for run in one.runs)
    if not runs:
        where = ", ".join(map(plain, roots)) or "no folder"
        raise RunError(
            f"expected run folders (with recipe.json or result.json) under {where}, found none; "
            "start one with `ns3l train` or name another folder"
        )
    return Found(runs, tuple(one.title for one in saved if one.title))
