"""Data: known sets by name and your own by path, all as one `Dataset`."""

import difflib
import inspect
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ns3l.data.cifar import CIFAR10, CIFAR100, load_cifar10, load_cifar100
from ns3l.data.dataset import Dataset, chunks
from ns3l.data.digits import load_digits
from ns3l.data.known import Known, data_root
from ns3l.data.mnist import FASHION_MNIST, MNIST, load_fashion_mnist, load_mnist
from ns3l.data.stl10 import STL10, load_stl10
from ns3l.data.svhn import SVHN, SVHN_EXTRA, load_svhn
from ns3l.errors import DataError

__all__ = ["DATASETS", "KNOWN", "Dataset", "fetch", "info", "load"]

DATASETS: dict[str, Callable[..., Dataset]] = {
    "cifar10": load_cifar10,
    "cifar100": load_cifar100,
    "svhn": load_svhn,
    "stl10": load_stl10,
    "mnist": load_mnist,
    "fashion-mnist": load_fashion_mnist,
    "digits": load_digits,
}
KNOWN: dict[str, Known] = {known.name: known for known in (CIFAR10, CIFAR100, SVHN, STL10, MNIST, FASHION_MNIST)}
ARRAYS = (".npz", ".npy")
TABLES = (".parquet", ".csv")


def load(name: str | os.PathLike[str], root: str | os.PathLike[str] | None = None, **options: Any) -> Dataset:
    """A known set by name, or your own by path: a folder of images, .npz, .npy, .parquet or .csv.

    A known set is looked for in `root`, else in the folder that NS3L_DATA names, else in the user's cache, and is not
    downloaded; `fetch` does that. `options` go to the loader (for example `extra=True` of svhn).
    """
    text = os.fspath(name)
    if text in DATASETS:
        return DATASETS[text](root, **_known_options(text, options))
    if not text.strip():
        raise DataError(f"data are a known set or a path, got {text!r}; the current folder is called '.'")
    loader = _own_loader(Path(text))
    return loader(Path(text), **options)


def fetch(name: str, root: str | os.PathLike[str] | None = None, progress: bool = True, extra: bool = False) -> Path:
    """Download a known set unless it is on disk, check that it is complete, and return its folder.

    `extra` concerns svhn: its 531,131 further images.
    """
    if name not in DATASETS:
        raise DataError(_unknown(name))
    options = _known_options(name, {"extra": True} if extra else {})
    if name not in KNOWN:
        return data_root(root)
    known = SVHN_EXTRA if extra else KNOWN[name]
    folder = known.fetch(root, progress=progress)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        differences = known.official.differences(load(name, root, **options))
    if differences:
        raise DataError(f"{folder}: not the published {name}: {'; '.join(differences)}; remove it and fetch it anew")
    return folder


def info(data: Dataset) -> dict[str, Any]:
    """What a data set is, in numbers that JSON can hold; mean and std per channel, images as fractions of 255."""
    mean, std = _statistics(data.x)
    labels = np.bincount(data.y[data.y >= 0], minlength=len(data.classes))
    return {
        "name": data.name,
        "kind": "images" if data.is_image else "features",
        "shape": list(data.x.shape[1:]),
        "dtype": str(data.x.dtype),
        "classes": list(data.classes),
        "train": len(data.x),
        "labeled": int(labels.sum()),
        "unlabeled": len(data.x) - int(labels.sum()),
        "extra": 0 if data.x_extra is None else len(data.x_extra),
        "test": 0 if data.x_test is None else len(data.x_test),
        "folds": len(data.folds),
        "per_class": dict(zip(data.classes, labels.tolist(), strict=True)),
        "mean": mean,
        "std": std,
        "hash": data.hash,
    }


def _statistics(x: np.ndarray) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of each channel or feature, in one pass of float64 sums over blocks of rows."""
    axes = tuple(range(x.ndim - 1))
    total, squares, count = np.zeros(x.shape[-1]), np.zeros(x.shape[-1]), 0
    for block in chunks(x, 1 << 22):
        values = block.astype(np.float64) / (255.0 if x.ndim == 4 else 1.0)
        total += values.sum(axes)
        squares += np.square(values).sum(axes)
        count += values.size // x.shape[-1]
    mean = total / count
    return mean.tolist(), np.sqrt(np.maximum(squares / count - mean**2, 0.0)).tolist()


def _known_options(name: str, options: dict[str, Any]) -> dict[str, Any]:
    allowed = [option for option in inspect.signature(DATASETS[name]).parameters if option != "root"]
    if wrong := sorted(set(options) - set(allowed)):
        raise DataError(f"{name} has no option {', '.join(wrong)}; it takes {', '.join(allowed) or 'none'}")
    return options


def _own_loader(path: Path) -> Callable[..., Dataset]:
    """The loader for a path, by what it is; the modules behind it are imported only now."""
    if path.is_dir():
        from ns3l.data.images import load_folder

        return load_folder
    if not path.exists():
        raise DataError(_unknown(str(path)))
    if path.suffix.lower() in ARRAYS:
        from ns3l.data.arrays import load_arrays

        return load_arrays
    if path.suffix.lower() in TABLES:
        from ns3l.data.frames import load_table

        return load_table
    raise DataError(f"{path}: expected a folder or a file ending in {', '.join(ARRAYS + TABLES)}, got {path.suffix!r}")


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name.lower(), DATASETS, n=1, cutoff=0.5)
    guess = f"; did you mean {near[0]}?" if near else "."
    return f"no data set and no file is called {name!r}{guess} Known sets: {', '.join(DATASETS)}; or give a path"
