"""Single settings of a recipe by path: change them, list them, say where each comes from.

A path begins with the name of a term (`ns3l.weight`, `ns3l.negatives.threshold`) or of a field of the recipe
(`optimizer.lr`, `network.options.depth`).
"""

import difflib
import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ns3l.errors import RecipeError
from ns3l.recipe import Recipe
from ns3l.structure import plain

FIXED = ("method", "data", "classes", "protocol", "schedule", "sources")
"""Fields that follow from the choice of a recipe."""
GIVEN = "set by the user"
"""The source of an overridden setting."""
FAST = {"execution.precision": "bf16", "execution.channels_last": True}
"""The settings that graphics cards like."""


def override(recipe: Recipe, settings: Mapping[str, Any]) -> Recipe:
    """The recipe with settings changed by path, checked as a whole.

    Text is read as JSON where that is possible, so that "0.05" is a number. A number for a schedule is its value; a
    name for something of several kinds (optimizer=sgd) is that kind with its defaults.
    """
    values, changed = _open(recipe), []
    for path, value in settings.items():
        changed.append(_set(values, path, value, _paths(recipe, values)))
    terms = {name: values.pop(name) for name in recipe.terms}
    values["terms"] = {name: {"weight": held.pop("weight"), "term": held} for name, held in terms.items()}
    kept = {path: source for path, source in recipe.sources.items() if not _below(path, changed)}
    values["sources"] = kept | dict.fromkeys(changed, GIVEN)
    return _closed(values)


def settable(recipe: Recipe) -> list[str]:
    """Every path that `override` takes for this recipe."""
    return _paths(recipe, _open(recipe))


def describe(recipe: Recipe) -> list[tuple[str, Any, str]]:
    """Every setting as (path, value, where it comes from); of what is one of several kinds the kind stands first."""
    tree = {name: value for name, value in _tree(recipe).items() if name != "sources"}
    return [
        (path, value["kind"] if _inner(value) else value, source(recipe, path))
        for path, value in _nodes(tree, "")
        if path and (not _inner(value) or "kind" in value)
    ]


def source(recipe: Recipe, path: str) -> str:
    """Where a setting comes from: what is said of it or of the nearest path above it, else that it is a default."""
    if path in FIXED:
        return ""
    while path and path not in recipe.sources:
        path = path.rpartition(".")[0]
    return recipe.sources.get(path, "default")


def fast(recipe: Recipe) -> Recipe:
    """The recipe as graphics cards like it: half precision, channels last; still deterministic."""
    return override(recipe, FAST)


def _tree(recipe: Recipe) -> dict[str, Any]:
    """The recipe as JSON-ready values, each term a field of its own beside the others, its weight among its fields."""
    values = recipe.to_dict()
    terms = {name: {"weight": entry["weight"], **entry["term"]} for name, entry in values.pop("terms").items()}
    head = {name: values.pop(name) for name in ("method", "data", "classes")}
    return head | terms | values


def _open(recipe: Recipe) -> dict[str, Any]:
    """The tree, with every option that the network could have."""
    values = _tree(recipe)
    values["network"]["options"] = dict.fromkeys(recipe.network.possible) | values["network"]["options"]
    return values


def _closed(values: dict[str, Any]) -> Recipe:
    """The recipe of such values, without options that were left open."""
    network = values["network"]
    if isinstance(network, dict) and isinstance(network.get("options"), dict):
        network["options"] = {name: value for name, value in network["options"].items() if value is not None}
    return Recipe.from_dict(values)


def _paths(recipe: Recipe, values: dict[str, Any]) -> list[str]:
    paths = [path for path, _ in _nodes(values, "") if path.split(".")[0] not in (*FIXED, "")]
    return [path for path in paths if path not in recipe.terms]


def _inner(value: Any) -> bool:
    return isinstance(value, dict | list) and len(value) > 0 and not _numbers(value)


def _numbers(value: Any) -> bool:
    return isinstance(value, list) and not any(isinstance(item, dict | list) for item in value)


def _nodes(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every path with its value, from the outside in."""
    yield path, value
    items = value.items() if isinstance(value, dict) else enumerate(value) if _inner(value) else ()
    for name, item in items:
        if name != "kind":
            yield from _nodes(item, f"{path}.{name}" if path else str(name))


def _below(path: str, tops: list[str]) -> bool:
    return any(path == top or path.startswith(f"{top}.") for top in tops)


def _set(values: dict[str, Any], path: object, value: Any, known: list[str]) -> str:
    """Put a value in its place; the path at which it then stands."""
    if path not in known:
        raise RecipeError(unknown(str(path), known))
    path = f"{path}.value" if f"{path}.value" in known and _is_number(_read(value)) else str(path)
    *way, last = path.split(".")
    place: Any = values
    for name in way:
        place = place[int(name)] if isinstance(place, list) else place.get(name)
    key = int(last) if isinstance(place, list) else last
    place[key] = _value(path, value, place[key])
    return path


def _value(path: str, value: Any, now: Any) -> Any:
    """What to put in place of a present value."""
    value = _read(value) if not isinstance(now, str) else value
    value = _plain(path, value)
    if not isinstance(now, dict):
        return value
    for name in ("kind", "name"):
        if name in now and isinstance(value, str):
            return now if now[name] == value else {name: value}
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def _read(value: Any) -> Any:
    """Text as the JSON that it may be."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _plain(path: str, value: Any) -> Any:
    """A value as JSON has it; settings of the library's own kinds and of NumPy are turned into that."""
    value = value.item() if isinstance(value, np.generic) else plain(value)
    try:
        json.dumps(value)
    except (TypeError, ValueError) as problem:
        raise RecipeError(f"{path} must be a number, text or a mapping of such, got {value!r}") from problem
    return value


def unknown(path: str, known: list[str]) -> str:
    """What to say of a path that is none of those known."""
    if path.split(".")[0] in FIXED:
        return f"{path} follows from the choice of a recipe and cannot be set; choose another recipe"
    near = difflib.get_close_matches(path, known, 1, cutoff=0.5)
    tops = sorted({name.split(".")[0] for name in known})
    advice = f"did you mean {near[0]!r}?" if near else f"paths begin with {', '.join(tops)}"
    return f"there is no setting {path!r}; {advice}"
