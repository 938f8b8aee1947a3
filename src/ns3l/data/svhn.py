"""SVHN, cropped digits (Netzer et al., 2011), from the official MATLAB files."""

import os
from pathlib import Path

import numpy as np

from ns3l.data.dataset import Dataset
from ns3l.data.download import Remote
from ns3l.data.known import Known, Layout, Official
from ns3l.data.matlab import Variable, variables
from ns3l.errors import DataError

ADDRESS = "http://ufldl.stanford.edu/housenumbers/"
MAX_BYTES = 4 << 30
FILES = {
    "train": ("435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8", 182_040_794),
    "test": ("cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b", 64_275_384),
    "extra": ("a133a4beb38a00fcdda90c9489e0c04f900b660ce8a316a5e854838379a71eb3", 1_329_278_602),
}


def _known(*parts: str) -> Known:
    names = tuple(f"{part}_32x32.mat" for part in parts)
    remotes = tuple(
        Remote(name, (f"{ADDRESS}{name}",), f"sha256:{FILES[part][0]}", FILES[part][1])
        for part, name in zip(parts, names, strict=True)
    )
    train = (4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659)
    test = (1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595)
    return Known("svhn", (Layout("svhn", names),), remotes, Official(train, test, extra=531_131))


SVHN = _known("train", "test")
SVHN_EXTRA = _known("train", "test", "extra")


def load_svhn(root: str | os.PathLike[str] | None = None, extra: bool = False) -> Dataset:
    """SVHN: 73,257 training and 26,032 test digits, 32x32 in color; `extra` adds 531,131 images, unlabeled."""
    known = SVHN_EXTRA if extra else SVHN
    layout, folder = known.find(root)
    x, y = read_mat(folder / layout.files[0])
    x_test, y_test = read_mat(folder / layout.files[1])
    x_extra = read_mat(folder / layout.files[2])[0] if extra else None
    data = Dataset(
        name="svhn",
        x=np.ascontiguousarray(x),
        y=y,
        classes=tuple("0123456789"),
        x_test=np.ascontiguousarray(x_test),
        y_test=y_test,
        x_extra=x_extra,
    )
    return known.remind(data)


def read_mat(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Images [N, 32, 32, 3], a view of the file's [32, 32, 3, N], and labels, where 10 stands for digit 0."""
    images = labels = None
    try:
        for variable in variables(path):
            if variable.name == "X":
                _check_images(path, variable)
                images = variable.read()
            elif variable.name == "y":
                labels = _digits(path, variable)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    if images is None or labels is None:
        raise DataError(f"{path}: expected the variables X and y; {'y' if labels is None else 'X'} is missing")
    if images.shape[3] != len(labels):
        raise DataError(f"{path}: {images.shape[3]:,} images, but {len(labels):,} labels")
    return images.transpose(3, 0, 1, 2), labels


def _check_images(path: Path, variable: Variable) -> None:
    shape, kind = variable.shape, variable.kind
    if len(shape) != 4 or shape[:3] != (32, 32, 3) or kind != np.uint8 or shape[3] * 3072 > MAX_BYTES:
        raise DataError(f"{path}: expected X as uint8 [32, 32, 3, N], got {kind} {list(shape)}")


def _digits(path: Path, variable: Variable) -> np.ndarray:
    shape, kind = variable.shape, variable.kind
    if len(shape) != 2 or min(shape) != 1 or max(shape) * 8 > MAX_BYTES or kind.hasobject:
        raise DataError(f"{path}: expected y as one column of numbers, got {kind} {list(shape)}")
    labels = variable.read().reshape(-1)
    if not np.isin(labels, np.arange(11)).all():
        raise DataError(f"{path}: labels in y must be whole numbers from 1 to 10")
    return labels.astype(np.int64) % 10
