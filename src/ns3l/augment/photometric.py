"""Changes of value: noise, masking, cutout."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ns3l.augment.step import Step, check_count, check_number, image_batch
from ns3l.draw import Draw


@dataclass(frozen=True)
class Noise(Step):
    """Add Gaussian noise to every value of images or features (8,192 levels, under 3.9 standard deviations)."""

    std: float = 0.15
    name: ClassVar[str] = "noise"

    def __post_init__(self) -> None:
        check_number(self, 0.0, math.inf)

    def __call__(self, x: Tensor, draw: Draw) -> Tensor:
        """See `Step`."""
        return torch.add(x, draw.noise(x.shape).to(x.dtype), alpha=self.std)


@dataclass(frozen=True)
class Mask(Step):
    """Set every value of images or features to 0 (after standardising: its mean) with a probability, independently."""

    share: float = 0.1
    name: ClassVar[str] = "mask"

    def __post_init__(self) -> None:
        check_number(self, 0.0, 1.0)

    def __call__(self, x: Tensor, draw: Draw) -> Tensor:
        """See `Step`."""
        return torch.where(draw.uniform(x.shape) < self.share, 0.0, x)


@dataclass(frozen=True)
class Cutout(Step):
    """Set a square to 0 around a center that is uniform over the image (DeVries and Taylor 2017); it may jut out."""

    size: int = 16
    name: ClassVar[str] = "cutout"
    images_only: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_count(self)

    def __call__(self, x: Tensor, draw: Draw) -> Tensor:
        """See `Step`."""
        n, _, height, width = image_batch(x, self)
        down = self._inside(draw.stream("down"), n, height)
        across = self._inside(draw.stream("across"), n, width)
        return torch.where((down[:, :, None] & across[:, None, :])[:, None], 0.0, x)

    def _inside(self, draw: Draw, n: int, length: int) -> Tensor:
        first = draw.integers(0, length, (n, 1)) - self.size // 2
        place = torch.arange(length, device=first.device)
        return (first <= place) & (place < first + self.size)
