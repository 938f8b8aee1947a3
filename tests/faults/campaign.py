"""What the rows of the fault campaign share: counting, a tiny data set and recipe, and runs that can be compared."""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ns3l.data.dataset import Dataset
from ns3l.recipe import Network, Recipe
from ns3l.recipes.own import own
from ns3l.shared import How

LONG = os.environ.get("NS3L_FAULTS") == "long"
QUIET = How(device="cpu", progress="quiet", checkpoint_steps=5)
TIMED = ("seconds", "steps_per_second", "memory_mb", "hardware")


def many(quick: int, long: int) -> int:
    """How often something is tried: in the short form and in the long one."""
    return long if LONG else quick


@dataclass
class Row:
    """One line of the campaign's table: how often a fault was tried, and how often it was survived."""

    part: str
    name: str
    tried: int = 0
    lost: list[str] = field(default_factory=list)
    note: str = ""
    seconds: float = 0.0

    @contextmanager
    def trying(self, what: str = "") -> Iterator[None]:
        """One try: survived where nothing is raised inside."""
        self.tried += 1
        try:
            yield
        except Exception as problem:
            self.lost.append(f"{what}: {type(problem).__name__}: {problem}"[:500])

    def line(self) -> dict[str, Any]:
        """The row as JSON."""
        told = {"part": self.part, "row": self.name, "tried": self.tried, "survived": self.tried - len(self.lost)}
        return told | {"lost": len(self.lost), "seconds": round(self.seconds, 1), "note": self.note}


@contextmanager
def row(part: str, name: str) -> Iterator[Row]:
    """A row; its line is printed and, where NS3L_FAULTS_TABLE names a file, appended there. Fails where it lost."""
    made, began = Row(part, name), time.monotonic()
    try:
        yield made
    except BaseException as problem:
        made.tried += 1
        made.lost.append(f"{type(problem).__name__}: {problem}"[:500])
        raise
    finally:
        made.seconds = time.monotonic() - began
        told = made.line()
        print(f"\n{part}: {name}: tried {told['tried']}, survived {told['survived']}, lost {told['lost']}, "
              f"{told['seconds']} s {made.note}", flush=True)  # fmt: skip
        if table := os.environ.get("NS3L_FAULTS_TABLE"):
            with Path(table).open("a", encoding="utf-8") as file:
                file.write(json.dumps(told) + "\n")
    assert made.tried and not made.lost, "\n".join(made.lost[:10])


def blobs(rows: int = 120, classes: int = 3, features: int = 4, seed: int = 0, name: str = "blobs") -> Dataset:
    """Gaussian clouds around random centers, with a test part."""
    draw = np.random.default_rng(seed)
    centers = 3 * draw.normal(size=(classes, features))
    y, y_test = np.arange(rows) % classes, np.arange(60) % classes
    x, x_test = (centers[of] + draw.normal(size=(len(of), features)) for of in (y, y_test))
    names = tuple(f"c{number}" for number in range(classes))
    return Dataset(name, x.astype(np.float32), y, names, x_test.astype(np.float32), y_test)


def tiny(method: str = "ns3l", data: Dataset | None = None, labels: int | None = 12, steps: int = 30) -> Recipe:
    """A recipe that trains in a blink."""
    data = data or blobs()
    made = own(method, data.name, len(data.classes), data.x.shape[1:], labels, 0.2, steps)
    network = Network("mlp", {"hidden": [8]}) if data.x.ndim == 2 else made.network
    batch = replace(made.batch, labeled=8, unlabeled=min(8, made.batch.unlabeled))
    return replace(made, network=network, batch=batch, evaluation=replace(made.evaluation, every=10))


def _untimed(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _untimed(item) for name, item in value.items() if name not in TIMED}
    return value


def end_of(folder: Path) -> dict[str, Any]:
    """What two runs must share to the bit: model, metrics and result without what the clock says."""
    result = json.loads((folder / "result.json").read_text())
    assert result["status"] == "complete", result
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return {
        "model": (folder / "model.safetensors").read_bytes(),
        "metrics": [_untimed(json.loads(line)) for line in lines],
        "result": _untimed({name: value for name, value in result.items() if name != "earlier_failures"}),
        "split": (folder / "split.json").read_bytes(),
        "recipe": (folder / "recipe.json").read_bytes(),
    }


def same_end(folder: Path, whole: Path) -> None:
    """Fail where two runs did not end alike, naming the part."""
    mine, other = end_of(folder), end_of(whole)
    for part, value in other.items():
        assert mine[part] == value, f"{folder}: {part} is not that of the uninterrupted run"


def refused(action: Callable[[], object], kinds: tuple[type[BaseException], ...], words: str = "") -> None:
    """Fail unless an action is refused by one of our errors, with some words in its message."""
    try:
        action()
    except kinds as problem:
        assert words.lower() in str(problem).lower(), f"expected {words!r} in {problem}"
    else:
        raise AssertionError("it was not refused")
