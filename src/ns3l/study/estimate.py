"""How long a run takes and how much memory it needs: from earlier runs on the same hardware, or measured."""

import json
import statistics
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ns3l.data.dataset import Dataset
from ns3l.distributed import Job
from ns3l.engine import Engine, settings
from ns3l.environment import hardware
from ns3l.errors import RunError
from ns3l.recipe import Recipe
from ns3l.record import index, read_json
from ns3l.run import begin, memory_used
from ns3l.shared import How, Plan, Shared
from ns3l.split import make_split

WARM_UP, TIMED = 2, 6
"""Steps before the clock runs, steps that are timed."""


@dataclass(frozen=True)
class Estimate:
    """Pace and memory of a run, and where the figures come from."""

    steps_per_second: float | None = None
    memory_mb: float | None = None
    source: str = "unknown"

    def seconds(self, steps: int) -> float | None:
        """What so many steps take; None where that is unknown."""
        return steps / self.steps_per_second if self.steps_per_second else None


def likeness(recipe: Mapping[str, Any]) -> str:
    """What decides how fast a run is: equal text for recipes as JSON that differ only in numbers like weights."""
    terms = {name: _without_floats(entry["term"]) for name, entry in recipe["terms"].items()}
    named = ("data", "builder", "network", "preprocessing", "batch", "execution")
    return json.dumps([terms, *(recipe.get(name) for name in named)], sort_keys=True)


def _without_floats(value: Any) -> Any:
    """Kinds, counts and words of a term; thresholds and the like cost nothing."""
    if isinstance(value, Mapping):
        return {name: _without_floats(item) for name, item in value.items() if not isinstance(item, float)}
    return value


def recorded(roots: Iterable[Path]) -> dict[str, Estimate]:
    """What earlier runs on this hardware tell, by likeness."""
    here, found = hardware(), dict[str, list[tuple[float, float]]]()
    for root in roots:
        for summary in index(root) if root.is_dir() else ():
            pace, memory = summary.result.get("steps_per_second"), summary.result.get("memory_mb")
            if summary.result.get("hardware") == here and pace and memory:
                with suppress(RunError, KeyError, TypeError, AttributeError):
                    key = likeness(read_json(summary.path / "recipe.json"))
                    found.setdefault(key, []).append((float(pace), float(memory)))
    return {
        key: Estimate(
            statistics.median(pace for pace, _ in pairs),
            max(memory for _, memory in pairs),
            f"{len(pairs)} earlier run{'s' if len(pairs) > 1 else ''} on this hardware",
        )
        for key, pairs in found.items()
    }


def measure(recipe: Recipe, data: Dataset, how: How = How()) -> Estimate:
    """Train a few steps and take the time; nothing is recorded."""
    with settings(recipe.execution, how.where()):
        plan = Plan(recipe, make_split(data, recipe.split, 0), 0)
        run = begin(plan, Shared(data, how, Job()))
        engine = Engine([run.replica], recipe.execution)
        engine.advance(0, WARM_UP)
        _settle(run.replica.device)
        began = time.perf_counter()
        engine.advance(WARM_UP, TIMED)
        _settle(run.replica.device)
        pace = TIMED / max(1e-9, time.perf_counter() - began)
    return Estimate(pace, memory_used(run.replica.device), f"measured over {TIMED} steps, without evaluation")


def _settle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
