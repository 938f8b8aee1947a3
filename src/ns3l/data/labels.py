"""Labels as people write them (numbers, text, gaps) become int64 class numbers, -1 for unlabeled, and class names."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ns3l.errors import DataError

UNLABELED = -1
LONGEST = 1000


def encode(
    train: Any, test: Any = None, classes: Sequence[str] | None = None, name: str = "y"
) -> tuple[np.ndarray, np.ndarray | None, tuple[str, ...]]:
    """Class numbers of the train labels (-1 = unlabeled), of the test labels, and the class names.

    Unlabeled are -1, None, NaN and empty text. Classes are the labels in sorted order (numbers by value, text by
    letters); where `classes` is given, labels are these names or their positions.
    """
    values = plain_labels(train, name)
    test_values = None if test is None else plain_labels(test, f"{name} of the test part")
    known = [value for value in values if value is not None]
    if classes is None:
        _refuse_signs(known, name)
        order = _sorted(known, name)
        number: dict[Any, int] = {value: k for k, value in enumerate(order)}
        names = tuple(str(value) for value in order)
    else:
        names = tuple(str(label) for label in classes)
        number = {**{k: k for k in range(len(names))}, **{label: k for k, label in enumerate(names)}}
    y = _numbered(values, number, name, names)
    if test_values is None:
        return y, None, names
    _refuse_gaps(test_values, name)
    return y, _numbered(test_values, number, f"{name} of the test part", names), names


def parse_text(values: Iterable[str | None]) -> list[Any]:
    """Labels read from text: whole numbers where all of them are, else text; empty and nan are gaps."""
    stripped = (short(value or "").strip() for value in values)
    texts = [None if value.lower() in ("", "nan") else value for value in stripped]
    try:
        return [None if text is None else _whole_number(text) for text in texts]
    except ValueError:
        return list(texts)


def short(text: str, name: str = "y") -> str:
    """A label is a name; whole documents in its place are another column, and would be compared row by row."""
    if len(text) > LONGEST:
        raise DataError(f"{name}: a label of {len(text):,} characters, at most {LONGEST:,} are taken: {text[:40]!r}…")
    return text


def _whole_number(text: str) -> int:
    number = int(text.removesuffix(".0"))
    if str(number) != text.removesuffix(".0"):
        raise ValueError("leading zeros or signs make it text")
    return number


def plain_labels(labels: Any, name: str) -> list[Any]:
    """A list of str, int or None, whatever came in."""
    array = labels if isinstance(labels, np.ndarray) else np.asarray(list(labels), dtype=object)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        hint = "; give class numbers, for one-hot rows y.argmax(axis=1)" if array.ndim == 2 else ""
        raise DataError(f"{name}: expected one label a row, got an array of shape {list(array.shape)}{hint}")
    if array.dtype.kind not in "biufUSO":
        raise DataError(f"{name}: labels must be whole numbers or text, got {array.dtype}")
    return [_label(value, name) for value in array.tolist()]


def _label(value: Any, name: str) -> str | int | None:
    if value is None or (isinstance(value, float) and value != value) or type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, str):
        return None if short(value, name).strip() in ("", "-1") else value
    if isinstance(value, bool):
        return str(bool(value))
    if isinstance(value, int | float) and value == value // 1:
        return None if int(value) == UNLABELED else int(value)
    raise DataError(f"{name}: labels must be whole numbers or text, got {value!r}; this looks like regression")


def _refuse_signs(known: list[Any], name: str) -> None:
    if set(known) == {1}:
        raise DataError(
            f"{name}: the only labels are -1 and 1 (or 1 alone), and -1 means unlabeled here; "
            "if these are two classes, name them 0 and 1"
        )


def _sorted(known: list[Any], name: str) -> list[Any]:
    kinds = {type(value) for value in known}
    if len(kinds) > 1:
        few = ", ".join(repr(next(value for value in known if isinstance(value, kind))) for kind in (int, str))
        raise DataError(f"{name}: numbers and text are mixed, as in {few}; use one kind of label")
    if len(set(known)) < 2:
        raise DataError(f"{name}: at least 2 classes are needed, found {sorted(set(known)) or 'none'}")
    return sorted(set(known))


def _numbered(values: list[Any], number: dict[Any, int], name: str, classes: tuple[str, ...]) -> np.ndarray:
    unknown = sorted({str(value) for value in values if value is not None and value not in number})
    if unknown:
        some = ", ".join(unknown[:10]) + (" …" if len(unknown) > 10 else "")
        known = ", ".join(classes[:10]) + (" …" if len(classes) > 10 else "")
        raise DataError(f"{name}: labels that no labeled training example has: {some}; the classes are {known}")
    return np.fromiter((UNLABELED if v is None else number[v] for v in values), np.int64, len(values))


def _refuse_gaps(test: list[Any], name: str) -> None:
    gaps = sum(value is None for value in test)
    if gaps:
        raise DataError(f"{name} of the test part: {gaps} of {len(test)} labels are missing; every test row needs one")
