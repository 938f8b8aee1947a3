import struct
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ns3l.data
from ns3l.data.arrays import from_arrays, load_arrays, to_rows
from ns3l.errors import DataError

RNG = np.random.default_rng(0)
X = RNG.integers(0, 255, (6, 4, 5, 3), dtype=np.uint8)
Y = np.array([0, 1, 0, 1, -1, -1])


@pytest.mark.parametrize(
    "images",
    [
        X.astype(np.int64),
        X.astype(np.float64),
        X.astype(np.float32) / 255,
        X / 255,
        (X / 255).astype(np.float16).astype(np.float32).round(9) * 0 + X.astype(np.float32),
    ],
)
def test_images_are_turned_into_bytes_where_nothing_is_lost(images):
    rows = to_rows(images, "X")
    assert rows.dtype == np.uint8 and np.array_equal(rows, X)


def test_bytes_and_features_are_not_copied():
    features = X.reshape(6, -1).astype(np.float32)
    assert to_rows(X, "X") is X and np.shares_memory(to_rows(X[..., 0], "X"), X)
    assert to_rows(features, "X") is features


def test_black_and_white_images_become_0_and_255():
    assert set(to_rows(X > 100, "X").ravel()) == {0, 255}
    assert set(to_rows((X > 100).astype(np.float32), "X").ravel()) == {0, 255}


def test_images_that_would_be_rounded_need_consent():
    images = RNG.random((6, 4, 4))
    with pytest.raises(DataError, match="no multiples of 1/255 or whole numbers; quantize=True rounds them"):
        from_arrays(images, Y)
    rows = from_arrays(images, Y, quantize=True).x
    assert rows.shape == (6, 4, 4, 1) and np.abs(rows[..., 0] / 255 - images).max() <= 0.5 / 255 + 1e-9


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (X.astype(np.int64) - 5, r"must lie in 0\.\.255 or 0\.\.1, got -5"),
        (X.astype(np.float32) * np.nan, r"must lie in 0\.\.255"),
        (np.zeros((6, 3, 32, 32), np.uint8), r"X\.transpose\(0, 2, 3, 1\)"),
        (X / 2, "round them to whole numbers"),
        (np.zeros(6), "expected features"),
        (np.zeros((0, 3)), "is empty"),
        (np.array([["a", "b"]]), "expected numbers"),
        (np.full((6, 2), 1e300), "2 of 2 columns"),
        (np.array([[1, np.nan, 0], [np.inf, np.nan, 0]]), r"2 of 2 rows and 2 of 3 columns \(0, 1\)"),
    ],
)
def test_rows_that_make_no_sense_are_refused(rows, message):
    with pytest.raises(DataError, match=message):
        to_rows(rows, "X")


def test_all_parts_of_an_npz_arrive(tmp_path):
    path = tmp_path / "mine.npz"
    np.savez(path, x=X, y=["b", "a", "b", "a", "", ""], X_test=X[:2], y_test=["a", "b"], X_unlabeled=X[3:])
    data = ns3l.data.load(path)
    assert data.name == "mine" and data.classes == ("a", "b") and data.y.tolist() == [1, 0, 1, 0, -1, -1]
    assert data.y_test.tolist() == [0, 1] and data.x_extra.shape == (3, 4, 5, 3)


def test_class_names_in_an_npz_name_the_numbers(tmp_path):
    np.savez(tmp_path / "mine.npz", X=X, y=Y, classes=np.array(["zebra", "ant"]))
    data = load_arrays(tmp_path / "mine.npz")
    assert data.classes == ("zebra", "ant") and data.y.tolist() == Y.tolist()


def test_npy_files_side_by_side_are_mapped(tmp_path):
    np.save(tmp_path / "X.npy", X)
    with pytest.raises(DataError, match=r"no labels; put them into .*y\.npy or name their file with y="):
        load_arrays(tmp_path / "X.npy")
    np.save(tmp_path / "y.npy", Y)
    data = ns3l.data.load(tmp_path / "X.npy")
    assert isinstance(data.x, np.memmap) and np.array_equal(data.x, X)
    np.save(tmp_path / "other.npy", 1 - Y.clip(0))
    assert load_arrays(tmp_path / "X.npy", y=tmp_path / "other.npy").y.tolist() == (1 - Y.clip(0)).tolist()


