"""Negatives: which classes each example surely is not, as a boolean mask [N, K] chosen by a selector."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor

from ns3l.draw import Draw
from ns3l.errors import is_number, is_whole

Form = Literal["exclude-nearest", "exclude-four", "furthest"]


class Selector(ABC):
    """Chooses negatives. `needs` names what a call must be given beside `probability`."""

    @property
    @abstractmethod
    def needs(self) -> frozenset[str]:
        """A subset of {"draw", "truth", "neighbors"}."""

    def check(self, classes: int) -> None:  # noqa: B027 - a threshold takes any number
        """Refuse so few classes that it could not choose."""

    @abstractmethod
    def __call__(
        self,
        probability: Tensor,
        *,
        draw: Draw | None = None,
        truth: Tensor | None = None,
        neighbors: Tensor | None = None,
    ) -> Tensor:
        """The mask for `probability` [N, K].

        `draw` is the randomness of this step, `truth` [N] the true classes (-1: unknown), `neighbors` [N, K] the rank
        of each class by its nearest labeled example (`ns3l.neighbors.class_ranks`).
        """


@dataclass(frozen=True)
class Threshold(Selector):
    """Every class with probability under `threshold` (Algorithm 1, line 4).

    The probability may be that of this pass, of another one, or a label that MixMatch has made.
    """

    threshold: float

    def __post_init__(self) -> None:
        if not (is_number(self.threshold) and 0 < self.threshold < 1):
            raise ValueError(
                f"a threshold must lie strictly between 0 and 1, but got {self.threshold!r}; 0.4 / classes is usual"
            )

    @property
    def needs(self) -> frozenset[str]:
        """Nothing."""
        return frozenset()

    def __call__(self, probability: Tensor, **_: object) -> Tensor:
        """The mask for `probability` [N, K]."""
        _check_probability(probability)
        return probability < self.threshold


@dataclass(frozen=True)
class Uniform(Selector):
    """`n` different classes, all equally likely, the true one among them (appendix B, Uniform)."""

    n: int = 1

    def __post_init__(self) -> None:
        _check_n(self.n)

    @property
    def needs(self) -> frozenset[str]:
        """Randomness."""
        return frozenset({"draw"})

    def __call__(self, probability: Tensor, *, draw: Draw | None = None, **_: object) -> Tensor:
        """The mask for `probability` [N, K], of which only the shape matters."""
        _check_probability(probability)
        return _some(torch.ones_like(probability, dtype=torch.bool), self.n, self, draw)

    def check(self, classes: int) -> None:
        """One class at least must be left."""
        _check_room(self, self.n, classes - 1, classes)


@dataclass(frozen=True)
class NearestNeighbor(Selector):
    """`n` classes far from an example, by the nearest labeled example of each class (appendix B, NN).

    "exclude-nearest" draws among all classes but the nearest one, "exclude-four" among all but the four nearest;
    "furthest" takes the furthest, without chance.
    """

    form: Form = "exclude-nearest"
    n: int = 1

    def __post_init__(self) -> None:
        _check_n(self.n)
        if self.form not in get_args(Form):
            raise ValueError(f"form must be one of {', '.join(get_args(Form))}, but got {self.form!r}")

    @property
    def needs(self) -> frozenset[str]:
        """The ranks of the classes and, unless the form is "furthest", randomness."""
        return frozenset({"neighbors"} if self.form == "furthest" else {"neighbors", "draw"})

    def __call__(
        self, probability: Tensor, *, draw: Draw | None = None, neighbors: Tensor | None = None, **_: object
    ) -> Tensor:
        """The mask for `probability` [N, K], of which only the shape matters."""
        _check_probability(probability)
        if neighbors is None:
            raise _missing(self, "neighbors", "the rows of ns3l.neighbors.class_ranks(...) for these examples")
        _check_given("neighbors", neighbors, probability, 2)
        classes = probability.shape[1]
        if self.form == "furthest":
            self.check(classes)
            return neighbors >= classes - self.n
        return _some(neighbors >= self._spared, self.n, self, draw)

    @property
    def _spared(self) -> int:
        return 4 if self.form == "exclude-four" else 1

    def check(self, classes: int) -> None:
        """The nearest one or four must be left."""
        _check_room(self, self.n, classes - self._spared, classes)


@dataclass(frozen=True)
class Oracle(Selector):
    """`n` different wrong classes, all equally likely, told by the truth (appendix B, Oracle): a bound, not a method.

    Rows whose truth is unknown (-1) get none.
    """

    n: int = 1

    def __post_init__(self) -> None:
        _check_n(self.n)

    @property
    def needs(self) -> frozenset[str]:
        """Randomness and the truth."""
        return frozenset({"draw", "truth"})

    def __call__(
        self, probability: Tensor, *, draw: Draw | None = None, truth: Tensor | None = None, **_: object
    ) -> Tensor:
        """The mask for `probability` [N, K], of which only the shape matters."""
        _check_probability(probability)
        if truth is None:
            raise _missing(self, "truth", "the true classes [N], -1 where unknown")
        _check_given("truth", truth, probability, 1)
        wrong = torch.arange(probability.shape[1], device=probability.device) != truth[:, None]
        return _some(wrong, self.n, self, draw) & (truth >= 0)[:, None]

    def check(self, classes: int) -> None:
        """The true class must be left."""
        _check_room(self, self.n, classes - 1, classes)


SELECTORS: dict[str, type[Selector]] = {
    "threshold": Threshold,
    "uniform": Uniform,
    "nearest-neighbor": NearestNeighbor,
    "oracle": Oracle,
}
"""Selectors by name, for recipes and the command line."""


def diagnose(negative: Tensor, truth: Tensor | None = None) -> dict[str, Tensor]:
    """How negatives behave, as 0-d float tensors that stay on the device.

    `marked`: share of (row, class) pairs that are marked; `rows_without`: share of rows with no negative;
    with `truth` [N] (-1: unknown) also `true_marked`: share of the rows of known truth whose true class is marked, NaN
    where no row's truth is known.
    """
    if not isinstance(negative, Tensor) or negative.dtype != torch.bool or negative.dim() != 2:
        raise TypeError(f"negative must be a boolean mask [examples, classes], but got {_said(negative)}")
    told = {"marked": negative.float().mean(), "rows_without": (~negative.any(1)).float().mean()}
    if truth is not None:
        _check_given("truth", truth, negative, 1)
        known = truth >= 0
        hit = negative.gather(1, truth.clamp(min=0)[:, None])[:, 0] & known
        told["true_marked"] = hit.sum() / known.sum()
    return told


def _some(allowed: Tensor, n: int, selector: Selector, draw: Draw | None) -> Tensor:
    """n of each row's allowed classes: those with the smallest random keys."""
    if not isinstance(draw, Draw):
        raise _missing(selector, "draw", "the randomness of this step, for instance ns3l.draw.Draw(seed, step)")
    rows, classes = allowed.shape
    selector.check(classes)
    keys = replace(draw, device=allowed.device).keys(rows, classes)
    keys = keys.masked_fill(~allowed, torch.iinfo(torch.int64).max)
    return keys <= keys.sort(1).values[:, n - 1 : n]


