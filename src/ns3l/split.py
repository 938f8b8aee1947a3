"""Which labels are kept, which rows stay unlabeled, which are put apart for validation.

A split is a pure function of (data, request, seed). Every row of the data gets a random 64-bit rank; rows are taken in
the order of their ranks. The ranks are the raw words of numpy's Philox4x64-10 under a key made by SHA-256: a published
counter-based cipher whose raw words numpy keeps for good, which it does not promise for `Generator.permutation`. No
other draw is involved, so a split is the same under every numpy version; the name of this way is recorded in
`Split.generator`.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np

from ns3l.data.dataset import Dataset
from ns3l.errors import DataError, RecipeError

GENERATOR = "philox4x64-10, rows by rank, 1"
MOST_ROWS = 2**29  # of a pool: what a manifest may ask memory for
Balance = Literal["balanced", "stratified"]


@dataclass(frozen=True)
class SplitRequest:
    """What a split should look like; a count is an `int`, a share of the labeled rows a `float` in (0, 1].

    labels: how many labeled rows to keep, in all; a share is of those that validation leaves; None keeps every one.
    validation: how many rows with known labels to put apart; never labeled, never in the pool; 0 for none.
    balance: "balanced" takes the same number of each class (what is left over goes to classes drawn by the seed),
        "stratified" takes the classes in proportion, but at least one row of each.
    labeled_in_pool: whether the labeled rows are also in the unlabeled pool.
    nested: for one seed, fewer labels are a subset of more labels; otherwise every count is a fresh draw.
    fold: the number of an official set of labeled rows (STL-10 has ten) instead of a draw; "seed" takes the one with
        the number of the seed, beginning again after the last.
    """

    labels: int | float | None = None
    validation: int | float = 0
    balance: Balance = "balanced"
    labeled_in_pool: bool = True
    nested: bool = False
    fold: int | Literal["seed"] | None = None

    def __post_init__(self) -> None:
        if self.labels is not None:
            object.__setattr__(self, "labels", _amount("labels", self.labels, least=1))
        object.__setattr__(self, "validation", _amount("validation", self.validation, least=0))
        if self.balance not in get_args(Balance):
            raise RecipeError(f'balance must be "balanced" or "stratified", got {self.balance!r}')
        numbered = isinstance(self.fold, int) and not isinstance(self.fold, bool) and self.fold >= 0
        if self.fold not in (None, "seed") and not numbered:
            raise RecipeError(f'fold must be the number of an official fold, "seed" or None, got {self.fold!r}')


@dataclass(frozen=True, eq=False)
class Split:
    """A manifest: sorted row numbers of one data set. `unlabeled` (the pool) numbers `x`, then `x_extra`."""

    labeled: np.ndarray
    unlabeled: np.ndarray
    validation: np.ndarray
    seed: int
    data_hash: str
    generator: str = GENERATOR
    request: SplitRequest = field(default_factory=SplitRequest)

    def __post_init__(self) -> None:
        for part in ("labeled", "unlabeled", "validation"):
            _check_rows(part, getattr(self, part))
        for part in ("labeled", "unlabeled"):
            shared = np.intersect1d(self.validation, getattr(self, part), assume_unique=True)
            if len(shared):
                raise DataError(f"validation must be apart from {part}, but both hold row {shared[0]}")

    @cached_property
    def hash(self) -> str:
        """SHA-256 over the data hash and the three sets of rows: equal for splits that are the same."""
        digest = hashlib.sha256(self.data_hash.encode())
        for part in (self.labeled, self.unlabeled, self.validation):
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part.astype("<i8").tobytes())
        return digest.hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; the pool as half-open ranges [start, stop), which stay few in any number of rows."""
        return {
            "hash": self.hash,
            "data_hash": self.data_hash,
            "seed": self.seed,
            "generator": self.generator,
            "request": asdict(self.request),
            "labeled": self.labeled.tolist(),
            "validation": self.validation.tolist(),
            "unlabeled_ranges": _ranges(self.unlabeled),
        }

    @staticmethod
    def from_dict(manifest: Mapping[str, Any]) -> "Split":
        """The split of a manifest; DataError where a part is missing or was changed."""
        try:
            split = Split(
                labeled=np.asarray(manifest["labeled"], dtype=np.int64),
                unlabeled=_rows(manifest["unlabeled_ranges"]),
                validation=np.asarray(manifest["validation"], dtype=np.int64),
                seed=manifest["seed"],
                data_hash=manifest["data_hash"],
                generator=manifest["generator"],
                request=_request(manifest["request"]),
            )
            stored = manifest["hash"]
        except DataError:
            raise
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise DataError(f"this is not the manifest of a split, as Split.to_dict() writes it: {error!r}") from error
        if split.hash != stored:
            raise DataError(f"the split was changed by hand: its rows hash to {split.hash}, the manifest says {stored}")
        return split

    def check(self, data: Dataset) -> None:
        """Refuse other data than the split was made for."""
        if self.data_hash != data.hash:
            raise DataError(
                f"the split belongs to data with hash {self.data_hash}, but {data.name} has hash {data.hash}: "
                "give the data that the split was made for, or make a new split"
            )
        known = np.concatenate((self.labeled, self.validation))
        if len(known) and (known.max() >= len(data.y) or data.y[known].min() < 0):
            raise DataError("the split names labeled or validation rows that have no known label in the data")
        if len(self.unlabeled) and self.unlabeled[-1] >= data.pool_size:
            raise DataError(f"the split's pool reaches row {self.unlabeled[-1]}, the data have {data.pool_size} rows")


