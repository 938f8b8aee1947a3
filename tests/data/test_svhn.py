"""The SVHN reader on small MATLAB files, and on the real set."""

import struct
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from ns3l.data import info, load
from ns3l.data.svhn import read_mat
from ns3l.errors import DataError

pytestmark = pytest.mark.filterwarnings("ignore:.*is not the published set:UserWarning")
LABELS = [10, 1, 2, 9, 10]


def write(path: Path, seed: int = 0, labels: object = LABELS, compress: bool = True, **other: object) -> np.ndarray:
    """A file as the official ones are: X [32, 32, 3, N], y [N, 1], digit 0 labeled 10. The images [N, 32, 32, 3]."""
    images = np.random.default_rng(seed).integers(0, 256, (5, 32, 32, 3)).astype(np.uint8)
    stored = np.stack(list(images), axis=3)
    content = {"X": stored, "y": np.array(labels, np.uint8)[:, None], **other}
    savemat(path, {key: value for key, value in content.items() if value is not None}, do_compression=compress)
    return images


@pytest.mark.parametrize("compress", [True, False])
def test_images_and_labels(tmp_path: Path, compress: bool) -> None:
    train = write(tmp_path / "train_32x32.mat", 1, compress=compress)
    test = write(tmp_path / "test_32x32.mat", 2, compress=compress)
    data = load("svhn", root=tmp_path)
    assert np.array_equal(data.x, train) and np.array_equal(data.x_test, test)
    assert data.y.tolist() == data.y_test.tolist() == [0, 1, 2, 9, 0]
    assert data.x_extra is None and data.x.flags.c_contiguous


def test_extra_becomes_unlabeled_rows(tmp_path: Path) -> None:
    write(tmp_path / "train_32x32.mat")
    write(tmp_path / "test_32x32.mat")
    with pytest.raises(DataError, match=r"extra_32x32.mat  \(1,329,278,602 bytes, sha256:a133a4"):
        load("svhn", root=tmp_path, extra=True)
    extra = write(tmp_path / "extra_32x32.mat", 3)
    data = load("svhn", root=tmp_path, extra=True)
    assert np.array_equal(data.x_extra, extra) and data.pool_size == 10


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"X": None}, "X is missing"),
        ({"y": None}, "y is missing"),
        ({"X": np.zeros((32, 32, 3, 5))}, r"got float64 \[32, 32, 3, 5\]"),
        ({"X": np.zeros((5, 32, 32, 3), np.uint8)}, r"got uint8 \[5, 32, 32, 3\]"),
        ({"X": np.array([{"a": 1}], dtype=object)}, "expected X as uint8"),
        ({"y": np.zeros((4, 1), np.uint8)}, "5 images, but 4 labels"),
        ({"labels": [11, 1, 1, 1, 1]}, "whole numbers from 1 to 10"),
        ({"y": np.full((5, 1), 1.5)}, "whole numbers from 1 to 10"),
        ({"y": np.full((5, 1), np.nan)}, "whole numbers from 1 to 10"),
        ({"y": np.array([list("abcde")], dtype=object).T}, r"one column of numbers, got object \[5, 1\]"),
        ({"y": np.full((5, 1), 1j)}, "one column of numbers, got object"),
        ({"y": np.full((5, 2), 1)}, "one column of numbers"),
    ],
)
def test_other_content(tmp_path: Path, other: dict, message: str) -> None:
    write(tmp_path / "x.mat", **other)
    with pytest.raises(DataError, match=message):
        read_mat(tmp_path / "x.mat")


@pytest.mark.parametrize("keep", [0, 50, 130, 200, 8_000, 15_000])
@pytest.mark.parametrize("compress", [True, False])
def test_cut_off(tmp_path: Path, keep: int, compress: bool) -> None:
    write(tmp_path / "x.mat", compress=compress)
    (tmp_path / "x.mat").write_bytes((tmp_path / "x.mat").read_bytes()[:keep])
    with pytest.raises(DataError, match=r"get it anew|is missing"):
        read_mat(tmp_path / "x.mat")


def test_damaged_compressed_byte(tmp_path: Path) -> None:
    write(tmp_path / "x.mat")
    content = bytearray((tmp_path / "x.mat").read_bytes())
    content[9_000] ^= 255
    (tmp_path / "x.mat").write_bytes(content)
    with pytest.raises(DataError, match="get it anew"):
        read_mat(tmp_path / "x.mat")


def test_wrong_checksum_at_the_end_of_the_images(tmp_path: Path) -> None:
    write(tmp_path / "x.mat")
    content = bytearray((tmp_path / "x.mat").read_bytes())
    content[136 + struct.unpack("<I", content[132:136])[0] - 1] ^= 1
    (tmp_path / "x.mat").write_bytes(content)
    with pytest.raises(DataError, match="incorrect data check"):
        read_mat(tmp_path / "x.mat")


def test_header_that_promises_absurd_counts(tmp_path: Path) -> None:
    write(tmp_path / "x.mat", compress=False)
    content = (tmp_path / "x.mat").read_bytes()
    honest = struct.pack("<4i", 32, 32, 3, 5)
    assert content.count(honest) == 1
    (tmp_path / "x.mat").write_bytes(content.replace(honest, struct.pack("<4i", 32, 32, 3, 2_000_000_000)))
    with pytest.raises(DataError, match="expected X as uint8"):
        read_mat(tmp_path / "x.mat")


def test_other_files(tmp_path: Path) -> None:
    (tmp_path / "x.mat").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(2000))
    with pytest.raises(DataError, match="not a MATLAB file of version 5"):
        read_mat(tmp_path / "x.mat")
    (tmp_path / "x.mat").write_text("<html>404</html>")
    with pytest.raises(DataError, match="not a MATLAB file of version 5"):
        read_mat(tmp_path / "x.mat")


@pytest.mark.parametrize("compress", [True, False])
def test_random_damage_never_escapes(tmp_path: Path, compress: bool) -> None:
    write(tmp_path / "x.mat", compress=compress)
    honest, rng = (tmp_path / "x.mat").read_bytes(), np.random.default_rng(0)
    for _ in range(200):
        content = bytearray(honest)
        for place in rng.integers(0, 260, 3):
            content[place] = rng.integers(0, 256)
        (tmp_path / "x.mat").write_bytes(content)
        try:
            read_mat(tmp_path / "x.mat")
        except DataError:
            continue


@pytest.mark.realdata
@pytest.mark.filterwarnings("error")
def test_real_svhn() -> None:
    data = load("svhn")
    assert data.x.shape == (73_257, 32, 32, 3) and data.x_test.shape == (26_032, 32, 32, 3)
    assert np.bincount(data.y).tolist() == [4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659]
    assert np.bincount(data.y_test).tolist() == [1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595]
    about = info(data)
    assert about["mean"] == pytest.approx([0.4377, 0.4438, 0.4728], abs=1e-4)
    assert about["std"] == pytest.approx([0.1980, 0.2010, 0.1970], abs=1e-4)
