"""The idx readers on small files, plain and gzipped, and on the real Fashion-MNIST."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from ns3l.data import info, load
from ns3l.data.mnist import FILES, read_idx
from ns3l.errors import DataError

pytestmark = pytest.mark.filterwarnings("ignore:.*is not the published set:UserWarning")
TRAIN = np.random.default_rng(0).integers(0, 256, (7, 28, 28)).astype(np.uint8)
TEST = np.random.default_rng(1).integers(0, 256, (3, 28, 28)).astype(np.uint8)


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def write(folder: Path, zipped: bool) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    labels = np.arange(7, dtype=np.uint8), np.array([9, 8, 7], np.uint8)
    for name, array in zip(FILES, (TRAIN, labels[0], TEST, labels[1]), strict=True):
        content = gzip.compress(idx(array)) if zipped else idx(array)
        (folder / (f"{name}.gz" if zipped else name)).write_bytes(content)
    return folder


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("mnist", "MNIST/raw"),
        ("mnist", "mnist"),
        ("mnist", "."),
        ("fashion-mnist", "FashionMNIST/raw"),
        ("fashion-mnist", "fashion-mnist"),
        ("fashion-mnist", "fashion-mnist/FashionMNIST/raw"),
    ],
)
def test_layouts(tmp_path: Path, name: str, place: str, zipped: bool) -> None:
    write(tmp_path / place, zipped)
    data = load(name, root=tmp_path)
    assert np.array_equal(data.x[..., 0], TRAIN) and np.array_equal(data.x_test[..., 0], TEST)
    assert data.y.tolist() == list(range(7)) and data.y_test.tolist() == [9, 8, 7]
    assert data.name == name and data.x.flags.writeable
    assert data.classes[9] == ("9" if name == "mnist" else "Ankle boot")


def test_named_folders_come_before_bare_files(tmp_path: Path) -> None:
    write(tmp_path, zipped=True)
    write(tmp_path / "FashionMNIST/raw", zipped=True)
    (tmp_path / f"{FILES[0]}.gz").write_bytes(b"not read")
    assert len(load("fashion-mnist", root=tmp_path)) == 7


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not an idx file"),
        (b"\x00\x00\x08", "not an idx file"),
        (b"<html>a page that is no data set</html>", "not an idx file"),
        (idx(TRAIN[0]), "with 3 axes"),
        (idx(TRAIN).replace(b"\x00\x00\x08", b"\x00\x00\x0d", 1), "unsigned bytes"),
        (idx(TRAIN)[:-1], r"5,487 bytes, but its header says \(7, 28, 28\)"),
        (idx(TRAIN) + b"x", "5,489 bytes"),
        (struct.pack(">BBBBIII", 0, 0, 8, 3, 2**32 - 1, 2**32 - 1, 2**32 - 1), "cut off or damaged"),
    ],
)
@pytest.mark.parametrize("zipped", [True, False])
def test_damaged(tmp_path: Path, content: bytes, message: str, zipped: bool) -> None:
    path = tmp_path / ("x.gz" if zipped else "x")
    path.write_bytes(gzip.compress(content) if zipped else content)
    with pytest.raises(DataError, match=message):
        read_idx(path, 3)


def test_truncated_gzip(tmp_path: Path) -> None:
    whole = gzip.compress(idx(TRAIN))
    for end in (0, 5, len(whole) // 2, len(whole) - 1):
        (tmp_path / "x.gz").write_bytes(whole[:end])
        with pytest.raises(DataError, match=r"damaged|not an idx file"):
            read_idx(tmp_path / "x.gz", 3)


def test_counts_must_agree(tmp_path: Path) -> None:
    folder = write(tmp_path / "MNIST/raw", zipped=False)
    (folder / FILES[1]).write_bytes(idx(np.zeros(6, np.uint8)))
    with pytest.raises(DataError, match="7 images, but 6 labels"):
        load("mnist", root=tmp_path)


@pytest.mark.realdata
@pytest.mark.filterwarnings("error")
def test_real_fashion_mnist() -> None:
    data = load("fashion-mnist")
    assert data.x.shape == (60_000, 28, 28, 1) and data.x_test.shape == (10_000, 28, 28, 1)
    assert np.bincount(data.y).tolist() == [6000] * 10 and np.bincount(data.y_test).tolist() == [1000] * 10
    about = info(data)
    assert about["mean"] == pytest.approx([0.2860], abs=1e-4) and about["std"] == pytest.approx([0.3530], abs=1e-4)


@pytest.mark.skipif(not Path("/usr/share/datasets/fashion-mnist").is_dir(), reason="Debian's package is not installed")
@pytest.mark.filterwarnings("error")
def test_debian_package_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NS3L_DATA", str(tmp_path))
    assert len(load("fashion-mnist")) == 60_000
    with pytest.raises(DataError, match="was not found"):
        load("fashion-mnist", root=tmp_path)
