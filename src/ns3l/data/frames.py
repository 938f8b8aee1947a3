"""Tables as data sets: pandas DataFrames, CSV and Parquet files. Rows of numbers, one column of labels."""

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from ns3l.data.arrays import from_arrays, refuse_bomb
from ns3l.data.dataset import Dataset
from ns3l.data.labels import parse_text, short
from ns3l.errors import DataError

LABEL_NAMES = ("label", "y", "target", "class")
MISSING = ["", "NA", "N/A", "n/a", "<NA>", "#N/A", "NaN", "nan", "-nan", "-NaN", "NULL", "null", "None"]
SPLIT = "split"
PARTS = ("train", "test", "unlabeled")


def from_frame(
    frame: Any,
    label: str | None = None,
    *,
    test: Any = None,
    split: str | None = None,
    drop: Sequence[str] = (),
    classes: Sequence[str] | None = None,
    name: str = "frame",
) -> Dataset:
    """A data set of the numeric columns of a DataFrame, without `drop`; a missing label means unlabeled.

    `label` names the column of labels (default: the one called label, y, target or class). The test part is another
    frame, or the rows that say "test" in the column `split` (default: a text column called split, with the words
    train, test and unlabeled).
    """
    label = _label_column(frame, label)
    frame = frame.drop(columns=_present(frame, drop))
    frame, split_test, extra = _divide(frame, split)
    if test is not None and split_test is not None:
        raise DataError(f"{name}: a test table was given and the column {split or SPLIT!r} has test rows; keep one")
    test = split_test if test is None else test
    features = [column for column in frame.columns if column != label]
    _refuse_text(frame, features)
    test_x, test_y = (None, None) if test is None else _test_part(test, features, label, drop)
    labels = _labels(frame[label])
    return from_arrays(
        _numbers(frame, features),
        labels,
        test_x,
        test_y,
        None if extra is None else _numbers(extra, features),
        classes=classes,
        name=name,
    )


def load_table(
    path: str | Path,
    label: str | None = None,
    *,
    test: str | Path | None = None,
    split: str | None = None,
    drop: Sequence[str] = (),
    classes: Sequence[str] | None = None,
    separator: str = ",",
    name: str | None = None,
) -> Dataset:
    """Read a CSV or Parquet file (by its ending) as `from_frame` does; `test` is a second file of the same columns.

    In CSV, labels that are all whole numbers are numbers, others are text; only an empty label (or nan) is missing,
    so that a class may be called NA or None.
    """
    path = Path(path)
    frame = _read(path, label, separator)
    return from_frame(
        frame,
        label,
        test=None if test is None else _read(Path(test), _label_column(frame, label), separator),
        split=split,
        drop=drop,
        classes=classes,
        name=name or path.stem,
    )


def _pandas() -> ModuleType:
    try:
        import pandas
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise DataError(f"tables need {error.name}: pip install 'ns3l[data]'") from error
    return pandas


def _read(path: Path, label: str | None, separator: str) -> Any:
    pandas = _pandas()
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    try:
        if path.suffix.lower() in (".parquet", ".pq"):
            with open_parquet(path) as file:
                return file.read().to_pandas()
        head = pandas.read_csv(path, sep=separator, nrows=0)
        text = [name for name in head.columns if name == label or (label is None and name.lower() in LABEL_NAMES)]
        missing = {name: MISSING for name in head.columns if name not in text}
        types = dict.fromkeys(text, str)
        return pandas.read_csv(
            path, sep=separator, dtype=types, keep_default_na=False, na_values=missing, low_memory=False
        )
    except DataError:
        raise
    except (Exception, MemoryError) as error:
        kind = "Parquet" if path.suffix.lower() in (".parquet", ".pq") else "CSV"
        raise DataError(f"{path}: cannot be read as {kind}: {error or type(error).__name__}") from error


def open_parquet(path: Path) -> Any:
    """A Parquet file whose text stays in its dictionary: a few bytes of it can stand for any number of long texts."""
    from pyarrow.parquet import ParquetFile

    with ParquetFile(path) as file:
        told, columns = file.metadata, [file.schema.column(k) for k in range(len(file.schema))]
    nested = [
        column.path.split(".")[0] for column in columns if column.max_repetition_level or column.path != column.name
    ]
    if nested:
        raise DataError(
            f"{path}: columns of lists or structures are not read: {_some(nested)}; save the table without them"
        )
    stored = sum(told.row_group(k).total_byte_size for k in range(told.num_row_groups))
    size = stored + told.num_rows * sum(max(8, column.length) for column in columns)
    refuse_bomb(path, size, f"{told.num_rows:,} rows of {len(columns):,} columns take")
    return ParquetFile(path, read_dictionary=[c.path for c in columns if c.physical_type == "BYTE_ARRAY"])


