"""Optimizers as pure functions on one vector of all weights: what a captured step, a latch and a checkpoint want."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from ns3l.precision import widest
from ns3l.schedule import Schedule, at

Moments = dict[str, Tensor]
Decayed = Literal["kernels", "all"]


class Flat:
    """The trainable weights of a network as one vector, of which its parameters become views."""

    def __init__(self, network: nn.Module) -> None:
        self.parameters = [p for p in network.parameters() if p.requires_grad]
        if not self.parameters or len({(p.dtype, p.device) for p in self.parameters}) > 1:
            raise ValueError("a network to train needs parameters, all of one dtype and on one device")
        self.nhwc = [_channels_last(p) for p in self.parameters]
        self.vector = self.gather([p.detach() for p in self.parameters])
        sizes = [p.numel() for p in self.parameters]
        for parameter, part, nhwc in zip(self.parameters, self.vector.split(sizes), self.nhwc, strict=True):
            parameter.data = _shaped(part, parameter.shape, nhwc)

    def gather(self, tensors: list[Tensor]) -> Tensor:
        """Tensors of the parameters' shapes, gradients say, in the order of the vector."""
        parts = [t.permute(0, 2, 3, 1) if nhwc else t for t, nhwc in zip(tensors, self.nhwc, strict=True)]
        return torch.cat([part.reshape(-1) for part in parts])

    def gradient(self, loss: Tensor) -> Tensor:
        """The gradient of a loss; zero where it does not depend on a weight."""
        found = torch.autograd.grad(loss, self.parameters, allow_unused=True)
        return self.gather(
            [torch.zeros_like(p) if g is None else g for g, p in zip(found, self.parameters, strict=True)]
        )

    def decayed(self, which: Decayed) -> Tensor:
        """1 where weight decay applies: kernels (matrices and convolutions, not biases and batch norm), or all."""
        return self.gather([torch.full_like(p, which == "all" or p.dim() > 1).detach() for p in self.parameters])


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


def _channels_last(x: Tensor) -> bool:
    return x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()


def _shaped(part: Tensor, shape: torch.Size, nhwc: bool) -> Tensor:
    if not nhwc:
        return part.view(shape)
    return part.view(shape[0], shape[2], shape[3], shape[1]).permute(0, 3, 1, 2)


def _check(lr: float | Schedule, weight_decay: float, decays: str, clip: float | None) -> None:
    if not isinstance(lr, Schedule) and not 0 <= lr < float("inf"):
        raise ValueError(f"a learning rate is a finite number of at least 0, or a schedule, got {lr!r}")
    if not weight_decay >= 0 or decays not in ("kernels", "all") or (clip is not None and not clip > 0):
        raise ValueError(
            f"weight_decay is at least 0, decays 'kernels' or 'all', clip positive or None: "
            f"got {weight_decay!r}, {decays!r}, {clip!r}"
        )
