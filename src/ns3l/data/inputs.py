"""Rows to predict, read block by block: arrays and tables of any size in bounded memory."""

import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np

from ns3l.data.arrays import to_rows
from ns3l.data.frames import LABEL_NAMES, MISSING, SPLIT, open_parquet
from ns3l.errors import DataError

Rows = Iterator[tuple[Sequence[str], np.ndarray]]


def array_rows(path: Path, shape: tuple[int, ...], rows: int) -> Rows:
    """Numbered rows of an .npy file, or of X (or the only array) in an .npz file, as a model stores them."""
    factor = _factor(path, shape, rows) if len(shape) == 3 else 1.0
    done = 0
    for block in _array(path, shape, rows):
        x = block.reshape(len(block), *shape)
        yield _numbers(done, len(x)), _stored(path, x, factor, done)
        done += len(x)
    if not done:
        raise DataError(f"{path}: it has no rows")


def _stored(path: Path, x: np.ndarray, factor: float, done: int) -> np.ndarray:
    if x.ndim == 4:
        return x if x.dtype == np.uint8 else np.rint(x * factor).astype(np.uint8)
    return _finite(path, to_rows, x, done)


def _finite(path: Path, convert: Callable[[Any, str], np.ndarray], x: Any, done: int) -> np.ndarray:
    try:
        return convert(x, "X")
    except DataError as problem:
        raise DataError(f"{path}, rows {done} to {done + len(x) - 1}: {problem}") from problem


def _factor(path: Path, shape: tuple[int, ...], rows: int) -> float:
    """What makes 0 to 255 of the values of images, as in training: 255 where they are fractions, else 1."""
    low, high, kind = 0.0, 0.0, "u"
    for block in _array(path, shape, rows):
        kind = block.dtype.kind
        if block.dtype == np.uint8:
            return 1.0
        low, high = min(low, float(block.min())), max(high, float(block.max()))
        if not (low >= 0 and high <= 255):
            raise DataError(f"{path}: image values must lie in 0..255 or 0..1, got {low:g}..{high:g}")
    return 255.0 if kind in "bf" and high <= 1 else 1.0


def _array(path: Path, shape: tuple[int, ...], rows: int) -> Iterator[np.ndarray]:
    """Consecutive blocks of an array file; nothing is unpickled, nothing is read whole."""
    try:
        with _stream(path) as file:
            yield from _parts(path, file, shape, rows)
    except DataError:
        raise
    except Exception as problem:  # what zip, deflate and array headers of strangers raise
        raise DataError(f"{path}: damaged, or not an array file: {problem or type(problem).__name__}") from problem


@contextmanager
def _stream(path: Path) -> Iterator[IO[bytes]]:
    if path.suffix.lower() == ".npy":
        with path.open("rb") as file:
            yield file
        return
    with zipfile.ZipFile(path) as archive:
        members = [name for name in archive.namelist() if name.endswith(".npy")]
        named = [name for name in members if name.lower() == "x.npy"] or members
        if len(named) != 1:
            raise DataError(f"{path}: expected an array X, found {', '.join(members) or 'none'}")
        with archive.open(named[0]) as file:
            yield file


def _parts(path: Path, file: IO[bytes], wanted: tuple[int, ...], rows: int) -> Iterator[np.ndarray]:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, by_columns, kind = read(file)
    if kind.hasobject:
        raise DataError(f"{path}: holds Python objects, which are not read; save plain arrays of numbers")
    if kind.kind not in "buif":
        raise DataError(f"{path}: expected numbers, got {kind}")
    if len(shape) < 2:
        raise DataError(f"{path}: expected rows [N, …], got an array of shape {list(shape)}")
    if shape[1:] != wanted and (*shape[1:], 1) != wanted:
        raise DataError(f"{path}: the model takes rows of shape {wanted}, these are {shape[1:]}")
    if by_columns and len(shape) > 1 and min(shape) > 1:
        raise DataError(f"{path}: stored column by column; save it with np.save(path, np.ascontiguousarray(X))")
    size = prod(shape[1:]) * kind.itemsize
    for start in range(0, shape[0], rows):
        count = min(rows, shape[0] - start)
        content = file.read(count * size)
        if len(content) < count * size:
            raise DataError(f"{path}: ends in row {start + len(content) // max(1, size)} of {shape[0]}; it is cut off")
        yield np.frombuffer(content, kind).reshape(count, *shape[1:])


def table_rows(path: Path, shape: tuple[int, ...], rows: int, label: str | None = None) -> Rows:
    """Numbered rows of a CSV or Parquet file: the columns of numbers in their order, without labels."""
    if len(shape) != 1:
        raise DataError(f"{path}: the model takes images {shape}, and a table holds features")
    done = 0
    columns: list[str] | None = None
    for frame in _frames(path, rows):
        columns = columns or _features(path, list(frame.columns), shape[0], label)
        yield _numbers(done, len(frame)), _finite(path, _values, frame[columns], done)
        done += len(frame)
    if not done:
        raise DataError(f"{path}: it has no rows")


def _values(frame: Any, part: str) -> np.ndarray:
    text = [column for column in frame.columns if getattr(frame[column].dtype, "kind", "O") not in "biuf"]
    if text:
        raise DataError(f"features must be numbers; these columns are not: {', '.join(map(str, text[:20]))}")
    return to_rows(frame.to_numpy(dtype=np.float32, na_value=np.nan), part)


def _frames(path: Path, rows: int) -> Iterator[Any]:
    import pandas

    try:
        if path.suffix.lower() == ".csv":
            with pandas.read_csv(path, chunksize=rows, na_values=MISSING, low_memory=False) as chunks:
                yield from chunks
        else:
            with open_parquet(path) as file:
                for batch in file.iter_batches(rows):
                    yield batch.to_pandas()
    except (DataError, ImportError):
        raise
    except (Exception, MemoryError) as problem:
        raise DataError(f"{path}: cannot be read as a table: {problem or type(problem).__name__}") from problem


def _features(path: Path, columns: list[str], wanted: int, label: str | None) -> list[str]:
    """The columns that the model takes: all but the labels."""
    if label is not None and label not in columns:
        raise DataError(f"{path}: no column {label!r}; the columns are {', '.join(map(str, columns[:20]))}")
    if label is not None:
        columns = [column for column in columns if column != label]
    if len(columns) > wanted:
        columns = [column for column in columns if str(column).lower() not in (*LABEL_NAMES, SPLIT)]
    if len(columns) != wanted:
        raise DataError(
            f"{path}: the model takes {wanted} features, the table has {len(columns)} columns beside the labels "
            f"({', '.join(map(str, columns[:20]))}); leave the others out, or name the labels with --label-column"
        )
    return columns


def _numbers(start: int, count: int) -> list[str]:
    return [str(row) for row in range(start, start + count)]
