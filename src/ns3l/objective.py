"""The one composing idea: a method is a weighted sum of terms over shared views of a batch."""

import difflib
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import UnionType
from typing import Literal, TypeGuard, get_args

import torch
from torch import Tensor, nn

from ns3l.batch import Batch
from ns3l.draw import Draw
from ns3l.passes import FIRST, SECOND, TEACHER, UNLABELED, Compile, Passes, as_written, interleaved, no_autocast
from ns3l.schedule import Schedule, at

Statistics = Literal["joint", "labeled", "first_interleaved"]


@dataclass(frozen=True)
class Forward:
    """All that a term may look at in one step: computed once, shared by every term."""

    batch: Batch
    logits: Mapping[str, Tensor]  # by view; views of the averaged network carry no gradient
    draw: Draw  # bound to seed, step and the term's own stream


class Term(ABC):
    """One scalar over views; its subclasses are frozen dataclasses and final."""

    @property
    @abstractmethod
    def reads(self) -> tuple[str, ...]:
        """The views whose logits it looks at."""

    @property
    def makes(self) -> str | None:
        """The view that it adds for every term to read, if any: then it has `make`."""
        return None

    @property
    def needs(self) -> frozenset[str]:
        """What else a batch must carry for it: "truth", "neighbors"."""
        return frozenset()

    @abstractmethod
    def __call__(self, fwd: Forward) -> Tensor:
        """The mean loss over the examples that it concerns."""

    def make(self, passes: Passes, fwd: Forward) -> Tensor:
        """Logits of the joint batch under the view that it makes."""
        raise NotImplementedError(f"{type(self).__name__} makes no view")

    def diagnose(self, fwd: Forward) -> dict[str, Tensor]:  # noqa: ARG002
        """Numbers that tell how the term behaves, read by people only."""
        return {}


@dataclass(frozen=True)
class Views:
    """What a builder makes of a batch: inputs, already augmented, and their targets."""

    x: Mapping[str, Tensor]
    y: Mapping[str, Tensor]


class Builder(ABC):
    """Makes further views of a batch (mixed examples) that the student is then run over."""

    @property
    @abstractmethod
    def makes(self) -> tuple[str, ...]:
        """The views that it adds."""

    @abstractmethod
    def __call__(self, passes: Passes) -> Views:
        """The views of this step."""


@dataclass(frozen=True)
class Losses:
    """The total of a step, its unweighted parts and their weights, by name of the term."""

    total: Tensor
    parts: dict[str, Tensor]
    weights: dict[str, float | Tensor]


