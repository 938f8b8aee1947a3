"""Several processes for one run: what they are, gradients averaged in one piece, batch norm over all of them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ns3l.errors import RunError

PATIENCE = timedelta(minutes=10)
"""How long a process waits for the others before it takes one for lost; one that died is noticed at once."""


@dataclass(frozen=True)
class Job:
    """This process's place among those that share every batch; alone: rank 0 of 1."""

    rank: int = 0
    world: int = 1

    @property
    def first(self) -> bool:
        """Whether this process writes."""
        return self.rank == 0

    def share(self, size: int, what: str) -> int:
        """Rows of a global batch that belong to each process."""
        if size % self.world:
            raise RunError(f"{size} {what} examples a step cannot be shared evenly by {self.world} processes")
        return size // self.world

    def mean(self, x: Tensor) -> Tensor:
        """The mean of a tensor over the processes."""
        if self.world > 1:
            dist.all_reduce(x)
            x /= self.world
        return x

    def agree(self, flag: int) -> int:
        """The largest number that any process holds, so that all stop at the same step."""
        if self.world == 1:
            return flag
        value = torch.tensor(flag, device=_device_of_group())
        dist.all_reduce(value, dist.ReduceOp.MAX)
        return int(value)

    def barrier(self) -> None:
        """Wait for the others."""
        if self.world > 1:
            dist.barrier()


@contextmanager
def job(device: str) -> Iterator[Job]:
    """The job that torchrun started this process in (NCCL on GPUs, else Gloo), or this process alone."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1 or dist.is_initialized():
        yield Job(dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else Job()
        return
    if device == "cuda":
        _take_gpu(int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count())
    dist.init_process_group("nccl" if device == "cuda" else "gloo", timeout=PATIENCE)
    try:
        yield Job(dist.get_rank(), world)
    finally:
        dist.destroy_process_group()


def _take_gpu(local: int, count: int) -> None:
    if local >= count:
        raise RunError(
            f"process {local} of this machine has no GPU of its own, there {'is' if count == 1 else 'are'} {count}: "
            f"start torchrun with --nproc-per-node {count}, or train with --device cpu"
        )
    torch.cuda.set_device(local)


def _device_of_group() -> torch.device:
    return torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")


class _SumOverProcesses(torch.autograd.Function):
    """Sum over the processes; its gradient is summed likewise."""

    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:  # noqa: ARG004
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:  # noqa: ARG004
        gradient = gradient.clone()
        dist.all_reduce(gradient)
        return gradient


def synchronized_norm(layer: _BatchNorm, x: Tensor) -> Tensor:
    """Batch norm in training mode with the statistics of all processes' rows; on NCCL and on Gloo."""
    axes = [0, *range(2, x.dim())]
    wide = x.float() if x.dtype != torch.float64 else x
    count = x.numel() // x.shape[1] * dist.get_world_size()
    mean = _SumOverProcesses.apply(wide.sum(axes)) / count
    shape = [1, -1] + [1] * (x.dim() - 2)
    centered = wide - mean.view(shape)
    variance = _SumOverProcesses.apply(centered.square().sum(axes)) / count
    if layer.track_running_stats and layer.running_mean is not None and layer.running_var is not None:
        _move(layer, mean.detach(), variance.detach() * (count / max(1, count - 1)))
    normal = centered * (variance + layer.eps).rsqrt().view(shape)
    if layer.affine:
        normal = normal * layer.weight.view(shape) + layer.bias.view(shape)
    return normal.to(x.dtype)


@torch.no_grad()
def _move(layer: _BatchNorm, mean: Tensor, variance: Tensor) -> None:
    """Running statistics a step toward those of a batch."""
    share: Any = layer.momentum
    if share is None:
        layer.num_batches_tracked += 1  # type: ignore[operator, assignment]
        share = 1 / layer.num_batches_tracked  # type: ignore[operator]
    layer.running_mean.lerp_(mean, share)  # type: ignore[union-attr]
    layer.running_var.lerp_(variance, share)  # type: ignore[union-attr]


def synchronize(network: nn.Module) -> None:
    """Make every batch norm layer of a network use the statistics of all processes while it trains."""
    for layer in network.modules():
        if isinstance(layer, _BatchNorm):
            layer.__class__ = _synchronized_class(type(layer))


def _synchronized_class(kind: type[_BatchNorm]) -> type[_BatchNorm]:
    """The class of a layer with its forward replaced while training."""

    def forward(self: _BatchNorm, x: Tensor) -> Tensor:
        return synchronized_norm(self, x) if self.training else kind.forward(self, x)

    return type(f"Synchronized{kind.__name__}", (kind,), {"forward": forward, "__doc__": kind.__doc__})