def _label_column(frame: Any, label: str | None) -> str:
    columns = [str(column) for column in frame.columns]
    if len(set(columns)) != len(columns):
        raise DataError("columns must have different names; more than one: " + ", ".join(_twice(columns)))
    if label is not None:
        if label not in frame.columns:
            raise DataError(f"no column {label!r} for the labels; the columns are {_some(columns)}")
        return label
    found = [column for column in columns if column.lower() in LABEL_NAMES]
    if len(found) != 1:
        what = f"{', '.join(found)} all could be it" if found else f"none is called {', '.join(LABEL_NAMES)}"
        raise DataError(f"which column holds the labels? {what}; say label=… (columns: {_some(columns)})")
    return found[0]


def _twice(columns: list[str]) -> list[str]:
    return sorted({column for column in columns if columns.count(column) > 1})


def _present(frame: Any, drop: Sequence[str]) -> list[str]:
    missing = [column for column in drop if column not in frame.columns]
    if missing:
        raise DataError(f"drop: no such columns: {', '.join(missing)}; the columns are {_some(list(frame.columns))}")
    return list(drop)


def _divide(frame: Any, split: str | None) -> tuple[Any, Any, Any]:
    """Train, test and unlabeled rows by the split column; the last two are None where there are none."""
    if split is None and (SPLIT not in frame.columns or _is_number(frame[SPLIT])):
        return frame, None, None
    split = split or SPLIT
    if split not in frame.columns:
        raise DataError(f"no column {split!r} for the split; the columns are {_some(list(frame.columns))}")
    told = [short(str(value), split).strip().lower() for value in _plain(frame[split])]
    words = np.array(told, dtype=object)
    strange = sorted(set(words) - set(PARTS))
    if strange:
        raise DataError(f"column {split!r}: expected the words {', '.join(PARTS)}, found {_some(strange)}")
    train, test, extra = (frame[words == part].drop(columns=[split]) for part in PARTS)
    if not len(train):
        raise DataError(f"column {split!r}: no row says train")
    return train, test if len(test) else None, extra if len(extra) else None


def _test_part(test: Any, features: list[str], label: str, drop: Sequence[str]) -> tuple[np.ndarray, Any]:
    missing = [column for column in [*features, label] if column not in test.columns]
    strange = [column for column in test.columns if column not in {*features, label, *drop}]
    if missing or strange:
        told = [f"missing: {_some(missing)}"] * bool(missing) + [f"not in the train part: {_some(strange)}"] * bool(
            strange
        )
        raise DataError(f"the test part must have the columns of the train part; {'; '.join(told)}")
    _refuse_text(test, features)
    return _numbers(test, features), _labels(test[label])


def _is_number(column: Any) -> bool:
    kind = getattr(column.dtype, "kind", "O")
    return kind in "biuf"


def _refuse_text(frame: Any, features: list[str]) -> None:
    text = [f"{column} ({frame[column].dtype})" for column in features if not _is_number(frame[column])]
    if text:
        raise DataError(
            f"features must be numbers; these columns are not: {_some(text)}. Turn categories into numbers "
            "(for example pandas.get_dummies(frame, columns=[…])) or leave columns out with drop=[…]"
        )
    if not features:
        raise DataError("no feature columns are left beside the labels")


def _numbers(frame: Any, features: list[str]) -> np.ndarray:
    rows: np.ndarray = frame[features].to_numpy(dtype=np.float32, na_value=np.nan)
    bad = ~np.isfinite(rows)
    if bad.any():
        columns = [f"{features[k]} ({n})" for k, n in enumerate(bad.sum(axis=0)) if n]
        raise DataError(
            f"missing or infinite values in {int(bad.any(axis=1).sum())} of {len(rows)} rows, in the columns "
            f"{_some(columns)}; fill them in (for example frame.fillna(frame.median())) or drop them"
        )
    return rows


def _plain(column: Any) -> list[Any]:
    """The values of a column, None where one is missing; a category that comes often is held once."""
    if (categories := getattr(column.dtype, "categories", None)) is not None:
        held = [*categories.tolist(), None]  # the code of a missing one is -1
        return [held[code] for code in column.cat.codes.tolist()]
    return [None if missing else value for value, missing in zip(column.tolist(), column.isna(), strict=True)]


def _labels(column: Any) -> list[Any]:
    values = _plain(column)
    return parse_text(values) if all(value is None or isinstance(value, str) for value in values) else values


def _some(names: Sequence[Any]) -> str:
    return ", ".join(map(str, names[:20])) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
