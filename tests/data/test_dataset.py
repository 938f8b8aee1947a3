"""The Dataset: what it refuses, what its hash depends on, and that memory-mapped arrays stay so."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ns3l.data.dataset import Dataset, chunks
from ns3l.errors import DataError


def images(rows: int = 6) -> Dataset:
    x = np.arange(rows * 48, dtype=np.uint32).astype(np.uint8).reshape(rows, 4, 4, 3)
    return Dataset("toy", x, np.array([0, 1, -1] * (rows // 3)), ("cat", "dog"), x[:2], np.array([0, 1]))


def test_sizes() -> None:
    data = images()
    assert len(data) == 6 and data.pool_size == 6 and data.is_image
    assert replace(data, x_extra=data.x[:4]).pool_size == 10


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": np.zeros((6, 4, 4, 3), np.float32)}, r"x must be uint8 images \[N, H, W, C\] or float32 features"),
        ({"x": np.zeros((6, 4), np.float64)}, r"got float64 \[6, 4\]"),
        ({"x": np.zeros((0, 4, 4, 3), np.uint8)}, "x is empty"),
        ({"x": [[1.0]]}, "must be a NumPy array, got list"),
        ({"y": np.zeros(5, np.int64)}, r"int64 array \[6\], one label a row, got int64 \[5\]"),
        ({"y": np.zeros(6, np.int32)}, r"got int32 \[6\]"),
        ({"y": np.full(6, 2)}, r"must lie in -1..1 \(-1 = unlabeled\), got 2..2"),
        ({"y": np.full(6, -2)}, "got -2..-2"),
        ({"y_test": np.array([0, -1])}, r"labels in y_test must lie in 0..1, got -1..0"),
        ({"y_test": None}, "come together"),
        ({"x_test": np.zeros((2, 5, 4, 3), np.uint8)}, r"x_test must hold uint8 rows of shape \[4, 4, 3\]"),
        ({"x_extra": np.zeros((2, 3), np.float32)}, "x_extra must hold uint8 rows"),
        ({"classes": ("cat",)}, "at least 2 classes"),
        ({"classes": ("cat", "cat")}, "more than once: cat"),
        ({"classes": ["cat", "dog"]}, "tuple of names, got list"),
        ({"folds": (np.array([0, 6]),)}, r"fold 0 must hold different row numbers in 0..5"),
        ({"folds": (np.array([0, 0]),)}, "different row numbers"),
        ({"folds": (np.array([0.0]),)}, "int64 array of row numbers"),
        ({"examples": ("a",)}, "each of the 6 rows, got 1"),
    ],
)
def test_refusals(change: dict, message: str) -> None:
    with pytest.raises(DataError, match=message):
        replace(images(), **change)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_features_name_their_row(bad: float) -> None:
    x = np.zeros((5, 3), np.float32)
    x[3, 1] = bad
    with pytest.raises(DataError, match="first in row 3"):
        Dataset("toy", x, np.zeros(5, np.int64), ("a", "b"))


def test_hash_sees_content_only() -> None:
    data = images()
    assert data.hash == images().hash and len(data.hash) == 64
    assert replace(data, name="other", examples=tuple("abcdef")).hash == data.hash
    assert replace(data, x=np.asfortranarray(data.x)).hash == data.hash


def test_hash_sees_every_part() -> None:
    data = images()
    x = data.x.copy()
    x[5, 3, 3, 2] ^= 1
    others = [
        replace(data, x=x),
        replace(data, y=np.roll(data.y, 1)),
        replace(data, classes=("dog", "cat")),
        replace(data, x_test=None, y_test=None),
        replace(data, x_extra=data.x_test),
        replace(data, folds=(np.array([0, 1]),)),
        replace(data, x=data.x.reshape(6, 2, 8, 3), x_test=None, y_test=None),
    ]
    assert len({data.hash, *(other.hash for other in others)}) == len(others) + 1


def test_golden_hash() -> None:
    data = Dataset("a", np.zeros((4, 3), np.float32), np.array([0, 1, -1, -1]), ("a", "b"))
    assert data.hash == "8bfc2f464b68e4847b4960bc8d9a78a868b8eea6218c92a357df7ff2f01a83f8"


def test_memory_map_is_kept(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", images().x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    data = replace(images(), x=mapped)
    assert data.x is mapped and isinstance(data.x, np.memmap)
    assert data.hash == images().hash


def test_chunks_cover_all_rows_once() -> None:
    array = np.arange(1000).reshape(100, 10)
    parts = list(chunks(array, 240))
    assert len(parts) == 34 and np.array_equal(np.concatenate(parts), array)
