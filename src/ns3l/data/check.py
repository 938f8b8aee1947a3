"""What a data set holds and what may be wrong with it, in numbers and in plain words; nothing is changed."""

import hashlib
import re
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ns3l.data.dataset import Dataset, chunks
from ns3l.data.decode import Header, Wanted
from ns3l.data.images import assemble, open_layout, scan

UNLABELED_LIKE = re.compile(r"(un|not|no)[-_ ]?label+(l?ed)?.*|unknown|none|null|nan|n/?a|todo|\?+|-1", re.IGNORECASE)
IMBALANCE = 10.0
SHRUNK = 4


@dataclass(frozen=True)
class Report:
    """The findings of `check`; `damaged` maps file names to reasons, `warnings` say what to look at."""

    name: str
    hash: str
    kind: str
    shape: tuple[int, ...]
    labeled: int
    unlabeled: int
    extra: int
    test: int
    per_class: dict[str, int]
    per_class_test: dict[str, int]
    imbalance: float
    repeated: int
    conflicting: int
    leaked: int
    sizes: dict[str, int]
    damaged: dict[str, str]
    ignored: tuple[str, ...]
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; an infinite imbalance is None."""
        plain = asdict(self)
        return plain | {"imbalance": self.imbalance if np.isfinite(self.imbalance) else None}


@dataclass(frozen=True)
class _Files:
    headers: dict[str, Header]
    damaged: dict[str, str]
    ignored: tuple[str, ...]


def check(data: Dataset | str | Path, **options: Any) -> Report:
    """Look at a data set, a path or a known name; `options` go to its loader. Damaged images are listed, not fatal."""
    dataset, files = _look(data, options)
    pool = row_hashes(dataset.x)
    if dataset.x_extra is not None:
        pool = np.concatenate([pool, row_hashes(dataset.x_extra)])
    test = row_hashes(dataset.x_test) if dataset.x_test is not None else np.empty(0, np.uint64)
    train_counts = _per_class(dataset, dataset.y)
    least, most = min(train_counts.values()), max(train_counts.values())
    findings: dict[str, Any] = {
        "name": dataset.name,
        "hash": dataset.hash,
        "kind": "images" if dataset.is_image else "features",
        "shape": tuple(dataset.x.shape[1:]),
        "labeled": int((dataset.y >= 0).sum()),
        "unlabeled": int((dataset.y < 0).sum()),
        "extra": 0 if dataset.x_extra is None else len(dataset.x_extra),
        "test": len(test),
        "per_class": train_counts,
        "per_class_test": {} if dataset.y_test is None else _per_class(dataset, dataset.y_test),
        "imbalance": most / least if least else float("inf"),
        "repeated": len(pool) - len(np.unique(pool)),
        "conflicting": _conflicting(pool[: len(dataset.y)], dataset.y),
        "leaked": int(np.isin(test, pool).sum()),
        "sizes": _sizes(files.headers),
        "damaged": files.damaged,
        "ignored": files.ignored,
    }
    bare = Report(**findings, warnings=())
    return Report(**findings, warnings=tuple(_warnings(bare, _constant(dataset))))


def _look(data: Dataset | str | Path, options: dict[str, Any]) -> tuple[Dataset, _Files]:
    if isinstance(data, Dataset):
        return data, _Files({}, {}, ())
    if not Path(data).is_dir():
        from ns3l.data import load

        return load(data, **options), _Files({}, {}, ())
    layout = scan(data)
    options = {key: value for key, value in options.items() if key != "skip_damaged"}
    wanted = Wanted(**{key: options.pop(key) for key in ("size", "channels", "fit") if key in options})
    name = options.pop("name", None) or layout.folder.resolve().name
    store = open_layout(layout, wanted, **options)
    return assemble(layout, store, name), _Files(store.headers, store.damaged, layout.others)


def row_hashes(rows: np.ndarray) -> np.ndarray:
    """64 bits of BLAKE2 of each row: equal rows have equal hashes."""
    digests = (
        hashlib.blake2b(row.data, digest_size=8).digest()
        for chunk in chunks(rows)
        for row in np.ascontiguousarray(chunk)
    )
    return np.fromiter((int.from_bytes(digest, "little") for digest in digests), np.uint64, len(rows))


def _per_class(dataset: Dataset, y: np.ndarray) -> dict[str, int]:
    counts = np.bincount(y[y >= 0], minlength=len(dataset.classes))
    return {label: int(count) for label, count in zip(dataset.classes, counts, strict=True)}


def _conflicting(hashes: np.ndarray, y: np.ndarray) -> int:
    """Different rows that occur with more than one label."""
    pairs = np.unique(np.stack([hashes[y >= 0], y[y >= 0].astype(np.uint64)]), axis=1)
    return int((np.unique(pairs[0], return_counts=True)[1] > 1).sum())


def _sizes(headers: dict[str, Header]) -> dict[str, int]:
    """How often each original size occurs, width x height, the most frequent first, ten at most."""
    counts = Counter(f"{header.width} x {header.height}" for header in headers.values())
    listed = dict(counts.most_common(10))
    rest = counts.total() - sum(listed.values())
    return listed | ({"other": rest} if rest else {})


def _constant(dataset: Dataset) -> int:
    """Features that have one value only."""
    if dataset.is_image:
        return 0
    low = np.min([chunk.min(axis=0) for chunk in chunks(dataset.x)], axis=0)
    high = np.max([chunk.max(axis=0) for chunk in chunks(dataset.x)], axis=0)
    return int((low == high).sum())


def _warnings(found: Report, constant: int) -> list[str]:
    return [
        *_label_warnings(found),
        *_row_warnings(found, constant),
        *_file_warnings(found),
    ]


def _label_warnings(found: Report) -> list[str]:
    told = []
    empty = [label for label, count in found.per_class.items() if not count]
    if empty:
        told.append(f"classes without a labeled example: {', '.join(empty)}")
    elif found.imbalance > IMBALANCE:
        most, least = (
            max(found.per_class, key=found.per_class.__getitem__),
            min(found.per_class, key=found.per_class.__getitem__),
        )
        told.append(f"the classes are unequal: {most} has {found.imbalance:.0f} times as many labels as {least}")
    single = [label for label, count in found.per_class.items() if count == 1]
    if single:
        told.append(f"only one labeled example, so none can be held out for validation: {', '.join(single)}")
    strange = [label for label in found.per_class if UNLABELED_LIKE.fullmatch(label.strip())]
    if strange:
        told.append(
            f"{', '.join(strange)}: counted as a class; if it means unlabeled, use unlabeled/ or an empty label"
        )
    folded = Counter(label.strip().casefold() for label in found.per_class)
    alike = [label for label in found.per_class if folded[label.strip().casefold()] > 1]
    if alike:
        told.append(f"classes that differ only in case or spaces: {', '.join(alike)}")
    if not found.unlabeled and not found.extra:
        told.append("every example is labeled: the unlabeled part will be examples whose labels are held back")
    if not found.test:
        told.append("no test part: errors can be told on held-out validation examples only")
    return told


def _row_warnings(found: Report, constant: int) -> list[str]:
    told = []
    if found.leaked:
        told.append(
            f"{found.leaked} of {found.test} test rows are also in the training part: the test error will flatter"
        )
    if found.repeated:
        told.append(f"{found.repeated} training rows repeat another one exactly")
    if found.conflicting:
        told.append(f"{found.conflicting} rows occur with two or more different labels")
    if constant:
        told.append(f"{constant} of {found.shape[0]} features have the same value everywhere and say nothing")
    return told


def _file_warnings(found: Report) -> list[str]:
    told = []
    if found.damaged:
        told.append(f"{len(found.damaged)} files cannot be used; training needs them mended, or skip_damaged")
    if found.ignored:
        some = ", ".join(found.ignored[:5]) + (" …" if len(found.ignored) > 5 else "")
        told.append(f"{len(found.ignored)} files are not taken for images by their names: {some}")
    usual = next(iter(found.sizes), "")
    if usual not in ("", "other"):
        width, height = (int(side) for side in usual.split(" x "))
        if min(width, height) >= SHRUNK * max(found.shape[:2]):
            told.append(
                f"most images are {usual} and are kept at {found.shape[1]} x {found.shape[0]}; "
                "small things may be lost, a larger size can be asked for"
            )
    return told
