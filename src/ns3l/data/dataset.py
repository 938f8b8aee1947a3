"""The one shape in which every data set, known or your own, reaches the rest of the library."""

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ns3l.errors import DataError

CHUNK_BYTES = 1 << 24


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images (uint8 [N, H, W, C]) or features (float32 [N, D]) with labels; -1 stands for unlabeled.

    Arrays may be memory-mapped; they are never copied. Row i of `x_extra` is row len(x) + i of the pool.
    """

    name: str
    x: np.ndarray
    y: np.ndarray
    classes: tuple[str, ...]
    x_test: np.ndarray | None = None
    y_test: np.ndarray | None = None
    x_extra: np.ndarray | None = None
    folds: tuple[np.ndarray, ...] = ()
    examples: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse shapes, dtypes, labels and values that would only fail later, inside a run."""
        _check_classes(self.name, self.classes)
        _check_rows(self.name, "x", self.x)
        _check_labels(self.name, "y", self.y, len(self.x), len(self.classes), lowest=-1)
        self._check_test()
        if self.x_extra is not None:
            _check_rows(self.name, "x_extra", self.x_extra, like=self.x)
        for k, fold in enumerate(self.folds):
            _check_fold(self.name, k, fold, len(self.x))
        if self.examples and len(self.examples) != len(self.x):
            raise DataError(f"{self.name}: examples must name each of the {len(self.x)} rows, got {len(self.examples)}")

    def _check_test(self) -> None:
        if (self.x_test is None) != (self.y_test is None):
            raise DataError(f"{self.name}: x_test and y_test come together; one of them is missing")
        if self.x_test is not None and self.y_test is not None:
            _check_rows(self.name, "x_test", self.x_test, like=self.x)
            _check_labels(self.name, "y_test", self.y_test, len(self.x_test), len(self.classes), lowest=0)

    def __len__(self) -> int:
        """Rows of `x`, labeled or not; extra rows are not counted."""
        return len(self.x)

    @property
    def pool_size(self) -> int:
        """Rows of `x` and `x_extra` together."""
        return len(self.x) + (0 if self.x_extra is None else len(self.x_extra))

    @property
    def is_image(self) -> bool:
        """Whether rows are images, not feature vectors."""
        return self.x.ndim == 4

    @cached_property
    def hash(self) -> str:
        """SHA-256 over classes and every array: its name, dtype, shape and bytes (not over where it is stored)."""
        digest = hashlib.sha256(repr(("ns3l-dataset-1", self.classes)).encode())
        for part, array in self._parts():
            digest.update(repr((part, str(array.dtype), array.shape)).encode())
            for chunk in chunks(array):
                digest.update(np.ascontiguousarray(chunk).view(np.uint8).data)
        return digest.hexdigest()

    def _parts(self) -> Iterator[tuple[str, np.ndarray]]:
        for part in ("x", "y", "x_test", "y_test", "x_extra"):
            array = getattr(self, part)
            if array is not None:
                yield part, array
        for k, fold in enumerate(self.folds):
            yield f"fold-{k}", fold


def chunks(array: np.ndarray, size: int = CHUNK_BYTES) -> Iterator[np.ndarray]:
    """Views of consecutive rows of about `size` bytes, so that a memory-mapped array is never read whole."""
    row = max(1, array.nbytes // max(1, len(array)))
    step = max(1, size // row)
    for start in range(0, len(array), step):
        yield array[start : start + step]


def _check_classes(name: str, classes: tuple[str, ...]) -> None:
    if not isinstance(classes, tuple) or not all(isinstance(label, str) for label in classes):
        raise DataError(f"{name}: classes must be a tuple of names, got {type(classes).__name__}")
    if len(classes) < 2:
        raise DataError(f"{name}: at least 2 classes are needed, got {len(classes)}: {classes!r}")
    if len(set(classes)) != len(classes):
        twice = [label for label, count in Counter(classes).most_common(5) if count > 1]
        raise DataError(f"{name}: class names must differ; more than once: {', '.join(twice)}")


def _check_rows(name: str, part: str, rows: np.ndarray, like: np.ndarray | None = None) -> None:
    if not isinstance(rows, np.ndarray):
        raise DataError(f"{name}: {part} must be a NumPy array, got {type(rows).__name__}")
    fits = (rows.dtype == np.uint8 and rows.ndim == 4) or (rows.dtype == np.float32 and rows.ndim == 2)
    if not fits:
        expected = "uint8 images [N, H, W, C] or float32 features [N, D]"
        raise DataError(f"{name}: {part} must be {expected}, got {rows.dtype} {list(rows.shape)}")
    if 0 in rows.shape:
        raise DataError(f"{name}: {part} is empty: its shape is {list(rows.shape)}")
    if like is not None and (rows.dtype != like.dtype or rows.shape[1:] != like.shape[1:]):
        wanted = f"{like.dtype} rows of shape {list(like.shape[1:])}, as x has"
        raise DataError(f"{name}: {part} must hold {wanted}, got {rows.dtype} {list(rows.shape[1:])}")
    if rows.dtype == np.float32:
        _check_finite(name, part, rows)


def _check_finite(name: str, part: str, rows: np.ndarray) -> None:
    seen = 0
    for chunk in chunks(rows):
        bad = ~np.isfinite(chunk).all(axis=1)
        if bad.any():
            row = seen + int(bad.argmax())
            raise DataError(f"{name}: {part} holds NaN or infinity, first in row {row}; fill in or drop such rows")
        seen += len(chunk)


def _check_labels(name: str, part: str, y: np.ndarray, rows: int, classes: int, lowest: int) -> None:
    if not isinstance(y, np.ndarray) or y.dtype != np.int64 or y.shape != (rows,):
        got = f"{y.dtype} {list(y.shape)}" if isinstance(y, np.ndarray) else type(y).__name__
        raise DataError(f"{name}: {part} must be an int64 array [{rows}], one label a row, got {got}")
    low, high = int(y.min()), int(y.max())
    if low < lowest or high >= classes:
        allowed = f"{lowest}..{classes - 1}" + (" (-1 = unlabeled)" if lowest == -1 else "")
        raise DataError(f"{name}: labels in {part} must lie in {allowed}, got {low}..{high}")


def _check_fold(name: str, k: int, fold: np.ndarray, rows: int) -> None:
    if not isinstance(fold, np.ndarray) or fold.dtype != np.int64 or fold.ndim != 1 or not len(fold):
        raise DataError(f"{name}: fold {k} must be a non-empty int64 array of row numbers")
    if fold.min() < 0 or fold.max() >= rows or len(np.unique(fold)) != len(fold):
        raise DataError(f"{name}: fold {k} must hold different row numbers in 0..{rows - 1}")
