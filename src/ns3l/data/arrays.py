"""Arrays as data sets: from Python, from `.npz`, from `.npy` files that lie side by side. Nothing is unpickled."""

import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ns3l.data.dataset import Dataset, chunks
from ns3l.data.labels import encode
from ns3l.errors import DataError

KEYS = ("X", "y", "X_test", "y_test", "X_unlabeled", "classes")
LEVELS = 255.0


def from_arrays(
    x: Any,
    y: Any,
    x_test: Any = None,
    y_test: Any = None,
    x_unlabeled: Any = None,
    *,
    classes: Sequence[str] | None = None,
    quantize: bool = False,
    name: str = "arrays",
) -> Dataset:
    """A data set of rows and labels; labels that are -1, None, NaN or empty are unlabeled.

    Two dimensions are features (float32), [N, H, W] and [N, H, W, C] are images (uint8). Other images are turned
    into uint8 by themselves where nothing is lost: whole numbers 0 to 255, booleans, or floats that are such numbers
    divided by 255. Floats in [0, 1] that would be rounded need `quantize=True`.
    """
    rows = to_rows(x, "X", quantize)
    if (x_test is None) != (y_test is None):
        raise DataError(f"{name}: X_test and y_test come together; one of them is missing")
    numbers, test_numbers, names = encode(y, y_test, classes)
    return Dataset(
        name=name,
        x=rows,
        y=numbers,
        classes=names,
        x_test=None if x_test is None else to_rows(x_test, "X_test", quantize),
        y_test=test_numbers,
        x_extra=None if x_unlabeled is None or not len(x_unlabeled) else to_rows(x_unlabeled, "X_unlabeled", quantize),
    )


def load_arrays(
    path: str | Path,
    *,
    y: str | Path | None = None,
    classes: Sequence[str] | None = None,
    quantize: bool = False,
    name: str | None = None,
) -> Dataset:
    """Read an `.npz` with X, y and, where there are any, X_test, y_test, X_unlabeled, classes; or `X.npy`.

    Beside `X.npy` the other parts are looked for as `y.npy`, `X_test.npy` …; `y` names another file of labels. Such
    files are memory-mapped.
    """
    path = Path(path)
    parts = _members(path) if path.suffix.lower() == ".npz" else _side_by_side(path, y)
    if "X" not in parts or "y" not in parts:
        raise DataError(f"{path}: expected the arrays X and y, found {', '.join(sorted(parts)) or 'none'}")
    named = parts.get("classes")
    return from_arrays(
        *(parts.get(key) for key in KEYS[:5]),
        classes=classes if classes is not None or named is None else [str(label) for label in named.tolist()],
        quantize=quantize,
        name=name or path.stem,
    )


def _members(path: Path) -> dict[str, np.ndarray]:
    _refuse_special(path)
    try:
        with zipfile.ZipFile(path) as archive:
            refuse_bomb(path, sum(member.file_size for member in archive.infolist()))
            names = [member.removesuffix(".npy") for member in archive.namelist()]
        keys = _keys(path, names)
        with np.load(path, allow_pickle=False) as archive:
            return {key: archive[member] for key, member in keys.items()}
    except DataError:
        raise
    except (Exception, MemoryError) as error:
        raise _unreadable(path, error) from error


def _refuse_special(path: Path) -> None:
    if path.exists() and not path.is_file():
        raise DataError(f"{path}: not a regular file; copy its content into one")


def _keys(path: Path, names: list[str]) -> dict[str, str]:
    """What each member is; letter case does not matter, and a name that means nothing is not passed over."""
    wanted = {key.lower(): key for key in KEYS}
    strange = [name for name in names if name.lower() not in wanted]
    if strange:
        raise DataError(f"{path}: unknown arrays {', '.join(sorted(strange))}; expected {', '.join(KEYS)}")
    return {wanted[name.lower()]: name for name in names}


def _side_by_side(path: Path, y: str | Path | None) -> dict[str, np.ndarray]:
    files = {key: path.with_name(f"{key}.npy") for key in KEYS[1:]}
    files = {key: file for key, file in files.items() if file.exists()} | {"X": path}
    if y is not None:
        files["y"] = Path(y)
    if "y" not in files:
        raise DataError(f"{path}: no labels; put them into {path.with_name('y.npy')} or name their file with y=")
    return {key: _mapped(file) for key, file in files.items()}


