"""The strong augmentation: a few operations drawn for each image from changes of place and of value."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ns3l.augment.geometric import precision, sampled
from ns3l.augment.step import Step, check_count, check_number, image_batch
from ns3l.draw import Draw
from ns3l.errors import RecipeError

PLACES = ("rotate", "shear-across", "shear-down", "translate-across", "translate-down")
VALUES = ("autocontrast", "brightness", "contrast", "saturation", "sharpness", "posterize", "solarize")


@dataclass(frozen=True)
class Strong(Step):
    """Like RandAugment: a few operations in a row, each drawn for each image, with a strength of its own.

    An operation is drawn uniformly from doing nothing, `PLACES` and (`photometric`) `VALUES`; its strength uniformly
    from 0 to `magnitude`, its direction by a coin. At strength 1: rotation by 30 degrees, shear 0.3, translation by
    0.3 of the side, brightness, contrast, saturation and sharpness times 0.1 or 1.9, 4 of 8 bits dropped, everything
    solarized. Equalize is left out. Operations on values need inputs in [-1, 1] (preprocessing "scale") and clip to it.

    Cost: a captured step cannot branch, so in every round every image passes through the sampling of places and the
    arithmetic of all values, about 25 passes over the batch; the result of the drawn one is kept.
    """

    operations: int = 2
    magnitude: float = 0.5
    photometric: bool = True
    name: ClassVar[str] = "strong"
    images_only: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_count(self)
        check_number(self, 0.0, 1.0, open_low=True)
        if not isinstance(self.photometric, bool):
            raise RecipeError(f'photometric of "strong" must be True or False, got {self.photometric!r}')

    @property
    def bounds(self) -> tuple[float, float] | None:
        """[-1, 1] where values are changed."""
        return (-1.0, 1.0) if self.photometric else None

    @property
    def names(self) -> tuple[str, ...]:
        """The operations that are drawn from, by number."""
        return ("nothing", *PLACES, *(VALUES if self.photometric else ()))

    def __call__(self, x: Tensor, draw: Draw) -> Tensor:
        """See `Step`."""
        n, *_ = image_batch(x, self)
        for k in range(self.operations):
            once = draw.stream(f"operation-{k}")
            which = once.stream("which").integers(0, len(self.names), n)
            level = self.magnitude * once.stream("level").uniform(n)
            signed = torch.where(once.stream("sign").integers(0, 2, n) == 1, level, -level)
            x = _placed(x, which, signed)
            if self.photometric:
                x = _valued(x, which - 1 - len(PLACES), signed)
        return x


def _placed(x: Tensor, which: Tensor, signed: Tensor) -> Tensor:
    """Operations 1 to 5 on places; other images stay as they are, bit for bit."""
    rotate, shear_across, shear_down, move_across, move_down = (
        torch.where(which == k + 1, signed, 0.0) for k in range(len(PLACES))
    )
    cosine, sine = torch.cos(rotate * (math.pi / 6)), torch.sin(rotate * (math.pi / 6))
    height, width = x.shape[2:]
    parts = (cosine, 0.3 * shear_across - sine, 0.3 * width * move_across,
             0.3 * shear_down + sine, cosine, 0.3 * height * move_down)  # fmt: skip
    some = (which >= 1) & (which <= len(PLACES))
    return torch.where(_by_image(some), sampled(x, torch.stack(parts, 1)), x)


def _valued(x: Tensor, which: Tensor, signed: Tensor) -> Tensor:
    """Operations 0 to 6 on values; other images stay as they are, bit for bit."""
    chosen = {name: _by_image(which == k) for k, name in enumerate(VALUES)}
    unit, strength = (x.to(precision(x)) + 1) / 2, _by_image(signed)
    changed = _blended(unit, chosen, 1 + 0.9 * strength)
    changed = torch.where(chosen["autocontrast"], _stretched(unit), changed)
    changed = torch.where(chosen["posterize"], _posterized(unit, strength.abs()), changed)
    changed = torch.where(chosen["solarize"], torch.where(unit > 1 - strength.abs(), 1 - unit, unit), changed)
    return torch.where(_by_image(which >= 0), (2 * changed.clamp(0, 1) - 1).to(x.dtype), x)


def _blended(unit: Tensor, chosen: dict[str, Tensor], factor: Tensor) -> Tensor:
    """Away from (factor > 1) or towards black, the mean grey, the grey image or the smoothed image."""
    grey = _grey(unit)
    smooth = (9 * F.avg_pool2d(unit, 3, 1, 1, count_include_pad=False) + 4 * unit) / 13
    toward = torch.where(chosen["contrast"], grey.mean((2, 3), keepdim=True), torch.zeros_like(unit))
    toward = torch.where(chosen["saturation"], grey, toward)
    toward = torch.where(chosen["sharpness"], smooth, toward)
    return toward + (unit - toward) * factor


def _stretched(unit: Tensor) -> Tensor:
    """Each channel from its least and greatest value to 0 and 1."""
    low, high = unit.amin((2, 3), keepdim=True), unit.amax((2, 3), keepdim=True)
    return torch.where(high > low, (unit - low) / torch.where(high > low, high - low, 1.0), unit)


def _posterized(unit: Tensor, level: Tensor) -> Tensor:
    """Up to the 4 lowest of 8 bits dropped (no gradient)."""
    step = torch.exp2(torch.round(4 * level))
    return torch.floor(torch.round(255 * unit) / step) * step / 255


def _grey(unit: Tensor) -> Tensor:
    """Luminance (ITU-R 601) of three channels; the mean of any other number."""
    if unit.shape[1] != 3:
        return unit.mean(1, keepdim=True)
    return 0.299 * unit[:, 0:1] + 0.587 * unit[:, 1:2] + 0.114 * unit[:, 2:3]


def _by_image(values: Tensor) -> Tensor:
    return values[:, None, None, None]