def _missing(selector: Selector, name: str, what: str) -> ValueError:
    return ValueError(f"{selector} cannot choose negatives without `{name}`; pass {name}= {what}")


def _check_n(n: int) -> None:
    if not is_whole(n) or n < 1:
        raise ValueError(f"the number of negatives per example must be a whole number of at least 1, but got {n!r}")


def _check_room(selector: Selector, n: int, most: int, classes: int) -> None:
    if n > most:
        advice = "lower n" if most > 0 else "choose negatives in another way"
        raise ValueError(
            f"{selector} asks for {n} negatives, but {classes} classes leave at most {max(most, 0)}; {advice}"
        )


def _check_probability(probability: Tensor) -> None:
    right = isinstance(probability, Tensor) and probability.dim() == 2 and probability.shape[1] >= 2
    if not right or not probability.is_floating_point():
        raise ValueError(
            "probability must be floating point numbers [examples, classes] with 2 classes or more, but got "
            f"{_said(probability)}"
        )


def _said(given: object) -> str:
    """What came, for a message."""
    return f"{given.dtype} {tuple(given.shape)}" if isinstance(given, Tensor) else type(given).__name__


def _check_given(name: str, given: Tensor, rows: Tensor, dimensions: int) -> None:
    """Whole numbers that go with the first `dimensions` of `rows` [N, K], where those are."""
    expected = rows.shape[:dimensions]
    if not isinstance(given, Tensor):
        raise TypeError(f"{name} must be a tensor, but it is {type(given).__name__}; pass torch.as_tensor({name})")
    if given.shape != expected:
        raise ValueError(f"{name} must have the shape {tuple(expected)}, but it has {tuple(given.shape)}")
    if given.is_floating_point() or given.dtype == torch.bool:
        raise TypeError(f"{name} must be whole numbers, but it is {given.dtype}; pass {name}.long()")
    if given.device != rows.device:
        raise ValueError(f"{name} is on {given.device}, but the rows are on {rows.device}; move one to the other")
