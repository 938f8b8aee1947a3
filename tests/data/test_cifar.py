"""CIFAR readers on small files written in the official Python and binary formats, and on the real set."""

import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest

from ns3l.data import info, load
from ns3l.data.cifar import BATCHES, CIFAR10_CLASSES, CIFAR100_CLASSES
from ns3l.errors import DataError

pytestmark = pytest.mark.filterwarnings("ignore:.*is not the published set:UserWarning")


def images(seed: int, rows: int) -> tuple[np.ndarray, list[int]]:
    """Random images [N, 32, 32, 3], and labels."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (rows, 32, 32, 3)).astype(np.uint8), rng.integers(0, 10, rows).tolist()


def planes(x: np.ndarray) -> np.ndarray:
    """Rows as CIFAR stores them: 1,024 red, 1,024 green, 1,024 blue bytes, each row by row."""
    return np.stack([np.concatenate([image[:, :, c].ravel() for c in range(3)]) for image in x])


def write_python(folder: Path, protocol: int = 2, keys: type = bytes) -> None:
    folder.mkdir(parents=True)
    for k, name in enumerate((*BATCHES, "test_batch")):
        x, y = images(k, 4 + k)
        batch = {"data": planes(x), "labels": y, "batch_label": f"batch {k}", "filenames": ["a.png"] * len(y)}
        named = {key.encode() if keys is bytes else key: value for key, value in batch.items()}
        (folder / name).write_bytes(pickle.dumps(named, protocol))


def write_binary(folder: Path) -> None:
    folder.mkdir(parents=True)
    for k, name in enumerate((*BATCHES, "test_batch")):
        x, y = images(k, 4 + k)
        np.concatenate([np.array(y, np.uint8)[:, None], planes(x)], 1).tofile(folder / f"{name}.bin")


def check_cifar10(root: Path) -> None:
    data = load("cifar10", root=root)
    parts = [images(k, 4 + k) for k in range(6)]
    assert np.array_equal(data.x, np.concatenate([x for x, _ in parts[:5]]))
    assert data.y.tolist() == [label for _, y in parts[:5] for label in y]
    assert np.array_equal(data.x_test, parts[5][0]) and data.y_test.tolist() == parts[5][1]
    assert data.classes == CIFAR10_CLASSES and data.x.flags.c_contiguous and data.x.flags.writeable


@pytest.mark.parametrize("place", ["cifar-10-batches-py", "cifar10/cifar-10-batches-py", "cifar10", "."])
def test_cifar10_python(tmp_path: Path, place: str) -> None:
    write_python(tmp_path / "root" / place)
    check_cifar10(tmp_path / "root")


@pytest.mark.parametrize(("protocol", "keys"), [(2, str), (4, bytes), (5, str)])
def test_cifar10_pickles_of_other_versions(tmp_path: Path, protocol: int, keys: type) -> None:
    write_python(tmp_path / "cifar-10-batches-py", protocol, keys)
    check_cifar10(tmp_path)


@pytest.mark.parametrize("place", ["cifar-10-batches-bin", "."])
def test_cifar10_binary(tmp_path: Path, place: str) -> None:
    write_binary(tmp_path / "root" / place)
    check_cifar10(tmp_path / "root")


@pytest.mark.parametrize("beside", [True, False])
@pytest.mark.parametrize(("kind", "write"), [("python", write_python), ("binary", write_binary)])
def test_cifar10_archive(tmp_path: Path, kind: str, write, beside: bool) -> None:
    folder = "cifar-10-batches-py" if kind == "python" else "cifar-10-batches-bin"
    write(tmp_path / folder)
    (tmp_path / "root").mkdir()
    archive = tmp_path / f"root/cifar-10-{kind}.tar.gz"
    with tarfile.open(archive, "w:gz") as out:
        out.add(tmp_path / folder, folder)
    check_cifar10(archive.parent if beside else archive)
    check_cifar10(archive.parent)
    names = {path.name for path in archive.parent.iterdir() if not path.name.endswith(".lock")}
    assert names == {archive.name, folder}


def test_cut_archive_leaves_nothing(tmp_path: Path) -> None:
    write_python(tmp_path / "cifar-10-batches-py")
    (tmp_path / "root").mkdir()
    archive = tmp_path / "root/cifar-10-python.tar.gz"
    with tarfile.open(archive, "w:gz") as out:
        out.add(tmp_path / "cifar-10-batches-py", "cifar-10-batches-py")
    archive.write_bytes(archive.read_bytes()[:-2000])
    with pytest.raises(DataError, match="cut off or damaged"):
        load("cifar10", root=tmp_path / "root")
    assert [path.name for path in archive.parent.iterdir() if not path.name.startswith(".cifar10.lock")] == [
        archive.name
    ]


def test_cifar100_python_takes_fine_labels(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    for k, name in enumerate(("train", "test")):
        x, coarse = images(k, 5)
        batch = {b"data": planes(x), b"coarse_labels": coarse, b"fine_labels": [99, 98, 0, 1, 2]}
        (folder / name).write_bytes(pickle.dumps(batch, 2))
    data = load("cifar100", root=tmp_path)
    assert data.y.tolist() == data.y_test.tolist() == [99, 98, 0, 1, 2]
    assert np.array_equal(data.x, images(0, 5)[0]) and np.array_equal(data.x_test, images(1, 5)[0])
    assert len(data.classes) == 100 and data.classes[99] == "worm" and data.classes == tuple(sorted(CIFAR100_CLASSES))


def test_cifar100_binary_takes_the_second_label(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-100-binary"
    folder.mkdir()
    for k, name in enumerate(("train.bin", "test.bin")):
        x, coarse = images(k, 3)
        labels = np.array([coarse, [99, 50, 0]], np.uint8).T
        np.concatenate([labels, planes(x)], 1).tofile(folder / name)
    data = load("cifar100", root=tmp_path)
    assert data.y.tolist() == [99, 50, 0] and np.array_equal(data.x_test, images(1, 3)[0])


def test_not_the_published_counts_is_said(tmp_path: Path) -> None:
    write_binary(tmp_path / "cifar-10-batches-bin")
    with pytest.warns(UserWarning, match="not the published set: 30 training images, not 50,000"):
        load("cifar10", root=tmp_path)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ([1, 2], "expected a dict"),
        ({b"data": np.zeros((2, 3072), np.uint8)}, "2 whole numbers under 'labels', got NoneType"),
        ({b"data": np.zeros((2, 3072), np.uint8), b"labels": [1]}, "2 whole numbers"),
        ({b"data": np.zeros((2, 3072), np.uint8), b"labels": [1, "a"]}, "2 whole numbers"),
        ({b"data": np.zeros((2, 3072), np.uint8), b"labels": [1, 10]}, "must lie in"),
        ({b"data": np.zeros((2, 3071), np.uint8), b"labels": [1, 2]}, r"got uint8 \[2, 3071\]"),
        ({b"data": np.zeros((2, 3072), np.int64), b"labels": [1, 2]}, r"got int64"),
        ({b"labels": [1, 2]}, "under 'data', got NoneType"),
        (print, r"cifar-10-batches-py/data_batch_3: it asks for (builtins|__builtin__).print"),
    ],
)
def test_wrong_batches(tmp_path: Path, batch: object, message: str) -> None:
    write_python(tmp_path / "cifar-10-batches-py")
    (tmp_path / "cifar-10-batches-py/data_batch_3").write_bytes(pickle.dumps(batch, 2))
    with pytest.raises(DataError, match=message):
        load("cifar10", root=tmp_path)


def test_cut_off_binary(tmp_path: Path) -> None:
    write_binary(tmp_path / "cifar-10-batches-bin")
    path = tmp_path / "cifar-10-batches-bin/data_batch_2.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"data_batch_2.bin: 15,364 bytes are no whole number of records of 3073"):
        load("cifar10", root=tmp_path)


def test_missing_batch_is_named(tmp_path: Path) -> None:
    write_python(tmp_path / "cifar-10-batches-py")
    (tmp_path / "cifar-10-batches-py/data_batch_4").unlink()
    with pytest.raises(DataError, match="is there but lacks data_batch_4"):
        load("cifar10", root=tmp_path)


def test_archive_that_lacks_a_batch_leaves_nothing(tmp_path: Path) -> None:
    write_python(tmp_path / "cifar-10-batches-py")
    (tmp_path / "cifar-10-batches-py/data_batch_4").unlink()
    root = tmp_path / "root"
    root.mkdir()
    with tarfile.open(root / "cifar-10-python.tar.gz", "w:gz") as out:
        out.add(tmp_path / "cifar-10-batches-py", "cifar-10-batches-py")
    with pytest.raises(DataError, match=r"cifar-10-python.tar.gz: data_batch_4 missing in it"):
        load("cifar10", root=root)
    assert sorted(path.name for path in root.iterdir()) == [".cifar10.lock", "cifar-10-python.tar.gz"]


@pytest.mark.realdata
@pytest.mark.filterwarnings("error")
def test_real_cifar10() -> None:
    data = load("cifar10")
    assert data.x.shape == (50_000, 32, 32, 3) and data.x_test.shape == (10_000, 32, 32, 3)
    assert np.bincount(data.y).tolist() == [5000] * 10 and np.bincount(data.y_test).tolist() == [1000] * 10
    assert data.y[:10].tolist() == [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]
    about = info(data)
    assert about["mean"] == pytest.approx([0.49139968, 0.48215841, 0.44653091], abs=1e-7)
    assert about["std"] == pytest.approx([0.24703223, 0.24348513, 0.26158784], abs=1e-7)
