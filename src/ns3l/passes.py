"""Passes of networks over the joint batch of a step, and how the batch is rendered for them"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from ns3l.augment import Augmentation
from ns3l.batch import Augment, Batch, unchanged
from ns3l.draw import Draw
from ns3l.networks import frozen_statistics

Function = Callable[..., Any]
Compile = Callable[[Function], Function]

FIRST, SECOND, TEACHER = (
    ("labeled", "unlabeled"),
    ("labeled_2", "unlabeled_2"),
    ("labeled_teacher", "unlabeled_teacher"),
)
UNLABELED = (FIRST[1], SECOND[1], TEACHER[1])


def as_written(function: Function) -> Function:
    """The function itself: not compiled."""
    return function


@dataclass(frozen=True)
class Passes:
    """Runs networks over the joint batch of a step: always all its rows, so that batch statistics are comparable."""

    student: nn.Module
    average: nn.Module | None
    batch: Batch
    draw: Draw
    precision: torch.dtype | None = None
    compile: Compile = as_written  # for arithmetic between the passes: many small operations in one

    @cached_property
    def clean(self) -> Tensor:
        """The joint batch, not augmented."""
        return torch.cat([self.batch.x[view] for view in self.sizes])

    @property
    def sizes(self) -> dict[str, int]:
        """Rows of each part of the joint batch."""
        return {view: len(self.batch.x[view]) for view in FIRST if view in self.batch.x}

    def render(self, stream: str, x: Tensor | None = None) -> Tensor:
        """The joint batch (or x in its place), augmented afresh; the same stream gives the same augmentation."""
        draw = self.draw.stream(f"augment/{stream}").rows(*self.sizes.values())
        return self.compile(_rendered)(self.batch.augment, self.clean if x is None else x, draw)

    @property
    def augments(self) -> bool:
        """Whether two renderings of an example differ."""
        return self.batch.augment not in (unchanged, Augmentation())

    def run(self, x: Tensor, moves: bool = False, network: nn.Module | None = None) -> Tensor:
        """Logits in float32 at least, under batch statistics; running statistics stay unless it `moves` them."""
        network = self.student if network is None else network
        half = nullcontext() if self.precision is None else torch.autocast(x.device.type, self.precision)
        with half, nullcontext() if moves else frozen_statistics(network):
            logits = network(x)
        if not isinstance(logits, Tensor) or logits.dim() != 2:
            came = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            raise TypeError(
                f"a network must return a tensor of logits [examples, classes], but this one returned {came}"
            )
        return logits if logits.dtype == torch.float64 else logits.float()

    def teacher(self, x: Tensor) -> Tensor:
        """Logits of the averaged network, without gradient."""
        assert self.average is not None
        with torch.no_grad():
            return self.run(x, network=self.average)

    def unlabeled(self, joint: Tensor) -> Tensor:
        """The unlabeled rows of something joint."""
        return joint[self.sizes["labeled"] :]

    def named(self, views: tuple[str, str], joint: Tensor) -> dict[str, Tensor]:
        """The parts of joint logits under the names of a pass."""
        return dict(zip(views, joint.split(list(self.sizes.values())), strict=False))


@contextmanager
def no_autocast(device: torch.device) -> Iterator[torch.dtype | None]:
    """Within it no autocast of a caller is at work; yields what that computes in: passes switch on their own."""
    on = torch.is_autocast_enabled(device.type)
    with torch.autocast(device.type, enabled=False) if on else nullcontext():
        yield torch.get_autocast_dtype(device.type) if on else None


def _rendered(augment: Augment, x: Tensor, draw: Draw) -> Tensor:
    return augment(x, draw)


def interleaved(passes: Passes, x: Tensor, size: int) -> Tensor:
    """Logits by sub-batches of about `size` rows that hold every part in proportion; the first moves statistics."""
    count = math.ceil(len(x) / size)
    parts = [passes.run(x[i::count], moves=i == 0) for i in range(count)]
    row = torch.arange(len(x), device=x.device)
    part, shorter = row % count, len(x) // count  # the first parts have a row more than the shorter ones
    return torch.cat(parts)[part * shorter + part.clamp(max=len(x) % count) + row // count]  # no sort: a step is timed
