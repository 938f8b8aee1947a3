"""Prediction over inputs of any size in bounded memory, and which unlabeled examples are most worth a label."""

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Literal, TextIO

import numpy as np

from ns3l.data.dataset import Dataset
from ns3l.data.decode import Fit
from ns3l.data.inputs import Rows, array_rows, table_rows
from ns3l.errors import DataError
from ns3l.model import Model
from ns3l.record.reading import read_run
from ns3l.split import Split

BLOCK_BYTES = 1 << 25
MOST_ROWS = 8192
FORMULA = ("=", "+", "-", "@", "\t", "\r")
UNWRITABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""Control characters, ends of lines and halves of characters: no row of a table holds them."""
By = Literal["margin", "entropy"]


@dataclass(frozen=True, eq=False)
class Predicted:
    """Some examples by name, and the probability of each class."""

    names: Sequence[str]
    probabilities: np.ndarray


def predict(
    model: Model,
    source: Path | str,
    *,
    label: str | None = None,
    fit: Fit = "crop",
    damaged: Callable[[str, str], None] | None = None,
) -> Iterator[Predicted]:
    """Predict a folder of images (or one image), an .npz or .npy file, a CSV or Parquet table, block by block.

    `label` names a column of a table that is not a feature; without it, columns that are called like labels are left
    out where the table has more columns than the model takes. Damaged images raise, or are told to `damaged`.
    """
    rows = min(MOST_ROWS, max(1, BLOCK_BYTES // (4 * prod(model.shape))))
    blocks = _blocks(model, Path(source), rows, label, fit, damaged)
    return (Predicted(names, model.probabilities(x)) for names, x in blocks)


def _blocks(
    model: Model,
    source: Path,
    rows: int,
    label: str | None,
    fit: Fit,
    damaged: Callable[[str, str], None] | None,
) -> Rows:
    if not source.exists():
        raise DataError(f"{source}: no such file or folder")
    match source.suffix.lower():
        case ".npy" | ".npz" if source.is_file():
            return array_rows(source, model.shape, rows)
        case ".csv" | ".parquet" | ".pq" if source.is_file():
            return table_rows(source, model.shape, rows, label)
    if len(model.shape) != 3:
        raise DataError(f"{source}: the model takes {model.shape[0]} features a row; give .npy, .npz, CSV or Parquet")
    return _images(source, model.shape, rows, fit, damaged)


def _images(
    source: Path, shape: tuple[int, ...], rows: int, fit: Fit, damaged: Callable[[str, str], None] | None
) -> Rows:
    from ns3l.data.stream import iterate_images

    found = False
    for block in iterate_images(source, (shape[0], shape[1]), shape[2], rows, fit=fit, damaged=damaged):
        found = True
        yield block
    if not found:
        raise DataError(f"{source}: no image that can be read was found in it")


def write_predictions(predicted: Iterable[Predicted], classes: Sequence[str], file: TextIO) -> int:
    r"""CSV with `example`, `predicted` and a probability for each class; returns the number of rows.

    Names that a spreadsheet could take for a formula (they begin with = + - @, a tab or a carriage return and are no
    number) are prefixed with an apostrophe; control characters and ends of lines are written as `\n`, `\x00` and so on.
    """
    writer = csv.writer(file, lineterminator="\n")
    shown = [harmless(name) for name in classes]
    count = 0
    for block in predicted:
        if not count:
            writer.writerow(["example", "predicted", *shown])
        best = block.probabilities.argmax(1).tolist()
        numbers = np.char.mod("%.6g", block.probabilities).tolist()
        names = (harmless(name) for name in block.names)
        writer.writerows([name, shown[k], *row] for name, k, row in zip(names, best, numbers, strict=True))
        count += len(best)
    return count


def harmless(text: str) -> str:
    r"""Text of one line that no spreadsheet runs as a formula: `\n` for a line's end; numbers stay as they are."""
    shown = UNWRITABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
    risky = text.lstrip(" ").startswith(FORMULA) and not _is_number(text)
    return f"'{shown}" if risky else shown


def _is_number(text: str) -> bool:
    return text.lstrip("+-").replace(".", "", 1).isdecimal()