def make_split(data: Dataset, request: SplitRequest, seed: int) -> Split:
    """Draw a split. Validation is taken first, from a draw that depends on the seed alone; then the labeled rows."""
    known = np.flatnonzero(data.y >= 0)
    if not len(known):
        raise DataError(f"{data.name} has no row with a known label; at least one per class is needed")
    official = _official(data, request, seed)
    validation = _take_validation(data, request, seed, np.setdiff1d(known, official, assume_unique=True))
    left = np.setdiff1d(known, validation, assume_unique=True)
    if request.fold is not None:
        labeled = official
    elif request.labels is None:
        labeled = left
    else:
        labeled = _take_labeled(data, request, seed, left)
    return Split(labeled, _pool(data, request, labeled, validation), validation, int(seed), data.hash, request=request)


def _amount(name: str, value: Any, least: int) -> int | float:
    if isinstance(value, np.integer):
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= least:
        return value
    if isinstance(value, float) and (0 < value <= 1 or value == least == 0):
        return float(value)
    raise RecipeError(f"{name} must be a count (an int >= {least}) or a share (a float in (0, 1]), got {value!r}")


def _check_rows(part: str, rows: np.ndarray) -> None:
    good = isinstance(rows, np.ndarray) and rows.dtype == np.int64 and rows.ndim == 1
    if not good or (len(rows) and rows[0] < 0) or (np.diff(rows) <= 0).any():
        raise DataError(f"{part} must be an int64 array of row numbers >= 0, rising, each once")


def _request(values: Mapping[str, Any]) -> SplitRequest:
    unknown = set(values) - {part.name for part in fields(SplitRequest)}
    if unknown:
        raise DataError(f"the split's request has unknown entries {sorted(unknown)}")
    return SplitRequest(**values)


def _ranges(rows: np.ndarray) -> list[list[int]]:
    edge = np.diff(rows, prepend=-2) > 1
    starts = np.flatnonzero(edge)
    stops = np.append(starts[1:], len(rows)) - 1
    return np.stack((rows[starts], rows[stops] + 1), 1).tolist() if len(rows) else []


def _rows(ranges: list[list[int]]) -> np.ndarray:
    if (count := sum(stop - start for start, stop in ranges)) > MOST_ROWS:
        raise DataError(f"the split's pool has {count:,} rows; at most {MOST_ROWS:,} can be")
    parts = [np.arange(start, stop, dtype=np.int64) for start, stop in ranges]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def _ranks(purpose: str, seed: int, count: int) -> np.ndarray:
    """A random 64-bit word for every one of `count` things."""
    key = hashlib.sha256(f"ns3l split/{purpose}/{int(seed)}".encode()).digest()[:16]
    return np.random.Philox(key=np.frombuffer(key, "<u8").astype(np.uint64)).random_raw(count)


def _pool(data: Dataset, request: SplitRequest, labeled: np.ndarray, validation: np.ndarray) -> np.ndarray:
    inside = np.ones(data.pool_size, dtype=bool)
    inside[validation] = False
    if not request.labeled_in_pool:
        inside[labeled] = False
    return np.flatnonzero(inside)


def _official(data: Dataset, request: SplitRequest, seed: int) -> np.ndarray:
    if request.fold is None:
        return np.empty(0, dtype=np.int64)
    fold = seed % max(1, len(data.folds)) if request.fold == "seed" else request.fold
    if fold >= len(data.folds):
        has = f"folds 0 to {len(data.folds) - 1}" if data.folds else "no official folds; leave fold out"
        raise DataError(f"fold {fold} was asked for, {data.name} has {has}")
    rows = np.sort(data.folds[fold])
    if data.y[rows].min() < 0:
        raise DataError(f"fold {fold} of {data.name} holds rows without a known label")
    if request.labels not in (None, len(rows)):
        raise DataError(f"fold {fold} has {len(rows)} labels, but labels={request.labels}: leave labels out")
    return rows