class Objective:
    """A weighted sum of named terms, `name=(weight, term)`, and an optional builder of mixed views.

    >>> Objective(supervised=(1.0, CrossEntropy()), ns3l=(Ramp(1.0, 50_000), NegativeSampling()))
    """

    def __init__(
        self,
        build: Builder | None = None,
        statistics: Statistics = "joint",
        **terms: tuple[float | Schedule, Term],
    ) -> None:
        faults = _faults(build, statistics, terms)
        if faults:
            raise ValueError("this objective cannot work:\n" + "\n".join(f"  - {fault}" for fault in faults))
        self.build, self.statistics = build, statistics
        self.weights = {name: weight for name, (weight, _) in terms.items()}
        self.terms = {name: term for name, (_, term) in terms.items()}

    def __repr__(self) -> str:
        entries = [f"{name!r}: ({self.weights[name]!r}, {term!r})" for name, term in self.terms.items()]
        return f"Objective(build={self.build!r}, statistics={self.statistics!r}, **{{{', '.join(entries)}}})"

    @property
    def reads(self) -> frozenset[str]:
        """All views that some term reads."""
        return frozenset(view for term in self.terms.values() for view in term.reads)

    @property
    def needs(self) -> frozenset[str]:
        """What a batch must carry beside inputs and labels."""
        return frozenset(need for term in self.terms.values() for need in term.needs)

    @property
    def needs_average(self) -> bool:
        """Whether some term reads the averaged network."""
        return not self.reads.isdisjoint(TEACHER)

    def __call__(
        self,
        student: nn.Module,
        batch: Batch,
        draw: Draw,
        average: nn.Module | None = None,
        precision: torch.dtype | None = None,
    ) -> Losses:
        """The losses of one step, with gradient to the student; `draw` is bound to seed and step."""
        return self.losses(self.forward(student, batch, draw, average, precision))

    def losses(self, fwd: Forward) -> Losses:
        """The terms of a forward pass and their weighted sum."""
        parts = {name: term(_own(fwd, name)) for name, term in self.terms.items()}
        weights = {name: at(weight, fwd.draw.step) for name, weight in self.weights.items()}
        total = torch.stack([weights[name] * part for name, part in parts.items()]).sum()
        return Losses(total, parts, weights)

    def forward(
        self,
        student: nn.Module,
        batch: Batch,
        draw: Draw,
        average: nn.Module | None = None,
        precision: torch.dtype | None = None,
        compile: Compile = as_written,
    ) -> Forward:
        """Every view that some term reads, each pass run once; no `precision`: that of a surrounding autocast."""
        self._check(student, batch, draw, average)
        with no_autocast(batch.x["labeled"].device) as surrounding:
            return self._forward(Passes(student, average, batch, draw, precision or surrounding, compile))

    def _forward(self, passes: Passes) -> Forward:
        batch, logits = self._built(passes) if self.build else (passes.batch, {})
        logits = logits | self._base(passes, moves=self.build is None)
        fwd = Forward(batch, logits, passes.draw)
        for name, term in self.terms.items():
            if term.makes:
                made = passes.unlabeled(term.make(passes, _own(fwd, name)))
                fwd = replace(fwd, logits={**fwd.logits, term.makes: made})
        return fwd

    def _check(self, student: nn.Module, batch: Batch, draw: Draw, average: nn.Module | None) -> None:
        """Refuse a step that lacks what some term reads."""
        _expect("student", student, nn.Module, "a network, MLP(10, 64) say")
        _expect("batch", batch, Batch, "ns3l.batch.Batch(x, y) with views as keys")
        _expect("draw", draw, Draw, "ns3l.draw.Draw(seed, step)")
        _expect("average", average, nn.Module | None, "Average(…).network")
        if "labeled" not in batch.x or "labeled" not in batch.y:
            raise ValueError("a batch has x['labeled'] and y['labeled'] in every step, but they are missing: draw some")
        if average is None and self.needs_average:
            readers = " and ".join(self._readers(TEACHER))
            raise ValueError(f"{readers} compare with an averaged network: pass average=Average(…).network")
        readers = " and ".join(self._readers(UNLABELED))
        if readers and "unlabeled" not in batch.x:
            raise ValueError(f"{readers} read unlabeled examples, but the batch has none: draw some in every step")

    def _readers(self, views: tuple[str, ...]) -> list[str]:
        """The names of what reads any of these views."""
        readers = [name for name, term in self.terms.items() if not set(term.reads).isdisjoint(views)]
        return [*readers, repr(self.build)] if self.build and "unlabeled" in views else readers

    def weights_at(self, step: int) -> dict[str, float]:
        """The weight of every term at a step."""
        return {name: float(at(weight, step)) for name, weight in self.weights.items()}

    def diagnose(self, fwd: Forward) -> dict[str, dict[str, Tensor]]:
        """What each term tells of its behavior on a forward pass."""
        told = {name: term.diagnose(_own(fwd, name)) for name, term in self.terms.items()}
        return {name: numbers for name, numbers in told.items() if numbers}

    def _base(self, passes: Passes, moves: bool) -> dict[str, Tensor]:
        """The joint passes over plain views: first, second and the averaged network's, where they are read."""
        logits: dict[str, Tensor] = {}
        if self.statistics == "labeled":
            with torch.no_grad():
                passes.run(passes.render("first")[: passes.sizes["labeled"]], moves=True)
        if moves or not self.reads.isdisjoint(FIRST):
            first = passes.run(passes.render("first"), moves=moves and self.statistics == "joint")
            logits |= passes.named(FIRST, first)
        if not self.reads.isdisjoint(SECOND):
            logits |= passes.named(SECOND, passes.run(passes.render("second")))
        if not self.reads.isdisjoint(TEACHER):
            logits |= passes.named(TEACHER, passes.teacher(passes.render("teacher")))
        return logits

    def _built(self, passes: Passes) -> tuple[Batch, dict[str, Tensor]]:
        """The builder's views and the student's logits on them."""
        assert self.build is not None
        views = self.build(passes)
        sizes = [len(x) for x in views.x.values()]
        joint = torch.cat(list(views.x.values()))
        if self.statistics == "first_interleaved":
            logits = interleaved(passes, joint, max(passes.sizes.values()))
        else:
            logits = passes.run(joint, moves=self.statistics == "joint")
        batch = replace(passes.batch, x={**passes.batch.x, **views.x}, y={**passes.batch.y, **views.y})
        return batch, dict(zip(views.x, logits.split(sizes), strict=True))


