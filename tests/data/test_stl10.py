"""The STL-10 reader on small files in the official binary layout."""

import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch

from ns3l.data import load
from ns3l.errors import DataError

pytestmark = pytest.mark.filterwarnings("ignore:.*is not the published set:UserWarning")
PARTS = {"train": 6, "test": 4, "unlabeled": 5}
LABELS = {"train": [1, 2, 3, 10, 5, 6], "test": [10, 9, 8, 7]}
FOLDS = [[5, 0, 3], [1, 2, 4]]


def images(part: str) -> np.ndarray:
    rng = np.random.default_rng(len(part))
    return rng.integers(0, 256, (PARTS[part], 96, 96, 3)).astype(np.uint8)


def write(folder: Path) -> Path:
    """Each image as 3 planes, each plane column by column (as MATLAB stores a matrix)."""
    folder.mkdir(parents=True)
    for part in PARTS:
        stored = [image[:, :, c].ravel(order="F") for image in images(part) for c in range(3)]
        np.concatenate(stored).tofile(folder / f"{part}_X.bin")
    for part, labels in LABELS.items():
        np.array(labels, np.uint8).tofile(folder / f"{part}_y.bin")
    (folder / "fold_indices.txt").write_text("".join(" ".join(map(str, fold)) + " \n" for fold in FOLDS))
    (folder / "class_names.txt").write_text("airplane\nbird\n")
    return folder


def check(root: Path) -> None:
    data = load("stl10", root=root)
    assert np.array_equal(data.x, images("train")) and np.array_equal(data.x_test, images("test"))
    assert np.array_equal(data.x_extra, images("unlabeled"))
    assert data.y.tolist() == [0, 1, 2, 9, 4, 5] and data.y_test.tolist() == [9, 8, 7, 6]
    assert [fold.tolist() for fold in data.folds] == [[0, 3, 5], [1, 2, 4]]
    assert data.classes[2] == "car" and data.pool_size == 11


@pytest.mark.parametrize("place", ["stl10_binary", "stl10/stl10_binary", "."])
def test_layout(tmp_path: Path, place: str) -> None:
    write(tmp_path / "root" / place)
    check(tmp_path / "root")


def test_archive(tmp_path: Path) -> None:
    write(tmp_path / "stl10_binary")
    (tmp_path / "root").mkdir()
    with tarfile.open(tmp_path / "root/stl10_binary.tar.gz", "w:gz") as out:
        out.add(tmp_path / "stl10_binary", "stl10_binary")
    check(tmp_path / "root")


def test_unlabeled_images_stay_in_their_file(tmp_path: Path) -> None:
    folder = write(tmp_path / "stl10_binary")
    data = load("stl10", root=tmp_path)
    assert isinstance(data.x_extra, np.memmap)
    before = (folder / "unlabeled_X.bin").read_bytes()
    torch.from_numpy(data.x_extra)[0] = 0
    assert (folder / "unlabeled_X.bin").read_bytes() == before


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train_X.bin", bytes(27_647), "27,647 bytes are no whole number of images of 27,648"),
        ("unlabeled_X.bin", b"", "0 bytes are no whole number"),
        ("train_y.bin", bytes(6), "labels from 1 to 10"),
        ("test_y.bin", b"\x0b\x01\x01\x01", "labels from 1 to 10"),
        ("test_y.bin", b"\x01", "y_test must be"),
        ("fold_indices.txt", b"0 1 x\n", "expected row numbers from 0 to 5"),
        ("fold_indices.txt", b"0 1 6\n", "in 0..5"),
        ("fold_indices.txt", b"0 1 99999999999999999999\n", "expected row numbers"),
        ("fold_indices.txt", b"\xff\xfe", "expected row numbers"),
        ("fold_indices.txt", b"\n", "no fold"),
    ],
)
def test_damaged(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    write(tmp_path / "stl10_binary")
    (tmp_path / "stl10_binary" / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        load("stl10", root=tmp_path)


def test_absent_names_file_address_checksum(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        load("stl10", root=tmp_path)
    for part in ("stl10_binary.tar.gz", "http://ai.stanford.edu", "sha256:f31fd992", "ns3l data fetch stl10 --root"):
        assert part in str(caught.value)
