"""Settings to and from JSON-ready values, strictly: errors say where, what was expected and what came."""

import difflib
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ns3l.augment import AUGMENTATIONS
from ns3l.augment.step import Step
from ns3l.errors import RecipeError
from ns3l.mixmatch import BUILDERS
from ns3l.negatives import SELECTORS, Selector
from ns3l.objective import Builder, Term
from ns3l.optimize import OPTIMIZERS, Optimizer
from ns3l.preprocess import PREPROCESSING, Preprocessing
from ns3l.schedule import SCHEDULES, Schedule
from ns3l.terms import TERMS


@cache
def _registries() -> dict[type, Mapping[str, type]]:
    return {
        Term: TERMS,
        Selector: SELECTORS,
        Schedule: SCHEDULES,
        Builder: BUILDERS,
        Preprocessing: PREPROCESSING,
        Step: AUGMENTATIONS,
        Optimizer: OPTIMIZERS,
    }


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def plain(value: Any) -> Any:
    """Dataclasses as dictionaries, with `kind` where a registry names the class."""
    if is_dataclass(value) and not isinstance(value, type):
        held = {f.name: plain(getattr(value, f.name)) for f in fields(value) if f.init}
        for registered in _registries().values():
            for name, kind in registered.items():
                if type(value) is kind:
                    return {"kind": name, **held}
        return held
    if isinstance(value, Mapping):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return value


def structure(value: Any, kind: Any, path: str) -> Any:
    """A typed value of JSON-ready ones, or one that is typed already, checked in the same way."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _structure_union(value, get_args(kind), path)
    if isinstance(kind, type) and isinstance(value, kind) and is_dataclass(value):
        return _checked(value, kind, path)
    if kind in _registries():
        return _structure_kind(value, kind, path)
    if isinstance(kind, type) and is_dataclass(kind):
        return _structure_fields(value, kind, path)
    if origin is Literal:
        return _choice(value, get_args(kind), path)
    if origin in (tuple, list):
        return _structure_sequence(value, kind, path)
    if origin is dict:
        _expect(isinstance(value, Mapping), path, "a mapping", value)
        return {name: structure(item, get_args(kind)[1], f"{path}.{name}") for name, item in value.items()}
    return _structure_scalar(value, kind, path)


def _checked(value: Any, kind: type, path: str) -> Any:
    """A typed value whose fields hold what they may; what is of a class of one's own is left alone."""
    own: Any = type(value)
    if own is kind or own in _registries().get(kind, {}).values():
        hints = _hints(own)
        for f in fields(value):
            structure(getattr(value, f.name), hints[f.name], f"{path}.{f.name}")
    return value


def _structure_union(value: Any, kinds: tuple[Any, ...], path: str) -> Any:
    if value is None and type(None) in kinds:
        return None
    mapping = isinstance(value, Mapping) or is_dataclass(value)
    by_form = [k for k in kinds if k is not type(None) and mapping == _is_mapping(k)]
    if len(by_form) == 1 and (_is_mapping(by_form[0]) or get_origin(by_form[0])):
        return structure(value, by_form[0], path)
    for kind in by_form:
        try:
            return structure(value, kind, path)
        except RecipeError:
            continue
    raise RecipeError(f"{path} must be {' or '.join(dict.fromkeys(map(_said, kinds)))}, got {value!r}")


def _is_mapping(kind: Any) -> bool:
    return kind in _registries() or is_dataclass(kind) or get_origin(kind) is dict


def _said(kind: Any) -> str:
    """A kind in words."""
    if get_origin(kind) is Literal:
        return " or ".join(map(repr, get_args(kind)))
    words = {float: "a number", int: "a whole number", bool: "true or false", str: "text", type(None): "null"}
    if isinstance(kind, type) and is_dataclass(kind):
        return f"a mapping ({kind.__name__})"
    return "a list" if get_origin(kind) in (tuple, list) else words.get(kind, "a mapping")


def _structure_kind(value: Any, kind: type, path: str) -> Any:
    registered = _registries()[kind]
    kinds = f"a mapping with a kind ({', '.join(registered)})"
    _expect(isinstance(value, Mapping) and "kind" in value, path, kinds, value)
    name = _choice(value["kind"], tuple(registered), f"{path}.kind")
    return _structure_fields({k: v for k, v in value.items() if k != "kind"}, registered[name], path)


def _structure_fields(value: Any, kind: type, path: str) -> Any:
    _expect(isinstance(value, Mapping), path, _said(kind), value)
    held = [f for f in fields(kind) if f.init]
    names = [f.name for f in held]
    for name in value:
        if name not in names:
            near = difflib.get_close_matches(str(name), names, 1)
            advice = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names) or 'none'}"
            raise RecipeError(f"{path} has no setting {name!r}; {advice}")
    lacking = [f.name for f in held if f.name not in value and f.default is f.default_factory is MISSING]
    if lacking:
        raise RecipeError(f"{path} lacks {', '.join(lacking)}")
    hints = _hints(kind)
    settings = {name: structure(item, hints[name], f"{path}.{name}") for name, item in value.items()}
    try:
        return kind(**settings)
    except RecipeError:
        raise
    except (TypeError, ValueError) as problem:
        raise RecipeError(f"{path}: {problem}") from problem


def _structure_sequence(value: Any, kind: Any, path: str) -> Any:
    _expect(isinstance(value, list | tuple), path, "a list", value)
    kinds = get_args(kind)
    if get_origin(kind) is list or kinds[-1] is Ellipsis:
        kinds = (kinds[0],) * len(value)
    _expect(len(kinds) == len(value), path, f"{len(kinds)} values", value)
    made = [structure(item, k, f"{path}[{i}]") for i, (item, k) in enumerate(zip(value, kinds, strict=True))]
    return made if get_origin(kind) is list else tuple(made)


def _structure_scalar(value: Any, kind: Any, path: str) -> Any:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    fits = isinstance(value, kind) and not (isinstance(value, bool) and kind is not bool)
    _expect(fits, path, _said(kind), value)
    return value


def _choice(value: Any, names: tuple[Any, ...], path: str) -> Any:
    if value not in names:
        near = difflib.get_close_matches(str(value), [str(name) for name in names], 1)
        advice = f"; did you mean {near[0]!r}?" if near else ""
        raise RecipeError(f"{path} must be one of {', '.join(map(repr, names))}, got {value!r}{advice}")
    return value


def _expect(holds: bool, path: str, what: object, value: Any) -> None:
    if not holds:
        raise RecipeError(f"{path} must be {what}, got {value!r}")
