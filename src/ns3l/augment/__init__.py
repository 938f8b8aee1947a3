"""Augmentation on the device: pure batched functions of a batch and a draw.

A step is a frozen dataclass `step(x, draw) -> x`: x is floating point, [N, C, H, W] or (where a step allows it) [N, D];
shape and dtype stay. Nothing asks the host, no shape depends on data, gradients reach x (steps that round have none).
"""

from dataclasses import dataclass

from torch import Tensor

from ns3l.augment.geometric import Crop, Flip, Shift
from ns3l.augment.photometric import Cutout, Mask, Noise
from ns3l.augment.step import Step
from ns3l.augment.strong import Strong
from ns3l.draw import Draw
from ns3l.errors import RecipeError
from ns3l.preprocess import Preprocessing

AUGMENTATIONS: dict[str, type[Step]] = {
    step.name: step for step in (Shift, Flip, Crop, Noise, Mask, Cutout, Strong)
}  # fmt: skip


@dataclass(frozen=True)
class Augmentation:
    """Steps in their order; none leave the batch as it is. Step i draws from the stream "i-name"."""

    steps: tuple[Step, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.steps, tuple) or not all(isinstance(step, Step) for step in self.steps):
            raise RecipeError(
                f"an augmentation takes a tuple of steps ({', '.join(AUGMENTATIONS)}), got {self.steps!r}"
            )

    def __call__(self, x: Tensor, draw: Draw) -> Tensor:
        """The batch after every step."""
        for i, step in enumerate(self.steps):
            x = step(x, draw.stream(f"{i}-{step.name}"))
        return x

    def check(self, preprocessing: Preprocessing, shape: tuple[int, ...]) -> None:
        """RecipeError where a step cannot work on stored rows of this shape after this preprocessing."""
        for step in self.steps:
            if step.images_only and len(shape) != 3:
                possible = ", ".join(name for name, kind in AUGMENTATIONS.items() if not kind.images_only)
                raise RecipeError(f'augmentation "{step.name}" is for images, the data are features: use {possible}')
            if step.bounds is not None and step.bounds != preprocessing.bounds:
                raise RecipeError(
                    f'augmentation "{step.name}" changes brightness and color and needs values in {list(step.bounds)}, '
                    f'but preprocessing is "{preprocessing.name}": take preprocessing "scale", or photometric=False'
                )


__all__ = ["AUGMENTATIONS", "Augmentation", "Crop", "Cutout", "Flip", "Mask", "Noise", "Shift", "Step", "Strong"]
