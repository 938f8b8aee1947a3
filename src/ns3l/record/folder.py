"""The folder of one run: created or continued, written by one process, atomic in every file."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from torch import Tensor

from ns3l.errors import RunError
from ns3l.record import metrics as metrics_file
from ns3l.record.checkpoint import RESTART, Checkpoints
from ns3l.record.files import (
    differences,
    plain,
    read_json,
    refuse_file,
    remove_temporaries,
    to_json,
    write_json,
    writing,
)
from ns3l.record.lock import FolderLock
from ns3l.record.tensors import write_tensors

LARGEST_SPLIT = 2**30  # a split may list tens of millions of rows
PARTS = ("split.json", "result.json", "metrics.jsonl", "model.safetensors", "checkpoint")


class RunFolder:
    """One run's folder, open for writing. Make it with `RunFolder.open`; close it, or use it in `with`.

    `status` is what was found: "new", "running" (begun and not ended), "failed" or "complete". Messages about what had
    to be mended are kept in `notices` and handed to `tell` as they come.
    """

    def __init__(self, path: Path, tell: Callable[[str], None] | None = None) -> None:
        self.path = path
        self.notices: list[str] = []
        self.status = "new"
        self.result: dict[str, Any] = {}
        self._listener = tell
        self._resumed = False
        refuse_file(path)
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
        self._lock = FolderLock(path)

    @classmethod
    def open(
        cls,
        path: Path | str,
        recipe: dict[str, Any],
        split: dict[str, Any],
        seed: int,
        environment: dict[str, Any],
        tell: Callable[[str], None] | None = None,
    ) -> Self:
        """Create a run folder, or continue one; a folder of another recipe, split or seed is refused untouched."""
        folder = cls(Path(path), tell)
        try:
            folder._open(plain(recipe, "recipe"), plain(split, "split"), int(seed), plain(environment, lossy=True))
        except BaseException:
            folder.close()
            raise
        return folder

    def _open(self, recipe: dict[str, Any], split: dict[str, Any], seed: int, environment: dict[str, Any]) -> None:
        self._refuse_other_run(recipe, split, seed)
        remove_temporaries(self.path)
        self._keep("recipe.json", recipe)
        self._keep("split.json", split)
        self._keep_environment(environment)
        if not self.result:
            first = {"status": "running", "step": 0, "steps": recipe.get("steps"), "seed": seed}
            self._write_result(first | {name: recipe.get(name) for name in ("method", "data")})
        identity = hashlib.sha256(json.dumps([recipe, split, seed], sort_keys=True).encode()).hexdigest()
        self.checkpoints = Checkpoints(self.path / "checkpoint", identity, self.tell)
        if self.status == "complete":
            self.checkpoints.remove()

    def _refuse_other_run(self, recipe: dict[str, Any], split: dict[str, Any], seed: int) -> None:
        if not (self.path / "recipe.json").exists():
            held = [name for name in PARTS if (self.path / name).exists()]
            if held:
                raise RunError(
                    f"{self.path} holds {', '.join(held)} but no recipe.json, so which run it is cannot be told. "
                    "Restore recipe.json, or use another folder."
                )
            return
        self.status = "running"
        found = differences(read_json(self.path / "recipe.json"), recipe, "recipe.")
        if (self.path / "split.json").exists():
            found += differences(read_json(self.path / "split.json", LARGEST_SPLIT), split, "split.")
        if (self.path / "result.json").exists():
            self.result = read_json(self.path / "result.json")
            found += differences(self.result.get("seed"), seed, "seed")
            self.status = str(self.result.get("status", "running"))
        if found:
            more = f"\n  and {len(found) - 10} more" if len(found) > 10 else ""
            raise RunError(
                f"{self.path} holds another run:\n  "
                + "\n  ".join(found[:10])
                + f"{more}\nGive the same settings to continue it, or another folder. Nothing was changed."
            )

    def _keep(self, name: str, value: dict[str, Any]) -> None:
        if not (self.path / name).exists():
            write_json(self.path / name, value)

    def _keep_environment(self, environment: dict[str, Any]) -> None:
        """Keep the first environment; where a run is continued elsewhere, add what differs to its `continued`."""
        path = self.path / "environment.json"
        if self.status in ("new", "complete") or not path.exists():
            self._keep("environment.json", environment)
            return
        try:
            stored = read_json(path)
        except RunError as problem:
            self.tell(f"{problem} The present environment is stored in its place.")
            write_json(path, environment)
            return
        earlier = stored.pop("continued", None)
        entries = earlier if isinstance(earlier, list) else []
        changed = differences(_versions(stored), _versions(environment))
        if changed and not (entries and _versions(entries[-1]) == _versions(environment)):
            self.tell("Continued in another environment; last bits may differ: " + "; ".join(changed))
            write_json(path, stored | {"continued": [*entries, environment]})

    def tell(self, message: str) -> None:
        """Keep a message in `notices` and hand it on."""
        self.notices.append(message)
        if self._listener is not None:
            self._listener(message)

    def append(self, metrics: dict[str, Any]) -> None:
        """Append one line of metrics (with its whole-number `step`); NaN and infinity become null."""
        self._begin()
        step = metrics.get("step")
        if not isinstance(step, int) or isinstance(step, bool):
            raise ValueError(f"metrics must hold the step as a whole number, not {step!r}")
        metrics_file.append_line(self.path / "metrics.jsonl", metrics)

    def save_checkpoint(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        """Write a checkpoint (`meta["step"]` names it) once the metrics up to it are durable; keeps the newest two."""
        self._begin()
        metrics_file.sync(self.path / "metrics.jsonl")
        self.checkpoints.save(tensors, meta)
        self._write_result(self.result | {"step": meta["step"], "checkpoint": meta["step"]})

    def load_checkpoint(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The newest sound checkpoint, with metrics.jsonl cut back to its step; None: begin at step 0."""
        self._begin(resuming=True)
        found = self.checkpoints.load()
        step = None if found is None else found[1]["step"]
        if found is None and "checkpoint" in self.result:
            raise RunError(
                f"{self.path} had a checkpoint at step {self.result['checkpoint']}, but none is left. {RESTART}"
            )
        metrics_file.cut_back(self.path / "metrics.jsonl", step, self.tell)
        self._resumed = True
        return found

    def _begin(self, resuming: bool = False) -> None:
        """Refuse to write where that could harm; take up a failed run and keep its reason."""
        if self._lock.released:
            raise RunError(f"{self.path} is closed; open it again to write.")
        status = self.result.get("status")
        if status == "complete":
            raise RunError(f"{self.path} is complete; it is not written again. Use another folder for another run.")
        if not (resuming or self._resumed or self.status == "new"):
            raise RunError(f"{self.path} was begun before; load_checkpoint must succeed before anything is written.")
        if status != "running":
            earlier = [*self.result.get("earlier_failures", []), self.result.get("reason")]
            self._write_result(self.result | {"status": "running", "reason": None, "earlier_failures": earlier})

    def save_model(self, state: dict[str, Tensor], description: dict[str, Any]) -> None:
        """Write model.safetensors, then model.json, which says how to rebuild the network."""
        self._begin()
        write_tensors(self.path / "model.safetensors", state, description)
        write_json(self.path / "model.json", description)

    def finish(self, result: dict[str, Any]) -> None:
        """Write the final result; when it is durable (and the model before it), the checkpoints are removed."""
        self._begin()
        if not (self.path / "model.json").exists() or not (self.path / "model.safetensors").exists():
            raise RunError(f"{self.path} has no model yet; call save_model before finish.")
        metrics_file.sync(self.path / "metrics.jsonl")
        begun = {name: value for name, value in self.result.items() if name != "checkpoint"}
        self._write_result(begun | {"reason": None} | result | {"status": "complete"})
        self.checkpoints.remove()

    def fail(self, reason: str, result: dict[str, Any] | None = None) -> None:
        """Record why the run failed and keep its checkpoints. A disk that refuses even this is told of, not raised."""
        if self.result.get("status") == "complete":
            raise RunError(f"{self.path} is complete; it cannot fail any more.")
        try:
            self._write_result(self.result | (result or {}) | {"status": "failed", "reason": reason})
        except RunError as problem:
            self.tell(str(problem))

    def _write_result(self, result: dict[str, Any]) -> None:
        write_json(self.path / "result.json", result, lossy=True)
        self.result = plain(result, lossy=True)

    def close(self) -> None:
        """Let others write this folder."""
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _versions(environment: Any) -> dict[str, Any]:
    """What of an environment decides about numbers."""
    if not isinstance(environment, dict):
        return {}
    return json.loads(to_json({n: v for n, v in environment.items() if n not in ("command", "continued")}, lossy=True))
