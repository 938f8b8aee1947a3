"""A folder of images as a data set: which files are labeled, unlabeled and test, and what their classes are."""

import csv
import hashlib
import logging
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ns3l.data.dataset import Dataset
from ns3l.data.decode import Fit, Wanted
from ns3l.data.store import Source, Store, finished_store, open_store
from ns3l.data.stream import image_names, looks_like_image
from ns3l.errors import DataError

LABELED = ("labeled", "train")
UNLABELED, TEST, LABELS = "unlabeled", "test", "labels.csv"
STORE = ".ns3l-store"
SHOWN = 20
EXPECTED = (
    f"expected labeled/<class>/…, or <class>/… with or without {LABELS}; unlabeled/… and test/<class>/… beside it"
)
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Layout:
    """What stands in the folder before anything is decoded: image names with their labels, None for unlabeled."""

    folder: Path
    train: tuple[tuple[str, str | None], ...]
    test: tuple[tuple[str, str], ...]
    classes: tuple[str, ...]
    others: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Train files, then test files."""
        return tuple(name for name, _ in (*self.train, *self.test))


def load_folder(
    path: str | Path,
    *,
    size: int | tuple[int, int] | None = None,
    channels: int | None = None,
    fit: Fit = "crop",
    skip_damaged: bool = False,
    store: str | Path | None = None,
    workers: int | None = None,
    name: str | None = None,
) -> Dataset:
    """Read `labeled/<class>/…`, `unlabeled/…`, `test/<class>/…`, or `<class>/…` with a `labels.csv` (file,label).

    Images are decoded once into a memory-mapped store in `<folder>/.ns3l-store` (or `store`, or the user's cache
    where the folder cannot be written). `size` and `channels` default to what the images have in common, see
    `ns3l.data.decode.Wanted`; `fit` cuts the middle out ("crop") or changes the proportions ("stretch").
    Transparent parts become white. Damaged files are an error that names them, unless `skip_damaged`.
    """
    layout = scan(path)
    opened = open_layout(layout, Wanted(size, channels, fit), store=store, workers=workers)
    if opened.damaged and not skip_damaged:
        raise DataError(_damage(layout.folder, opened.damaged))
    return assemble(layout, opened, name or layout.folder.name)


def assemble(layout: Layout, store: Store, name: str) -> Dataset:
    """The data set of the usable files: views of the store, never copies."""
    train = [(file, label) for file, label in layout.train if file not in store.damaged]
    test = [(file, label) for file, label in layout.test if file not in store.damaged]
    if not train:
        raise DataError(f"{layout.folder}: none of its {len(layout.train)} images can be read")
    number = {label: k for k, label in enumerate(layout.classes)}
    y = np.array([-1 if label is None else number[label] for _, label in train], np.int64)
    y_test = np.array([number[label] for _, label in test], np.int64)
    cut = len(train)
    return Dataset(
        name=name,
        x=store.pixels[:cut],
        y=y,
        classes=layout.classes,
        x_test=store.pixels[cut:] if test else None,
        y_test=y_test if test else None,
        examples=tuple(file for file, _ in train),
    )


def open_layout(
    layout: Layout, wanted: Wanted, *, store: str | Path | None = None, workers: int | None = None
) -> Store:
    """Decode what has to be decoded, in the place that can be written."""
    sources = [_source(layout.folder, name) for name in layout.names]
    place = Path(store) if store is not None else layout.folder / STORE
    if store is None and not _writable(place):
        done = finished_store(place, sources, wanted)
        if done is not None:
            return done
        place = _cache_place(layout.folder)
        log.warning("%s cannot be written; its decoded images are kept in %s", layout.folder, place)
    return open_store(place, sources, wanted, classes=layout.classes, workers=workers)


def _writable(place: Path) -> bool:
    """A link is not followed: a stranger's folder must not choose where we write."""
    if place.is_symlink():
        return False
    return os.access(place if place.exists() else place.parent, os.W_OK)


def _cache_place(folder: Path) -> Path:
    import pooch

    key = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:16]
    return Path(pooch.os_cache("ns3l")) / "stores" / key


def _source(folder: Path, name: str) -> Source:
    path = folder / name
    try:
        state = path.stat()
    except OSError as error:
        return Source(name, path, -1, 0, error.strerror or "cannot be looked at")
    if not stat.S_ISREG(state.st_mode):
        return Source(name, path, -1, 0, "not a regular file")
    if not os.access(path, os.R_OK):
        return Source(name, path, -1, 0, "may not be read")
    if not state.st_size:
        return Source(name, path, -1, 0, "empty file")
    return Source(name, path, state.st_size, state.st_mtime_ns)


def _damage(folder: Path, damaged: dict[str, str]) -> str:
    lines = "\n".join(f"  {name}: {reason}" for name, reason in sorted(damaged.items()))
    return (
        f"{folder}: {len(damaged)} files cannot be used:\n{lines}\n"
        "mend or remove them, or leave them out with skip_damaged=True"
    )


