"""checkpoint/: the newest two states of a run, each one self-checking file, so one is always whole."""

import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch import Tensor

from ns3l.errors import RunError
from ns3l.record.files import remove_temporaries, sync_folder, writing
from ns3l.record.tensors import read_tensors, write_tensors

KEPT = 2
RESTART = (
    "Restore one from a copy, or remove the folder 'checkpoint' and result.json to start this run again from step 0."
)
NAME = re.compile(r"step-(\d{8,18})\.safetensors")


class Checkpoints:
    """The checkpoints of one run. `identity` tells runs apart: another run's checkpoint is refused."""

    def __init__(self, folder: Path, identity: str, tell: Callable[[str], None]) -> None:
        self.folder = folder
        self._identity = identity
        self._tell = tell
        if folder.is_dir():
            remove_temporaries(folder)

    def steps(self) -> list[int]:
        """Steps of the checkpoints on disk, the newest first."""
        if not self.folder.is_dir():
            return []
        found = (NAME.fullmatch(path.name) for path in self.folder.iterdir())
        return sorted((int(match[1]) for match in found if match), reverse=True)

    def path(self, step: int) -> Path:
        """Where the checkpoint of a step is kept."""
        return self.folder / f"step-{step:08d}.safetensors"

    def save(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        """Write one checkpoint durably, then let go of all but the newest two."""
        step = meta.get("step")
        if not isinstance(step, int) or isinstance(step, bool) or step < 0:
            raise ValueError(f"meta must hold the step as a whole number from 0, not {step!r}")
        with writing(self.folder):
            self.folder.mkdir(exist_ok=True)
        write_tensors(self.path(step), tensors, {"identity": self._identity, "meta": meta})
        for old in self.steps()[KEPT:]:
            with suppress(OSError):
                self.path(old).unlink()

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The newest sound checkpoint; None where none was ever saved; RunError where every one is damaged."""
        steps = self.steps()
        damaged: list[int] = []
        for step in steps:
            try:
                found = self._read(step)
            except RunError as problem:
                self._tell(str(problem))
                damaged.append(step)
                continue
            self._set_aside(damaged, step)
            return found
        if steps:
            raise RunError(
                f"Every checkpoint in {self.folder} is damaged (steps {', '.join(map(str, sorted(steps)))}). {RESTART}"
            )
        return None

    def _read(self, step: int) -> tuple[dict[str, Tensor], dict[str, Any]]:
        path = self.path(step)
        tensors, note = read_tensors(path)
        if not isinstance(note, dict) or note.get("identity") != self._identity:
            raise RunError(f"{path} belongs to another run (other recipe, split or seed).")
        meta = note.get("meta")
        if not isinstance(meta, dict) or meta.get("step") != step:
            raise RunError(f"{path} is damaged: it does not hold step {step}.")
        return tensors, meta

    def _set_aside(self, damaged: list[int], step: int) -> None:
        """Rename damaged checkpoints, so that they are never counted among the newest two again."""
        for other in damaged:
            path = self.path(other)
            with suppress(OSError):
                path.replace(path.with_suffix(".damaged"))
            self._tell(f"The checkpoint of step {other} was not used; the run continues from step {step}.")

    def remove(self) -> None:
        """Remove every checkpoint of a run that is complete."""
        if self.folder.is_dir():
            shutil.rmtree(self.folder, ignore_errors=True)
            with suppress(OSError):
                sync_folder(self.folder.parent)
