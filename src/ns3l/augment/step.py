"""What an augmentation is."""

from abc import ABC, abstractmethod
from dataclasses import fields
from typing import Any, ClassVar

from torch import Tensor

from ns3l.draw import Draw
from ns3l.errors import RecipeError


class Step(ABC):
    """A random change of a batch; subclasses are frozen dataclasses of numbers.

    Every example gets its own draws, which belong to its position in a batch of this size; no example sees another.
    """

    name: ClassVar[str]
    images_only: ClassVar[bool] = False

    @abstractmethod
    def __call__(self, x: Tensor, draw: Draw) -> Tensor:
        """A changed batch of the same shape and dtype."""

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The range in which the values of x must lie, where that matters."""
        return None


def image_batch(x: Tensor, step: Step) -> tuple[int, int, int, int]:
    """The shape of a batch of images; ValueError for anything else."""
    if x.ndim != 4:
        raise ValueError(f'augmentation "{step.name}" is for images [N, C, H, W], got a batch {list(x.shape)}')
    n, channels, height, width = x.shape
    return n, channels, height, width


def check_number(step: Step, low: float, high: float, open_low: bool = False) -> None:
    """RecipeError unless every float field lies in [low, high]."""
    for part in fields(step):  # type: ignore[arg-type]
        value: Any = getattr(step, part.name)
        if part.type is not float:
            continue
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not low <= value <= high or (open_low and value == low):
            start = "(" if open_low else "["
            raise RecipeError(f'{part.name} of "{step.name}" must be a number in {start}{low}, {high}], got {value!r}')


def check_count(step: Step) -> None:
    """RecipeError unless every int field is a whole number of at least 1."""
    for part in fields(step):  # type: ignore[arg-type]
        value = getattr(step, part.name)
        if part.type is int and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise RecipeError(f'{part.name} of "{step.name}" must be a whole number of at least 1, got {value!r}')