def _expect(name: str, given: object, kind: type | UnionType, what: str) -> None:
    if not isinstance(given, kind):
        raise TypeError(f"{name} must be {what}, but it is of type {type(given).__name__}")


def _own(fwd: Forward, name: str) -> Forward:
    """The same forward pass with the draws of one term."""
    return replace(fwd, draw=fwd.draw.stream(f"term/{name}"))


def _faults(build: object, statistics: str, terms: Mapping[str, object]) -> list[str]:
    """Everything that is wrong with an objective, each in words."""
    faults = [] if terms else ["it has no term: pass at least one name=(weight, term)"]
    faults += [fault for name, entry in terms.items() for fault in _entry_faults(name, entry)]
    if build is not None and not isinstance(build, Builder):
        faults.append(f"build must be a builder such as MixMatch(), or None, got {build!r}")
    if statistics not in get_args(Statistics):
        faults.append(f"statistics={statistics!r} is not one of {', '.join(get_args(Statistics))}")
    elif statistics == "first_interleaved" and build is None:
        faults.append("statistics='first_interleaved' is for objectives with a builder; use 'joint' or 'labeled'")
    sound = {name: entry[1] for name, entry in terms.items() if _is_pair(entry) and isinstance(entry[1], Term)}
    return faults + _view_faults(build.makes if isinstance(build, Builder) else (), sound)


def _is_pair(entry: object) -> TypeGuard[tuple[object, object]]:
    return isinstance(entry, tuple) and len(entry) == 2


def _entry_faults(name: str, entry: object) -> list[str]:
    """What is wrong with one name=(weight, term)."""
    if not _is_pair(entry):
        return [f"{name} must be (weight, term), got {entry!r}"]
    weight, term = entry
    faults = []
    if not isinstance(term, Term):
        faults.append(f"{name} must be (weight, term), its second part is {term!r}")
    if isinstance(weight, bool) or not isinstance(weight, Schedule | int | float):
        faults.append(f"the weight of {name} must be a number or a schedule, got {weight!r}")
    elif isinstance(weight, int | float) and not (weight >= 0 and math.isfinite(weight)):
        faults.append(f"the weight of {name} must be finite and not negative, got {weight}")
    return faults


def _view_faults(built: tuple[str, ...], terms: Mapping[str, Term]) -> list[str]:
    """Views that nothing makes or two make."""
    plain = [*FIRST, *SECOND, *TEACHER]
    made = [*plain, *(term.makes for term in terms.values() if term.makes), *built]
    known = list(dict.fromkeys(made))
    faults = [f"the view {view!r} is made more than once" for view in known if made.count(view) > 1]
    for name, term in terms.items():
        faults += [
            f"{name} reads the view {view!r}, {_nearest(view, known)}" for view in term.reads if view not in known
        ]
    return faults


def _nearest(view: str, known: list[str]) -> str:
    from ns3l.mixmatch import BUILDERS
    from ns3l.terms import TERMS

    near = difflib.get_close_matches(str(view), known, 1)
    advice = f"; did you mean {near[0]!r}?" if near else ""
    makers = [f"a term {kind.__name__}(…)" for kind in TERMS.values() if kind().makes == view]
    makers += [f"build={kind.__name__}(…)" for kind in BUILDERS.values() if view in kind().makes]
    if makers:
        advice = f"; add {' or '.join(makers)}"
    return f"which nothing makes (there are {', '.join(known)}){advice}"