@dataclass(frozen=True, eq=False)
class Candidate:
    """An unlabeled example that the model is unsure of: its row in the pool, what is predicted, and how surely."""

    row: int
    name: str
    predicted: str
    probability: float
    second: str
    margin: float
    entropy: float


def unlabeled_rows(data: Dataset, run: Path | None = None) -> np.ndarray:
    """The rows of the pool without a label; of a run on the same data, those whose labels it did not use."""
    free = np.concatenate([np.flatnonzero(data.y < 0), np.arange(len(data.x), data.pool_size)])
    if run is None or not (run / "split.json").exists():
        return free
    split = Split.from_dict(read_run(run).split)
    if split.data_hash != data.hash:
        return free
    return np.setdiff1d(split.unlabeled, np.concatenate([split.labeled, split.validation]))


def worth_labeling(
    model: Model, data: Dataset, rows: np.ndarray, by: By = "margin", count: int = 50
) -> tuple[Candidate, ...]:
    """The `count` examples of which the model is least sure, the least sure first.

    `margin`: the two best classes are closest; `entropy`: the whole distribution is flattest.
    """
    if not len(rows):
        raise DataError(f"{data.name} has no unlabeled examples: every row has a label that was used")
    if count < 1:
        raise DataError(f"count must be at least 1, got {count}")
    size = min(MOST_ROWS, max(1, BLOCK_BYTES // (4 * prod(model.shape))))
    held_rows, held = np.empty(0, np.int64), np.empty((0, len(model.classes)), np.float32)
    for start in range(0, len(rows), size):
        some = rows[start : start + size]
        held_rows = np.concatenate([held_rows, some])
        held = np.concatenate([held, model.probabilities(pool_rows(data, some))])
        best = np.argsort(_sureness(held, by), kind="stable")[:count]
        held_rows, held = held_rows[best], held[best]
    return tuple(_candidate(model, data, int(row), p) for row, p in zip(held_rows, held, strict=True))


def pool_rows(data: Dataset, rows: np.ndarray) -> np.ndarray:
    """Rows of x, and behind them of x_extra, in the order asked for."""
    own = rows < len(data.x)
    if own.all():
        return np.asarray(data.x[rows])
    assert data.x_extra is not None
    found = np.empty((len(rows), *data.x.shape[1:]), data.x.dtype)
    found[own], found[~own] = data.x[rows[own]], data.x_extra[rows[~own] - len(data.x)]
    return found


def _margin(probabilities: np.ndarray) -> np.ndarray:
    best = np.partition(probabilities, -2, axis=1)
    return best[:, -1] - best[:, -2]


def _entropy(probabilities: np.ndarray) -> np.ndarray:
    return -(probabilities * np.log(np.maximum(probabilities, 1e-30))).sum(1)


def _sureness(probabilities: np.ndarray, by: By) -> np.ndarray:
    if by not in ("margin", "entropy"):
        raise DataError(f"examples are ranked by margin or entropy, not by {by!r}")
    return _margin(probabilities) if by == "margin" else -_entropy(probabilities)


def _candidate(model: Model, data: Dataset, row: int, p: np.ndarray) -> Candidate:
    second, first = np.argsort(p, kind="stable")[-2:]
    named = data.examples[row] if data.examples and row < len(data.x) else str(row)
    spread = (float(value[0]) for value in (_margin(p[None]), _entropy(p[None])))
    return Candidate(row, named, model.classes[first], float(p[first]), model.classes[second], *spread)


def sheet(model: Model, data: Dataset, found: Sequence[Candidate], path: Path, columns: int = 12) -> Path:
    """A PNG of the candidates, a row for each predicted class."""
    from ns3l.data.contact_sheet import contact_sheet

    rows = np.array([candidate.row for candidate in found])
    guessed = [candidate.predicted for candidate in found]
    present = [name for name in model.classes if name in guessed]
    present += [name for name in model.classes if name not in guessed][: max(0, 2 - len(present))]
    y = np.array([present.index(name) for name in guessed], np.int64)
    return contact_sheet(Dataset(data.name, pool_rows(data, rows), y, tuple(present)), path, columns, empty=False)