def scan(path: str | Path) -> Layout:
    """Find the images and their labels; nothing is decoded. A layout that can be misread is an error."""
    folder = Path(path)
    if not folder.is_dir():
        raise DataError(f"{folder}: expected a folder of images, found {'a file' if folder.exists() else 'nothing'}")
    above = [name for name in LABELED if (folder / name).is_dir()]
    if len(above) > 1:
        raise DataError(f"{folder}: both {above[0]}/ and {above[1]}/ are there; keep one of them")
    if (folder / LABELS).is_file() and not above:
        train = _listed(folder)
    else:
        train = _by_class(folder, above[0] if above else "")
    test = _test(folder)
    layout = Layout(folder, tuple(train), tuple(test), _classes(folder, train, test), _others(folder))
    _refuse_unprintable(layout)
    return layout


def _by_class(folder: Path, below: str) -> list[tuple[str, str | None]]:
    """Images under `below/<class>/`, then those under `unlabeled/`."""
    here = _folders(folder)
    classes = _folders(folder / below) if below else [name for name in here if name not in (UNLABELED, TEST)]
    strange = [name for name in here if below and name not in (below, UNLABELED, TEST)]
    if strange:
        raise DataError(f"{folder}: {_some(strange)} would not be used; {EXPECTED}")
    _refuse_loose(folder, folder / below)
    found: list[tuple[str, str | None]] = []
    for label in classes:
        names = list(image_names(folder, f"{below}/{label}" if below else label))
        if not names:
            raise DataError(
                f"{folder / below / label}: no images in it (.png, .jpg and so on); add some or remove the folder"
            )
        found.extend((name, label) for name in names)
    if not found:
        raise DataError(f"{folder}: no labeled images found; {EXPECTED}")
    return found + [(name, None) for name in _unlabeled(folder)]


def _listed(folder: Path) -> list[tuple[str, str | None]]:
    """Every image of the folder with its label from the CSV file; not listed or empty means unlabeled."""
    labels = read_labels(folder / LABELS)
    names = [name for name in image_names(folder) if not name.startswith(f"{TEST}/")]
    missing = sorted(set(labels) - set(names))
    if missing:
        raise DataError(
            f"{folder / LABELS}: {len(missing)} listed files are not images in the folder: {_some(missing)}"
        )
    return [(name, labels.get(name)) for name in names]


def read_labels(path: Path) -> dict[str, str | None]:
    """File names and labels of a CSV file with the columns `file` and `label`; an empty label is None."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as lines:
            rows = csv.DictReader(lines)
            if rows.fieldnames is None or not {"file", "label"} <= set(rows.fieldnames):
                raise DataError(f"{path}: expected the columns file and label, found {rows.fieldnames or 'none'}")
            labels: dict[str, str | None] = {}
            for row in rows:
                name = (row["file"] or "").strip().replace("\\", "/").removeprefix("./")
                label = (row["label"] or "").strip() or None
                if labels.setdefault(name, label) != label:
                    raise DataError(f"{path}: {name} is listed twice, with different labels")
            return labels
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: cannot be read as CSV in UTF-8: {error}") from error


def _test(folder: Path) -> list[tuple[str, str]]:
    if not (folder / TEST).is_dir():
        return []
    _refuse_loose(folder, folder / TEST)
    return [(name, label) for label in _folders(folder / TEST) for name in image_names(folder, f"{TEST}/{label}")]


def _unlabeled(folder: Path) -> list[str]:
    return list(image_names(folder, UNLABELED)) if (folder / UNLABELED).is_dir() else []


def _classes(folder: Path, train: Sequence[tuple[str, str | None]], test: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    classes = sorted({label for _, label in train if label is not None})
    if len(classes) < 2:
        raise DataError(f"{folder}: at least 2 classes are needed, found {classes or 'none'}; {EXPECTED}")
    only = sorted({label for _, label in test} - set(classes))
    if only:
        raise DataError(f"{folder / TEST}: classes without any labeled image: {_some(only)}; they could not be learned")
    return tuple(classes)


def _folders(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def _refuse_loose(folder: Path, place: Path) -> None:
    """Images directly where class folders should be have no label: do not lose them silently."""
    loose = [path.name for path in place.iterdir() if path.is_file() and not path.name.startswith(".")]
    images = sorted(name for name in loose if looks_like_image(name))
    if images:
        raise DataError(f"{place}: images outside any class folder: {_some(images)}; move them to {folder / UNLABELED}")


def _others(folder: Path) -> tuple[str, ...]:
    """Files that are not taken for images; told by `check`."""
    found = []
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        below = Path(place).relative_to(folder)
        found += [
            (below / name).as_posix() for name in files if not name.startswith(".") and not looks_like_image(name)
        ]
    return tuple(sorted(set(found) - {LABELS}))


def _refuse_unprintable(layout: Layout) -> None:
    for text in (*layout.classes, *layout.names):
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise DataError(f"{layout.folder}: the name {text!r} is not valid UTF-8; rename it") from None


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
