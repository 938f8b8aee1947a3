"""Recipes by method and data: the papers' settings as functions, and measured defaults for one's own data."""

from ns3l.recipe import Recipe
from ns3l.recipes.own import own


def recipe(method: str, data: str, classes: int | None = None, shape: tuple[int, ...] | None = None) -> Recipe:
    """The recipe of a method on a known data set, or on data with so many classes and rows of such a shape."""
    known = {"digits": (10, (8, 8, 1))}
    if data in known:
        classes, shape = known[data]
    if classes is None or shape is None:
        raise ValueError(f"{data} is not a known data set: give classes=… and shape=… of a row")
    return own(method, data, classes, shape)
