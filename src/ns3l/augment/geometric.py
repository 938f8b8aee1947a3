"""Changes of place: shift, flip, crop, and the affine sampling that they and the strong augmentation use."""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ns3l.augment.step import Step, check_count, check_number, image_batch
from ns3l.draw import Draw


@dataclass(frozen=True)
class Shift(Step):
    """Move each image by whole pixels, uniform in -pixels..pixels down and across; the border is reflected.

    The same as padding by reflection and cropping at a random place. Values are only moved, so it is exact. The
    gradient adds up at most two values per pixel and direction, so it does not depend on the order of additions.
    """

    pixels: int = 2
    name: ClassVar[str] = "shift"
    images_only: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_count(self)

    def __call__(self, x: Tensor, draw: Draw) -> Tensor:
        """See `Step`."""
        n, channels, height, width = image_batch(x, self)
        if self.pixels >= min(height, width):
            raise ValueError(f'"shift" by {self.pixels} pixels needs images larger than that, got {height} x {width}')
        by = draw.integers(-self.pixels, self.pixels + 1, (n, 2))
        rows, columns = _reflected(by[:, :1], height), _reflected(by[:, 1:], width)
        moved = x.gather(2, rows[:, None, :, None].expand(n, channels, height, width))
        return moved.gather(3, columns[:, None, None, :].expand(n, channels, height, width))


@dataclass(frozen=True)
class Flip(Step):
    """Mirror each image left to right with probability 1/2."""

    name: ClassVar[str] = "flip"
    images_only: ClassVar[bool] = True

    def __call__(self, x: Tensor, draw: Draw) -> Tensor:
        """See `Step`."""
        n, *_ = image_batch(x, self)
        return torch.where(draw.integers(0, 2, (n, 1, 1, 1)) == 1, x.flip(3), x)


@dataclass(frozen=True)
class Crop(Step):
    """Cut out a random part of each image and resize it to the whole (bilinear).

    Both sides are cut to the same share, uniform in [smallest, 1]; the place is uniform. For the reflect-pad crop of
    the protocols on small images take `Shift`, which is just that.
    """

    smallest: float = 0.6
    name: ClassVar[str] = "crop"
    images_only: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_number(self, 0.0, 1.0, open_low=True)

    def __call__(self, x: Tensor, draw: Draw) -> Tensor:
        """See `Step`."""
        n, _, height, width = image_batch(x, self)
        size, down, across = draw.uniform((n, 3)).unbind(1)
        size = self.smallest + (1 - self.smallest) * size
        zero = torch.zeros_like(size)
        down, across = (down - 0.5) * (1 - size) * (height - 1), (across - 0.5) * (1 - size) * (width - 1)
        return sampled(x, torch.stack((size, zero, across, zero, size, down), 1))


def sampled(x: Tensor, affine: Tensor) -> Tensor:
    """Bilinear sampling of each image where an affine map of pixel places [N, 6] says; the border is reflected.

    With places counted from the image's center, output (across, down) is read at
    (a0 * across + a1 * down + a2, a3 * across + a4 * down + a5).
    """
    height, width = x.shape[2:]
    kind = precision(x)
    down = (torch.arange(height, device=x.device, dtype=kind) - (height - 1) / 2)[:, None]
    across = torch.arange(width, device=x.device, dtype=kind) - (width - 1) / 2
    a = affine.to(kind)[:, :, None, None].unbind(1)
    from_across = (a[0] * across + a[1] * down + a[2]) / max((width - 1) / 2, 0.5)
    from_down = (a[3] * across + a[4] * down + a[5]) / max((height - 1) / 2, 0.5)
    grid = torch.stack((from_across, from_down), 3)
    return F.grid_sample(x.to(kind), grid, padding_mode="reflection", align_corners=True).to(x.dtype)


def precision(x: Tensor) -> torch.dtype:
    """In which places and values are reckoned: float64 for float64, otherwise float32."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _reflected(by: Tensor, size: int) -> Tensor:
    """Where each of `size` places is read from after a move by less than `size`; the edge itself is not repeated."""
    place = torch.arange(size, device=by.device) + by
    return (size - 1) - ((size - 1) - place.abs()).abs()