def _mapped(path: Path) -> np.ndarray:
    _refuse_special(path)
    try:
        with path.open("rb") as start:
            if start.read(6) != b"\x93NUMPY":
                raise DataError(f"{path}: not an .npy file")
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except DataError:
        raise
    except (Exception, MemoryError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: BaseException) -> DataError:
    if isinstance(error, FileNotFoundError):
        return DataError(f"{path}: no such file")
    if "allow_pickle" in str(error) or "Python objects" in str(error):
        return DataError(f"{path}: holds Python objects, which are not read; save plain arrays of numbers or text")
    return DataError(f"{path}: damaged, or not an array file: {error or type(error).__name__}")


def refuse_bomb(path: Path, size: int, what: str = "unpacked it takes") -> None:
    """Refuse a file whose content would take more than half of the memory: a small file can unfold to any size."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 1 << 40
    if size > memory / 2:
        raise DataError(
            f"{path}: {what} about {size / 1e9:,.1f} GB, too much for the {memory / 1e9:,.1f} GB of this machine; "
            "save the rows as .npy files, which are memory-mapped"
        )


def to_rows(values: Any, part: str, quantize: bool = False) -> np.ndarray:
    """Features float32 [N, D] or images uint8 [N, H, W, C]; what already is one of these is not copied."""
    array = values if isinstance(values, np.ndarray) else np.asarray(values)
    if array.dtype.kind not in "buif":
        raise DataError(f"{part}: expected numbers, got {array.dtype}; turn text and categories into numbers first")
    if array.ndim not in (2, 3, 4):
        expected = "features [N, D] or images [N, H, W] or [N, H, W, C]"
        raise DataError(f"{part}: expected {expected}, got an array of shape {list(array.shape)}")
    if not array.size:
        raise DataError(f"{part}: is empty, its shape is {list(array.shape)}")
    return _features(array, part) if array.ndim == 2 else _images(array, part, quantize)


def _features(array: np.ndarray, part: str) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore"):
        rows = array if array.dtype == np.float32 else array.astype(np.float32)
    bad_rows, bad_columns = 0, np.zeros(rows.shape[1], bool)
    for chunk in chunks(rows):
        bad = ~np.isfinite(chunk)
        bad_rows += int(bad.any(axis=1).sum())
        bad_columns |= bad.any(axis=0)
    if bad_rows:
        columns = np.flatnonzero(bad_columns)
        some = ", ".join(map(str, columns[:10])) + (" …" if len(columns) > 10 else "")
        raise DataError(
            f"{part}: NaN or infinite values in {bad_rows} of {len(rows)} rows and {len(columns)} of {rows.shape[1]} "
            f"columns ({some}); fill them in (for example with scikit-learn's SimpleImputer) or drop them"
        )
    return rows


def _images(array: np.ndarray, part: str, quantize: bool) -> np.ndarray:
    images = array[..., None] if array.ndim == 3 else array
    if images.shape[1] in (1, 3) and images.shape[3] > 4:
        raise DataError(
            f"{part}: expected channels last, [N, H, W, C], got {list(images.shape)}, which looks like channels first; "
            f"give {part}.transpose(0, 2, 3, 1)"
        )
    if images.dtype == np.uint8:
        return images
    rows = np.empty(images.shape, np.uint8)
    scale = _scale(images, part, quantize)
    done = 0
    for chunk in chunks(images):
        rows[done : done + len(chunk)] = np.rint(chunk * scale).astype(np.uint8)
        done += len(chunk)
    return rows


def _scale(images: np.ndarray, part: str, quantize: bool) -> float:
    """The factor that makes 0 … 255 of the values; refuses what is out of range or, unless told, would be rounded."""
    low = min(float(chunk.min()) for chunk in chunks(images))
    high = max(float(chunk.max()) for chunk in chunks(images))
    if not (low >= 0 and high <= LEVELS):  # also NaN
        raise DataError(f"{part}: image values must lie in 0..255 or 0..1, got {low:g}..{high:g}; rescale them first")
    scale = LEVELS if images.dtype.kind in "bf" and high <= 1 else 1.0
    exact = all(np.abs(np.rint(c := chunk * scale) - c).max() < 1e-3 for chunk in chunks(images))
    if not exact and not (quantize and high <= 1):
        advice = "quantize=True rounds them" if high <= 1 else "round them to whole numbers"
        raise DataError(
            f"{part}: images are kept as uint8, and these {images.dtype} values in {low:g}..{high:g} are no multiples "
            f"of 1/255 or whole numbers; {advice}, or give features [N, D] instead"
        )
    return scale