def _count(amount: int | float, of: int) -> int:
    return amount if isinstance(amount, int) else round(amount * of)


def _take_validation(data: Dataset, request: SplitRequest, seed: int, candidates: np.ndarray) -> np.ndarray:
    """In class proportion, by largest remainder; of every class one row at least is left to be labeled."""
    count = _count(request.validation, int((data.y >= 0).sum()))
    sizes = np.bincount(data.y[candidates], minlength=len(data.classes))
    if request.fold is None:
        sizes = np.maximum(sizes - 1, 0)
    if count > sizes.sum():
        raise DataError(
            f"validation={request.validation} means {count} rows, but {data.name} can spare {sizes.sum()} "
            "(one labeled row of every class stays for training): ask for fewer, or label more"
        )
    return _first(data.y, candidates, _largest_remainder(count, sizes), _ranks("validation", seed, len(data.y)))


def _take_labeled(data: Dataset, request: SplitRequest, seed: int, left: np.ndarray) -> np.ndarray:
    assert request.labels is not None
    sizes = np.bincount(data.y[left], minlength=len(data.classes))
    count = _count(request.labels, len(left))
    _check_possible(data, request, count, sizes)
    purpose = "labeled" if request.nested else f"labeled {count}"
    if request.balance == "stratified" and not request.nested:
        seats = _in_proportion(count, sizes)
    else:
        seats = _by_turns(count, sizes, request.balance, _ranks(f"{purpose} classes", seed, len(sizes)))
    return _first(data.y, left, seats, _ranks(purpose, seed, len(data.y)))


def _check_possible(data: Dataset, request: SplitRequest, count: int, sizes: np.ndarray) -> None:
    asked = f"labels={request.labels}" + ("" if isinstance(request.labels, int) else f" ({count} rows)")
    bare = [name for name, size in zip(data.classes, sizes, strict=True) if size == 0]
    if bare:
        raise DataError(
            f"no labeled row is left of {len(bare)} classes ({', '.join(bare[:5])}): label one of each, "
            "or leave these classes out of the data"
        )
    if count < len(sizes):
        raise DataError(f"{asked} is fewer than one per class: ask for {len(sizes)} or more")
    if count > sizes.sum():
        raise DataError(f"{asked} is more than there are: {data.name} has {sizes.sum()} labeled rows left for training")
    rare = int(sizes.argmin())
    most = int(np.minimum(sizes, sizes.min() + 1).sum())
    if request.balance == "balanced" and count > most:
        raise DataError(
            f'{asked} balanced needs {count // len(sizes)} rows of each class, but class "{data.classes[rare]}" has '
            f'{sizes[rare]} left: at most {most} labels can be balanced; ask for fewer, or for balance="stratified"'
        )


def _largest_remainder(count: int, sizes: np.ndarray) -> np.ndarray:
    """Seats in proportion to `sizes`, never more than these; ties go to the earlier class. Whole-number arithmetic."""
    total = max(int(sizes.sum()), 1)
    seats, remainder = np.divmod(count * sizes.astype(np.int64), total)
    order = np.argsort(-remainder, kind="stable")
    seats[order[: count - int(seats.sum())]] += 1
    return seats


def _in_proportion(count: int, sizes: np.ndarray) -> np.ndarray:
    """Largest remainder, where a class that would get nothing gets one seat before the others share the rest."""
    rare = np.zeros(len(sizes), dtype=bool)
    while True:
        seats = np.where(rare, 1, _largest_remainder(count - int(rare.sum()), np.where(rare, 0, sizes)))
        if seats.all():
            return seats
        rare |= seats == 0


def _by_turns(count: int, sizes: np.ndarray, balance: str, tie: np.ndarray) -> np.ndarray:
    """Seats given one after the other, so that more seats never take one away from a class.

    Balanced: to the class with the fewest; stratified: by Sainte-Lague's divisors 1, 3, 5, ... after one for each.
    Ties are broken by the random numbers `tie`.
    """
    owner = np.repeat(np.arange(len(sizes)), sizes)
    turn = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    worth = -turn.astype(np.float64) if balance == "balanced" else sizes[owner] / (2.0 * turn + 1)
    worth[turn == 0] = np.inf
    order = np.lexsort((tie[owner], -worth))
    return np.bincount(owner[order[:count]], minlength=len(sizes))


def _first(y: np.ndarray, candidates: np.ndarray, seats: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """Of every class the `seats` candidates with the lowest ranks, sorted by row number."""
    order = candidates[np.lexsort((ranks[candidates], y[candidates]))]
    labels = y[order]
    starts = np.searchsorted(labels, np.arange(len(seats)))
    turn = np.arange(len(order)) - starts[labels]
    return np.sort(order[turn < seats[labels]])
