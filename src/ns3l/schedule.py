"""Schedules: step -> number. Weights and learning rates take a number or a schedule in the same argument.

A whole-number step gives a float; a 0-d tensor step gives a 0-d float32 tensor on its device, without asking the host.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Self, TypeVar, overload

import torch
from torch import Tensor

from ns3l.errors import is_number, is_whole
from ns3l.precision import widest

Number = TypeVar("Number", float, Tensor)


class Schedule(ABC):
    """A number that depends on the step, counted from 0."""

    @overload
    def __call__(self, step: int) -> float: ...
    @overload
    def __call__(self, step: Tensor) -> Tensor: ...
    def __call__(self, step: int | Tensor) -> float | Tensor:
        """The number at `step`: a float for an int, a 0-d float32 tensor for a tensor."""
        if isinstance(step, Tensor):
            return self.curve(step.to(widest(step.device))).float()
        return self.curve(float(step))

    @abstractmethod
    def curve(self, step: Number) -> Number:
        """The formula, for a float and for a float64 tensor alike."""

    @abstractmethod
    def scaled(self, factor: float) -> Self:
        """The same schedule with its step counts times `factor`, rounded, at least 1."""


@dataclass(frozen=True)
class Constant(Schedule):
    """`value` at every step."""

    value: float

    def __post_init__(self) -> None:
        _check(value=self.value)

    def curve(self, step: Number) -> Number:
        """v"""
        return step * 0 + self.value

    def scaled(self, factor: float) -> Self:
        """Itself: it has no step counts."""
        _check_factor(factor)
        return self


@dataclass(frozen=True)
class LinearRamp(Schedule):
    """From 0 in a straight line to `value` at `steps`, then constant."""

    value: float
    steps: int

    def __post_init__(self) -> None:
        _check(value=self.value, steps=self.steps)

    def curve(self, step: Number) -> Number:
        """v min(t / T, 1)"""
        return self.value * _part(step, self.steps)

    def scaled(self, factor: float) -> Self:
        """With `steps` times `factor`."""
        return replace(self, steps=_scale(self.steps, factor))


@dataclass(frozen=True)
class Ramp(Schedule):
    """The exponential ramp of the realistic evaluation: from exp(-5) `value` to `value` at `steps`, then constant."""

    value: float
    steps: int

    def __post_init__(self) -> None:
        _check(value=self.value, steps=self.steps)

    def curve(self, step: Number) -> Number:
        """v exp(-5 (1 - min(t / T, 1))^2)"""
        rest = 1 - _part(step, self.steps)
        return self.value * _exp(-5 * rest * rest)

    def scaled(self, factor: float) -> Self:
        """With `steps` times `factor`."""
        return replace(self, steps=_scale(self.steps, factor))


@dataclass(frozen=True)
class StepDecay(Schedule):
    """`value` before step `at`, `value` times `factor` from there on."""

    value: float
    at: int
    factor: float

    def __post_init__(self) -> None:
        _check(value=self.value, at=self.at, factor=self.factor)

    def curve(self, step: Number) -> Number:
        """v f^[t >= a]"""
        late = (step >= self.at) * 1.0
        return self.value * (1 - late + late * self.factor)

    def scaled(self, factor: float) -> Self:
        """With `at` times `factor`."""
        return replace(self, at=_scale(self.at, factor))


@dataclass(frozen=True)
class Cosine(Schedule):
    """From `value` along half a cosine to `final` at `steps`, then constant."""

    value: float
    steps: int
    final: float = 0.0

    def __post_init__(self) -> None:
        _check(value=self.value, steps=self.steps, final=self.final)

    def curve(self, step: Number) -> Number:
        """f + (v - f) (1 + cos(pi min(t / T, 1))) / 2"""
        return self.final + (self.value - self.final) * (1 + _cos(math.pi * _part(step, self.steps))) / 2

    def scaled(self, factor: float) -> Self:
        """With `steps` times `factor`."""
        return replace(self, steps=_scale(self.steps, factor))


SCHEDULES: dict[str, type[Schedule]] = {
    "constant": Constant,
    "linear-ramp": LinearRamp,
    "ramp": Ramp,
    "step-decay": StepDecay,
    "cosine": Cosine,
}
"""Schedules by name, for recipes and the command line."""


def at(weight: float | Schedule, step: int | Tensor) -> float | Tensor:
    """The value of a number or a schedule at `step`."""
    return weight(step) if isinstance(weight, Schedule) else float(weight)


def _part(step: Number, steps: int) -> Number:
    """min(step / steps, 1)."""
    return (step / steps).clamp(max=1) if isinstance(step, Tensor) else min(step / steps, 1.0)


def _exp(x: Number) -> Number:
    return torch.exp(x) if isinstance(x, Tensor) else math.exp(x)


def _cos(x: Number) -> Number:
    return torch.cos(x) if isinstance(x, Tensor) else math.cos(x)


def _check(**given: float) -> None:
    for name, number in given.items():
        if name in ("steps", "at"):
            if not is_whole(number) or number < 1:
                raise ValueError(f"{name} of a schedule must be a whole number of at least 1, but got {number!r}")
        elif not is_number(number) or number < 0:
            raise ValueError(f"{name} of a schedule must be a finite number of at least 0, but got {number!r}")


def _check_factor(factor: float) -> None:
    if not is_number(factor) or factor <= 0:
        raise ValueError(f"a schedule is scaled by a finite factor above 0, but got {factor!r}; 0.25 is a quarter")


def _scale(steps: int, factor: float) -> int:
    _check_factor(factor)
    return max(1, round(steps * factor))
