"""A run as reports see it, as far as it is known: complete or not, from its folder or from saved results."""

import json
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ns3l.environment import hardware
from ns3l.statistics import RULES, select

_MOST_PROBLEMS = 3
_LONGEST_NAME = 200
_LARGEST_NUMBER = 1e100
_MOST_STEPS = 2**53
FIGURES = ("steps_per_second", "seconds", "memory_mb")
"""What a run tells of its speed."""


def plain(text: object, longest: int = _LONGEST_NAME) -> str:
    """Text that is safe to show anywhere: one line, no control or direction characters, bounded."""
    shown = "".join(_shown(character) for character in str(text)).strip()
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


def _shown(character: str) -> str:
    if character in "\n\r\t":
        return " "
    return (
        "\N{REPLACEMENT CHARACTER}" if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") else character
    )


@dataclass(frozen=True, eq=False)
class Run:
    """What is known of a run, as far as it can be read; `problems` lists in words what cannot."""

    path: Path
    result: Mapping[str, Any] = field(default_factory=dict)
    recipe: Mapping[str, Any] = field(default_factory=dict)
    split: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)
    metrics: tuple[Mapping[str, Any], ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def method(self) -> str:
        """The method's name."""
        return plain(self.result.get("method") or self.recipe.get("method") or "unknown")

    @property
    def data(self) -> str:
        """The data set's name."""
        return plain(self.result.get("data") or self.recipe.get("data") or "unknown")

    @property
    def labels(self) -> int | float | None:
        """How many labels were kept, as a count or a share."""
        requested = _mapping(self.recipe.get("split")).get("labels")
        return number(self.result.get("labels")) if "labels" in self.result else number(requested)

    @property
    def seed(self) -> int | None:
        """The seed of run and split."""
        for source in (self.result, self.split):
            if isinstance(source.get("seed"), int):
                return int(source["seed"])
        name = self.path.name.removeprefix("seed-")
        return int(name) if name.isdigit() else None

    @property
    def status(self) -> str:
        """complete, running, failed or damaged; a folder without a result counts as running."""
        unknown = "damaged" if (self.path / "result.json").exists() else "running"
        return plain(self.result.get("status", unknown), 20)

    @property
    def reason(self) -> str:
        """Why the run failed, and what of its folder could not be read."""
        own = [plain(self.result["reason"])] if self.result.get("reason") else []
        more = len(self.problems) - _MOST_PROBLEMS
        rest = [f"and {more} more problems"] if more > 0 else []
        return "; ".join([*own, *self.problems[:_MOST_PROBLEMS], *rest])

    @property
    def protocol(self) -> str:
        """The experiment protocol that the recipe names."""
        return plain(self.recipe.get("protocol") or "")

    @property
    def schedule(self) -> float:
        """The scale of all step counts against the full schedule."""
        value = number(self.result.get("schedule", self.recipe.get("schedule")))
        return 1.0 if value is None else float(value)

    @property
    def precision(self) -> str:
        """The precision of a step."""
        return plain(_mapping(self.recipe.get("execution")).get("precision") or "float32")

    @property
    def deterministic(self) -> bool:
        """Whether the recipe asks for the same bits every time."""
        return _mapping(self.recipe.get("execution")).get("deterministic") is not False

    @property
    def rule(self) -> str:
        """The selection rule of the run's own recipe."""
        return plain(self.result.get("rule") or _mapping(self.recipe.get("evaluation")).get("rule") or "last")

    @property
    def step(self) -> int | None:
        """The last step that the folder tells of."""
        steps = [number(self.result.get("step")), *(number(line.get("step")) for line in self.metrics[-1:])]
        known = [int(step) for step in steps if step is not None]
        return max(known, default=None)

    @property
    def steps(self) -> int | None:
        """How many steps the run is to have."""
        value = number(self.result.get("steps", self.recipe.get("steps")))
        return None if value is None else int(value)

    @property
    def split_hash(self) -> str:
        """What identifies the split: its stored hash, or the data hash and the indices it came with."""
        stored = self.split.get("hash")
        return str(stored) if stored else json.dumps(self.split.get("labeled"), default=str)

    @property
    def classes(self) -> tuple[str, ...]:
        """The class names, where the folder has them."""
        for source in (self.model, self.result, self.split):
            if isinstance(source.get("classes"), list):
                return tuple(plain(name, 40) for name in source["classes"])
        return ()

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape of a stored row, where the folder tells it."""
        sides = self.model.get("shape")
        known = isinstance(sides, list) and all(isinstance(side, int) for side in sides)
        return tuple(sides) if known and sides is not None else None

    @property
    def tested(self) -> bool:
        """Whether the run was evaluated on a test part."""
        return any(self.error(rule) is not None for rule in RULES)

    @property
    def interval(self) -> int | None:
        """Steps between two evaluations."""
        planned = _mapping(self.recipe.get("evaluation")).get("every")
        value = number(self.result.get("evaluation_interval", planned))
        return None if value is None else int(value)

    @property
    def hardware(self) -> str:
        """The hardware that the numbers come from."""
        found = self.environment
        named = isinstance(found.get("cpu"), str) and isinstance(found.get("gpus"), list)
        return plain(self.result.get("hardware") or (hardware(found) if named else ""))

    @cached_property
    def fields(self) -> Mapping[str, Any]:
        """The recipe as flat paths: `ns3l.negatives.threshold`, `optimizer.lr` …"""
        return flatten(self.recipe)

    def error(self, rule: str, part: str = "test") -> float | None:
        """The error in per cent that a rule selects; from the metrics where there is no result yet."""
        if rule not in RULES:
            return None
        stored = self.result.get(f"{part}_error")
        if isinstance(stored, Mapping):
            return number(stored.get(rule))
        chosen, validation = self._history(part), self._history("validation")
        return select(chosen, validation if len(validation) == len(chosen) else None, rule)

    def _history(self, part: str) -> list[float]:
        values = (number(line.get(f"{part}_error")) for line in self.metrics)
        return [value for value in values if value is not None]

    def told(self, key: str) -> float | None:
        """A figure of the result, or of the last line of the metrics."""
        last = self.metrics[-1] if self.metrics else {}
        stored = number(self.result.get(key))
        return number(last.get(key)) if stored is None else stored

    def evaluation(self, key: str, part: str = "test") -> Any:
        """An entry of the final evaluation."""
        return _mapping(_mapping(self.result.get("evaluation")).get(part)).get(key)


def number(value: object) -> float | None:
    """A number that a run may have recorded and that can be squared, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) <= _LARGEST_NUMBER else None


def is_step(value: object) -> bool:
    """Whether a value counts steps, in a size that can be drawn."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST_STEPS


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def flatten(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe as flat paths in the words of `--set`; where its numbers come from is left out."""
    flat: dict[str, Any] = {}
    _flatten({key: value for key, value in recipe.items() if key != "sources"}, (), flat)
    return flat


def _flatten(value: Any, path: tuple[str, ...], flat: dict[str, Any]) -> None:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            _flatten(inner, (*path, str(key)), flat)
    else:
        flat[spoken_path(path)] = tuple(value) if isinstance(value, list) and not _nested(value) else _frozen(value)


def _nested(value: list[Any]) -> bool:
    return any(isinstance(item, list | Mapping) for item in value)


def _frozen(value: Any) -> Any:
    return json.dumps(value, sort_keys=True) if isinstance(value, list) else value


def spoken_path(path: tuple[str, ...]) -> str:
    """`terms.ns3l.term.negatives.threshold` is said `ns3l.negatives.threshold`."""
    if path[0] != "terms" or len(path) < 2:
        return ".".join(path)
    return ".".join(path[1:2] + (path[3:] if path[2:3] == ("term",) else path[2:]))
