"""Runs of other processes as they go on, read from their folders: one line for each evaluation."""

import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from ns3l.executors.task import Assignment
from ns3l.progress import Mode, Progress


class Follower:
    """Says what is new in the metrics of runs; it needs nothing but their folders."""

    def __init__(self, mode: Mode) -> None:
        self._quiet = mode == "quiet"
        self._read: dict[Path, int] = {}
        self._shown: dict[Path, Progress] = {}

    def look(self, runs: Iterable[Assignment]) -> None:
        """Show every evaluation of these runs since the last look; the first look shows what comes after it."""
        for run in () if self._quiet else runs:
            for line in self._new_lines(run.path):
                with suppress(ValueError, KeyError, TypeError):
                    metrics = json.loads(line)
                    self._progress(run).update(0, int(metrics["step"]), metrics)

    def _new_lines(self, folder: Path) -> list[bytes]:
        path = folder / "metrics.jsonl"
        try:
            size = path.stat().st_size
            first = self._read.get(folder, size)
            with path.open("rb") as file:
                file.seek(min(first, size))
                content = file.read(size - min(first, size))
        except OSError:
            self._read.setdefault(folder, 0)
            return []
        whole = content.rfind(b"\n") + 1
        self._read[folder] = min(first, size) + whole
        return content[:whole].splitlines()

    def _progress(self, run: Assignment) -> Progress:
        name = f"{run.path.parent.parent.name} {run.path.parent.name} seed {run.seed}".replace(" default ", " ")
        return self._shown.setdefault(run.path, Progress("plain", [name], run.recipe.steps))
