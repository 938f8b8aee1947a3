"""A recipe: everything that a run needs except where the data are and the seed; to and from JSON, strictly."""

import inspect
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from ns3l.augment import Augmentation
from ns3l.batch import BatchSize
from ns3l.errors import RecipeError
from ns3l.negatives import Selector, Threshold
from ns3l.networks import NETWORKS
from ns3l.objective import Builder, Objective, Statistics, Term
from ns3l.optimize import Adam, Optimizer
from ns3l.preprocess import Preprocessing, Scale
from ns3l.schedule import Schedule
from ns3l.split import SplitRequest
from ns3l.structure import plain, structure

if TYPE_CHECKING:
    from torch import nn

Rule = Literal["last", "best_validation", "median_20"]
_FEWEST = 10
"""Evaluations that a run of a scaled schedule has, unless the unscaled one has fewer."""


@dataclass(frozen=True)
class Weighted:
    """A term and its weight: a number or a schedule."""

    weight: float | Schedule
    term: Term


@dataclass(frozen=True)
class Network:
    """A network by name and the options of its class; classes, channels or features come from the data."""

    name: str = "wide-resnet"
    options: dict[str, int | float | bool | list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.name not in NETWORKS and self.name != "own":
            raise RecipeError(f"there is no network {self.name!r}; there are {', '.join(NETWORKS)}")
        unknown = [name for name in self.options if name not in self.possible] if self.name in NETWORKS else []
        if unknown:
            takes = ", ".join(self.possible)
            raise RecipeError(f"the network {self.name} has no option {unknown[0]!r}; it takes {takes}")

    @property
    def possible(self) -> tuple[str, ...]:
        """The options of its class that do not follow from the data's form; none for one's own network."""
        taken = inspect.signature(NETWORKS[self.name]).parameters if self.name in NETWORKS else ()
        return tuple(name for name in taken if name not in ("classes", "channels", "features"))


@dataclass(frozen=True)
class Averaging:
    """An exponential moving average of the weights: what teaches, or what is evaluated."""

    decay: float = 0.999
    buffers: Literal["copy", "average"] = "copy"


@dataclass(frozen=True)
class EvaluationPlan:
    """How often the run is evaluated, with whose weights, and which evaluation counts."""

    every: int = 1000
    weights: Literal["student", "average"] = "student"
    rule: Rule = "best_validation"
    patience: int | None = None  # stop after so many evaluations without a lower validation error

    def __post_init__(self) -> None:
        if self.every < 1 or (self.patience is not None and self.patience < 1):
            raise RecipeError(f"evaluation needs every >= 1 and patience >= 1 or None, got {self}")


@dataclass(frozen=True)
class Execution:
    """How a step runs: the same numbers in float32, at another speed."""

    mode: Literal["auto", "eager", "compiled", "captured"] = "auto"
    precision: Literal["float32", "bf16"] = "float32"
    deterministic: bool = True
    channels_last: bool = False
    autotune: bool = False  # let the compiler try variants: minutes at the start, some per cent afterwards
    synchronized: bool = False  # batch norm over all processes of a job


@dataclass(frozen=True)
class Recipe:
    """All settings of a run. `sources` says where numbers come from, by path."""

    method: str
    data: str
    classes: int
    terms: dict[str, Weighted]
    builder: Builder | None = None
    network: Network = field(default_factory=Network)
    preprocessing: Preprocessing = field(default_factory=Scale)
    augmentation: Augmentation = field(default_factory=lambda: Augmentation(()))
    batch: BatchSize = field(default_factory=BatchSize)
    optimizer: Optimizer = field(default_factory=Adam)
    steps: int = 1000
    evaluation: EvaluationPlan = field(default_factory=EvaluationPlan)
    average: Averaging | None = None
    statistics: Statistics = "joint"
    split: SplitRequest = field(default_factory=SplitRequest)
    execution: Execution = field(default_factory=Execution)
    protocol: str = "own"
    schedule: float = 1.0
    sources: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        structure(self, Recipe, "recipe")
        if self.classes < 2 or self.steps < 1:
            raise RecipeError(f"a recipe needs classes >= 2 and steps >= 1, got {self.classes} and {self.steps}")
        objective = self.objective()
        if objective.needs_average and self.average is None:
            raise RecipeError(f"{self.method} compares with an averaged network: give average=Averaging(decay)")
        if self.evaluation.weights == "average" and self.average is None:
            raise RecipeError("evaluation.weights='average' needs average=Averaging(decay)")
        if self.batch.unlabeled == 0 and (self.builder or any("unlabeled" in view for view in objective.reads)):
            raise RecipeError(f"{self.method} reads unlabeled examples, but batch.unlabeled is 0")
        self._check_negatives()

    def _check_negatives(self) -> None:
        """Selectors that cannot choose among so few classes, thresholds that would mark them all."""
        for name, entry in self.terms.items():
            chosen = getattr(entry.term, "negatives", None)
            if isinstance(chosen, Selector):
                try:
                    chosen.check(self.classes)
                except ValueError as problem:
                    raise RecipeError(f"{name}.negatives: {problem}") from None
            if isinstance(chosen, Threshold) and chosen.threshold >= 1 / self.classes:
                warnings.warn(
                    f"{name}.negatives.threshold={chosen.threshold:g} is at least 1/K = {1 / self.classes:g}: an "
                    "untrained network would mark every class, which costs nothing; "
                    f"{0.4 / self.classes:g} is usual",
                    stacklevel=4,
                )

    def objective(self) -> Objective:
        """The weighted sum of terms."""
        terms = {name: (entry.weight, entry.term) for name, entry in self.terms.items()}
        return Objective(self.builder, self.statistics, **terms)

    def scaled(self, factor: float) -> "Recipe":
        """All step counts times a factor: of the run, of every weight's and the learning rate's schedule.

        The interval of evaluation stays, or shrinks so that the run is evaluated ten times, or as often as unscaled.
        """
        if not 0 < factor < math.inf:
            raise RecipeError(f"a schedule is scaled by a finite factor above 0, 0.25 is a quarter; got {factor!r}")
        if factor == 1:
            return self
        terms = {n: replace(e, weight=_scaled(e.weight, factor)) for n, e in self.terms.items()}
        optimizer = replace(self.optimizer, lr=_scaled(self.optimizer.lr, factor))  # type: ignore[type-var]
        steps = max(1, round(self.steps * factor))
        evaluations = min(_FEWEST, max(1, self.steps // self.evaluation.every))
        every = min(self.evaluation.every, max(1, steps // evaluations))
        return replace(
            self,
            terms=terms,
            optimizer=optimizer,
            steps=steps,
            evaluation=replace(self.evaluation, every=every),
            schedule=self.schedule * factor,
        )

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values; what is one of several kinds says its kind."""
        return plain(self)

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> "Recipe":
        """The recipe of such values; unknown keys fail with the nearest valid name."""
        return structure(values, Recipe, "recipe")

    def network_for(self, shape: tuple[int, ...]) -> "nn.Module":
        """A new network for inputs of a stored row's shape, (H, W, C) or (D,)."""
        options: dict[str, Any] = dict(self.network.options)
        if self.network.name == "mlp":
            hidden = tuple(options.get("hidden", (256, 256)))
            options = {"features": math.prod(shape)} | options | {"hidden": hidden}
        elif len(shape) != 3:
            raise RecipeError(f"the network {self.network.name} is for images, the rows are {shape}: use 'mlp'")
        else:
            options = {"channels": shape[2], **options}
        try:
            return NETWORKS[self.network.name](classes=self.classes, **options)
        except (TypeError, ValueError) as problem:
            raise RecipeError(f"network.options={self.network.options} cannot be built: {problem}") from problem


def _scaled(number: float | Schedule, factor: float) -> float | Schedule:
    return number.scaled(factor) if isinstance(number, Schedule) else number
