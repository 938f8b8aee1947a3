"""Optimizers as pure functions on one vector of all weights: what a captured step, a latch and a checkpoint want."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from ns3l.flat import Decayed
from ns3l.precision import widest
from ns3l.schedule import Schedule, at

Moments = dict[str, Tensor]


class Optimizer(ABC):
    """How weights follow from a gradient; `lr` is a number or a schedule."""

    lr: float | Schedule

    @abstractmethod
    def start(self, weights: Tensor) -> Moments:
        """What it remembers, before the first step."""

    @abstractmethod
    def update(
        self, weights: Tensor, gradient: Tensor, moments: Moments, step: int | Tensor, decayed: Tensor
    ) -> tuple[Tensor, Moments]:
        """Weights and memory after step number `step` (from 0)."""


@dataclass(frozen=True)
class Adam(Optimizer):
    """Adam (Kingma and Ba 2014); `weight_decay` is decoupled (AdamW): it takes lr · weight_decay of a weight a step."""

    lr: float | Schedule = 3e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    decays: Decayed = "kernels"
    clip: float | None = None

    def __post_init__(self) -> None:
        _check(self.lr, self.weight_decay, self.decays, self.clip)
        if not all(0 <= beta < 1 for beta in self.betas) or not self.eps > 0:
            raise ValueError(f"Adam needs betas in [0, 1) and eps > 0, got {self.betas} and {self.eps}")

    def start(self, weights: Tensor) -> Moments:
        """First and second moments of zero."""
        return {"first": torch.zeros_like(weights), "second": torch.zeros_like(weights)}

    def update(
        self, weights: Tensor, gradient: Tensor, moments: Moments, step: int | Tensor, decayed: Tensor
    ) -> tuple[Tensor, Moments]:
        """m̂ / (√v̂ + ε), after decay."""
        gradient, lr = clipped(gradient, self.clip), at(self.lr, step)
        first = torch.lerp(gradient, moments["first"], self.betas[0])
        second = (moments["second"] * self.betas[1]).addcmul_(gradient, gradient, value=1 - self.betas[1])
        count = (step + 1).to(widest(step.device)) if isinstance(step, Tensor) else step + 1
        scale = [1 - beta**count for beta in self.betas]
        if self.weight_decay:
            weights = weights - lr * self.weight_decay * decayed * weights
        move = first / second.sqrt().mul_(scale[1] ** -0.5).add_(self.eps)
        step_size = lr / scale[0]
        move *= step_size.to(move.dtype) if isinstance(step_size, Tensor) else step_size
        return weights - move, {"first": first, "second": second}


@dataclass(frozen=True)
class SGD(Optimizer):
    """Stochastic gradient descent with momentum; `weight_decay` enters the gradient."""

    lr: float | Schedule = 0.03
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 0.0
    decays: Decayed = "kernels"
    clip: float | None = None

    def __post_init__(self) -> None:
        _check(self.lr, self.weight_decay, self.decays, self.clip)
        if not 0 <= self.momentum < 1:
            raise ValueError(f"SGD needs a momentum in [0, 1), got {self.momentum}")

    def start(self, weights: Tensor) -> Moments:
        """A velocity of zero."""
        return {"velocity": torch.zeros_like(weights)}

    def update(
        self, weights: Tensor, gradient: Tensor, moments: Moments, step: int | Tensor, decayed: Tensor
    ) -> tuple[Tensor, Moments]:
        """v ← m v + g; w ← w − lr v (Nesterov: g + m v)."""
        gradient = clipped(gradient, self.clip) + self.weight_decay * decayed * weights
        velocity = self.momentum * moments["velocity"] + gradient
        move = gradient + self.momentum * velocity if self.nesterov else velocity
        return weights - at(self.lr, step) * move, {"velocity": velocity}


OPTIMIZERS: dict[str, type[Optimizer]] = {"adam": Adam, "sgd": SGD}


def clipped(gradient: Tensor, norm: float | None) -> Tensor:
    """The gradient, scaled down to a norm where it is longer."""
    return gradient if norm is None else gradient * (norm / gradient.norm().clamp(min=norm))


def _check(lr: float | Schedule, weight_decay: float, decays: str, clip: float | None) -> None:
    if not isinstance(lr, Schedule) and not 0 <= lr < float("inf"):
        raise ValueError(f"a learning rate is a finite number of at least 0, or a schedule, got {lr!r}")
    if not weight_decay >= 0 or decays not in ("kernels", "all") or (clip is not None and not clip > 0):
        raise ValueError(
            f"weight_decay is at least 0, decays 'kernels' or 'all', clip positive or None: "
            f"got {weight_decay!r}, {decays!r}, {clip!r}"
        )