class Trap:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was executed",))


@pytest.mark.parametrize("name", ["trap.npz", "X.npy"])
def test_pickles_are_not_executed(tmp_path, name):
    objects = np.array([Trap()], dtype=object)
    if name == "X.npy":
        np.save(tmp_path / name, objects, allow_pickle=True)
        np.save(tmp_path / "y.npy", Y)
    else:
        np.savez(tmp_path / name, X=objects, y=Y)
    with pytest.raises(DataError, match="holds Python objects, which are not read"):
        load_arrays(tmp_path / name)


def test_a_bare_pickle_under_an_array_name_is_refused(tmp_path):
    import pickle

    (tmp_path / "X.npy").write_bytes(pickle.dumps(Trap()))
    np.save(tmp_path / "y.npy", Y)
    with pytest.raises(DataError, match=r"not an \.npy file"):
        load_arrays(tmp_path / "X.npy")


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"X": X}, "expected the arrays X and y, found X"),
        ({"X": X, "y": Y, "X_unlabelled": X}, "unknown arrays X_unlabelled; expected X, y"),
        ({"X": X, "y": Y, "X_test": X}, "X_test and y_test come together"),
        ({"X": X, "y": Y[:3]}, r"\[6\]"),
        ({"X": X, "y": Y, "X_unlabeled": X[:, :2]}, "x_extra must hold"),
    ],
)
def test_incomplete_archives_are_refused(tmp_path, parts, message):
    np.savez(tmp_path / "a.npz", **parts)
    with pytest.raises(DataError, match=message):
        load_arrays(tmp_path / "a.npz")


def test_an_archive_that_would_not_fit_is_refused_before_it_is_unpacked(tmp_path):
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("X.npy", b"\0" * 100_000)
    content = path.read_bytes()
    at = content.rindex(b"PK\x01\x02") + 24
    path.write_bytes(content[:at] + struct.pack("<I", 0xFFFFFFF0) + content[at + 4 :])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.sysconf", lambda name: 1 << 15)
        with pytest.raises(DataError, match=r"too much for the 1.1 GB of this machine"):
            load_arrays(path)


def test_a_header_that_promises_too_much_is_refused(tmp_path):
    head = b"{'descr': '|u1', 'fortran_order': False, 'shape': (1000000000000, 8, 8, 3), }"
    content = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head) + 1) + head + b"\n" + b"\0" * 64
    (tmp_path / "X.npy").write_bytes(content)
    np.save(tmp_path / "y.npy", Y)
    with pytest.raises(DataError, match="damaged"):
        load_arrays(tmp_path / "X.npy")
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("X.npy", content)
        archive.write(tmp_path / "y.npy", "y.npy")
    with pytest.raises(DataError, match="damaged"):
        load_arrays(tmp_path / "a.npz")


def test_missing_and_foreign_files_are_told(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        load_arrays(tmp_path / "none.npz")
    (tmp_path / "a.npz").write_text("text")
    with pytest.raises(DataError, match="damaged, or not an array file"):
        load_arrays(tmp_path / "a.npz")


@settings(max_examples=100)
@given(places=st.lists(st.tuples(st.integers(0, 9999), st.integers(0, 255)), min_size=1, max_size=6))
def test_damaged_archives_give_data_or_a_data_error(tmp_path_factory, places):
    path = tmp_path_factory.mktemp("fuzz") / "a.npz"
    np.savez(path, X=X, y=Y)
    content = bytearray(path.read_bytes())
    for place, value in places:
        content[place % len(content)] = value
    path.write_bytes(bytes(content))
    try:
        assert load_arrays(path).x.ndim in (2, 4)
    except DataError as error:
        assert str(error)
