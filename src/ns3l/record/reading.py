"""Run folders as reports read them: tolerant, without a lock, and straight from disk each time."""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ns3l.errors import RunError
from ns3l.record.files import LARGEST_JSON, parse_json, read_json, size_of
from ns3l.record.folder import LARGEST_SPLIT
from ns3l.record.metrics import lines

DEEPEST = 16
EVALUATION = b'\n"evaluation": '


@dataclass(frozen=True)
class RunRecord:
    """Everything that a run folder says; `problems` lists what could not be read."""

    path: Path
    recipe: dict[str, Any]
    split: dict[str, Any]
    environment: dict[str, Any]
    metrics: list[dict[str, Any]]
    result: dict[str, Any]
    problems: list[str] = field(default_factory=list)

    @property
    def status(self) -> str:
        """`complete`, `running`, `failed`, or `damaged` where result.json cannot be read."""
        return str(self.result.get("status", "damaged"))


@dataclass(frozen=True)
class RunSummary:
    """A run folder and its result.json, `evaluation` left out; `problem` says why that could not be read."""

    path: Path
    result: dict[str, Any]
    problem: str | None = None

    @property
    def status(self) -> str:
        """`complete`, `running`, `failed`, or `damaged` where result.json cannot be read."""
        return str(self.result.get("status", "damaged"))


def read_run(path: Path | str) -> RunRecord:
    """Read a run folder as far as it can be read; RunError only where there is none."""
    path = Path(path)
    if not _is_run(path):
        raise RunError(f"{path} is not a run folder: it has neither recipe.json nor result.json.")
    problems: list[str] = []
    return RunRecord(
        path=path,
        recipe=_read(path / "recipe.json", problems.append),
        split=_read(path / "split.json", problems.append, LARGEST_SPLIT),
        environment=_read(path / "environment.json", problems.append),
        metrics=[found for _, found in lines(path / "metrics.jsonl", problems.append)],
        result=_read(path / "result.json", problems.append),
        problems=problems,
    )


def _read(path: Path, tell: Callable[[str], None], limit: int = LARGEST_JSON) -> dict[str, Any]:
    try:
        return read_json(path, limit)
    except RunError as problem:
        tell(str(problem))
        return {}


def _is_run(path: Path) -> bool:
    return (path / "recipe.json").is_file() or (path / "result.json").is_file()


def find_runs(root: Path | str) -> list[Path]:
    """Run folders at or below `root`, in the order of their names (seed-2 before seed-10); links are not followed."""
    root = Path(root)
    if not root.is_dir():
        raise RunError(f"{root} is not a folder; give a run folder, or a folder that holds runs.")
    return [Path(found) for found in _walk(str(root), DEEPEST)]


def _walk(folder: str, depth: int) -> Iterator[str]:
    entries: list[os.DirEntry[str]] = []
    with suppress(OSError), os.scandir(folder) as found:
        entries = list(found)
    if any(entry.name in ("recipe.json", "result.json") for entry in entries):
        yield folder
    elif depth:
        for entry in sorted(entries, key=lambda entry: _order(entry.name)):
            if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False):
                yield from _walk(entry.path, depth - 1)


def _order(name: str) -> tuple[str, int, str]:
    """Sorts names by text, then by the number at their end."""
    stem = name.rstrip("0123456789")
    digits = name[len(stem) :]
    return stem, int(digits[:18] or -1), name


def index(root: Path | str) -> list[RunSummary]:
    """All runs below `root` with their results, without the long `evaluation`; nothing else is read, nothing cached."""
    return [_summary(path) for path in find_runs(root)]


def _without_evaluation(content: bytes) -> bytes:
    """Null in place of the evaluation, where it is one line as `write_json` lays it out; else all as it is."""
    start = content.find(EVALUATION)
    end = content.find(b"\n", start + 1)
    if start < 0 or end < 0:
        return content
    comma = b"," if content[end - 1 : end] == b"," else b""
    return content[:start] + EVALUATION + b"null" + comma + content[end:]


def _summary(path: Path) -> RunSummary:
    with suppress(OSError, ValueError):
        size_of(path / "result.json")
        with (path / "result.json").open("rb") as file:
            if isinstance(found := parse_json(_without_evaluation(file.read(LARGEST_JSON))), dict):
                return RunSummary(path, found)
    try:
        return RunSummary(path, read_json(path / "result.json"))
    except RunError as problem:
        return RunSummary(path, {}, str(problem))
