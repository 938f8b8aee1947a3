"""Recipes by method and data: the papers' settings as functions, and measured defaults for one's own data."""

import difflib
from collections.abc import Mapping

from ns3l.errors import RecipeError
from ns3l.methods import terms_of
from ns3l.recipe import Recipe
from ns3l.recipes import mixing as _mixing
from ns3l.recipes import realistic as _realistic
from ns3l.recipes.fashion import fashion
from ns3l.recipes.items import ITEMS, PUBLISHED, Item
from ns3l.recipes.mixing import mixing
from ns3l.recipes.override import FAST, describe, fast, override, settable
from ns3l.recipes.own import own
from ns3l.recipes.realistic import realistic

__all__ = [
    "FAST",
    "ITEMS",
    "PUBLISHED",
    "SHAPES",
    "Item",
    "describe",
    "fast",
    "fashion",
    "mixing",
    "override",
    "own",
    "realistic",
    "recipe",
    "settable",
]

SHAPES: Mapping[str, tuple[int, tuple[int, ...]]] = {
    "cifar10": (10, (32, 32, 3)),
    "cifar100": (100, (32, 32, 3)),
    "svhn": (10, (32, 32, 3)),
    "stl10": (10, (96, 96, 3)),
    "mnist": (10, (28, 28, 1)),
    "fashion-mnist": (10, (28, 28, 1)),
    "digits": (10, (8, 8, 1)),
}
"""Classes and rows, (height, width, channels), of the known data sets."""
PROTOCOLS: Mapping[str, str] = {"A": _realistic.PROTOCOL, "B": _mixing.PROTOCOL, "own": "own"}
"""Protocols as they are asked for, and how recipes name them."""


def recipe(
    method: str,
    data: str = "cifar10",
    labels: int | float | None = None,
    classes: int | None = None,
    shape: tuple[int, ...] | None = None,
    schedule: float = 1.0,
    protocol: str | None = None,
) -> Recipe:
    """The recipe of a method on a known data set, or on data with so many classes and rows of such a shape.

    `protocol` "A" is the realistic evaluation (CIFAR, SVHN), "B" MixMatch's, "own" our defaults; None takes the one in
    which the method was published on these data. `schedule` times all step counts.
    """
    if protocol not in (None, *PROTOCOLS):
        raise RecipeError(f"protocol must be one of {', '.join(PROTOCOLS)} or None, got {protocol!r}")
    known = SHAPES.get(data)
    if known is None and (classes is None or shape is None):
        raise RecipeError(_unknown(data))
    given = (classes, None if shape is None else tuple(shape))
    if known is not None and any(mine not in (None, theirs) for mine, theirs in zip(given, known, strict=True)):
        known, protocol = None, "own"  # one's own data by a known name
    classes, shape = known or (classes, given[1])
    return _published(method, data, labels, classes, shape, protocol).scaled(schedule)  # type: ignore[arg-type]


def _published(
    method: str, data: str, labels: int | float | None, classes: int, shape: tuple[int, ...], protocol: str | None
) -> Recipe:
    """By protocol, else by where such a method was published on such data, else our defaults."""
    terms, builder = terms_of(method, classes)
    mixes = builder is not None or "ict" in terms
    tuned = not mixes and not set(terms) - set(_realistic.WEIGHTS)
    if protocol == "A" or (protocol is None and data in _realistic.BENCHMARKS and tuned):
        return realistic(method, data, labels)
    fits = (mixes or len(terms) == 1) and not set(terms) - set(_mixing.PARTS)
    if protocol == "B" or (protocol is None and data in _mixing.BENCHMARKS and fits):
        return mixing(method, data, labels)
    if protocol is None and data == "fashion-mnist":
        return fashion(method, labels)
    return own(method, data, classes, shape, labels=labels)


def _unknown(data: str) -> str:
    near = difflib.get_close_matches(data, SHAPES, 1)
    advice = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(SHAPES)}."
    return f"{data!r} is not a known data set; {advice} For other data give classes=… and shape=… of a row"
