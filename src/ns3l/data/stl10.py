"""STL-10 (Coates et al., 2011), from the official binary files."""

import os
from pathlib import Path

import numpy as np

from ns3l.data.dataset import Dataset
from ns3l.data.download import Remote
from ns3l.data.known import Known, Layout, Official
from ns3l.errors import DataError

IMAGE_BYTES = 3 * 96 * 96
CLASSES = ("airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck")
FILES = ("train_X.bin", "train_y.bin", "test_X.bin", "test_y.bin", "unlabeled_X.bin", "fold_indices.txt")

STL10 = Known(
    name="stl10",
    layouts=(Layout("stl10_binary", FILES, "stl10_binary.tar.gz"),),
    remotes=(
        Remote(
            "stl10_binary.tar.gz",
            (
                "http://ai.stanford.edu/~acoates/stl10/stl10_binary.tar.gz",
                "https://cs.stanford.edu/~acoates/stl10/stl10_binary.tar.gz",
            ),
            "sha256:f31fd99273a1acb8609c8db427cebb1de3f71de77758cdc0e22956e1289b9866",
            2_640_397_119,
        ),
    ),
    official=Official(train=(500,) * 10, test=(800,) * 10, extra=100_000),
)


def load_stl10(root: str | os.PathLike[str] | None = None) -> Dataset:
    """STL-10: 5,000 labeled, 100,000 unlabeled and 8,000 test images, 96x96 in color, with the 10 official folds.

    The unlabeled images stay in their file and are mapped into memory, not read.
    """
    _, folder = STL10.find(root)
    y = _read_labels(folder / "train_y.bin")
    data = Dataset(
        name="stl10",
        x=np.array(_map_images(folder / "train_X.bin"), order="C"),
        y=y,
        classes=CLASSES,
        x_test=np.array(_map_images(folder / "test_X.bin"), order="C"),
        y_test=_read_labels(folder / "test_y.bin"),
        x_extra=_map_images(folder / "unlabeled_X.bin"),
        folds=_read_folds(folder / "fold_indices.txt", len(y)),
    )
    return STL10.remind(data)


def _map_images(path: Path) -> np.ndarray:
    """Images [N, 96, 96, 3] as a view of the file, where each color plane is stored column by column."""
    size = path.stat().st_size
    if not size or size % IMAGE_BYTES:
        raise DataError(
            f"{path}: {size:,} bytes are no whole number of images of {IMAGE_BYTES:,}: cut off or another file"
        )
    stored = np.memmap(path, np.uint8, mode="c", shape=(size // IMAGE_BYTES, 3, 96, 96))
    return stored.transpose(0, 3, 2, 1)


def _read_labels(path: Path) -> np.ndarray:
    labels = np.fromfile(path, np.uint8).astype(np.int64)
    if not len(labels) or labels.min() < 1 or labels.max() > len(CLASSES):
        raise DataError(f"{path}: expected labels from 1 to {len(CLASSES)}, one byte each; cut off or another file")
    return labels - 1


def _read_folds(path: Path, rows: int) -> tuple[np.ndarray, ...]:
    """One fold a line: row numbers of the training part, counted from 0."""
    try:
        lines = [line.split() for line in path.read_text(encoding="ascii").splitlines() if line.strip()]
        folds = tuple(np.sort(np.array(line, np.int64)) for line in lines)
    except (ValueError, OverflowError) as error:
        raise DataError(f"{path}: expected row numbers from 0 to {rows - 1}, one fold a line: {error}") from error
    if not folds:
        raise DataError(f"{path}: no fold in it")
    return folds
