"""The MATLAB reader against files that SciPy writes."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.io import savemat

from ns3l.data.matlab import variables
from ns3l.errors import DataError

KINDS = ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8"]


@given(
    hnp.arrays(st.sampled_from(KINDS), hnp.array_shapes(min_dims=2, max_dims=4, max_side=4)),
    st.booleans(),
    st.text("abc", min_size=1, max_size=20),
)
def test_every_numeric_kind(tmp_path_factory: pytest.TempPathFactory, array: np.ndarray, pack: bool, name: str) -> None:
    path = tmp_path_factory.mktemp("mat") / "x.mat"
    savemat(
        path,
        {"first": np.eye(3), name: array, "text": "hello", "cell": np.array([1, "a"], object)},
        do_compression=pack,
    )
    found = {variable.name: variable for variable in variables(path)}
    kept = next(variable.read() for variable in variables(path) if variable.name == name)
    assert found[name].shape == array.shape and found[name].kind == array.dtype
    assert kept.dtype == array.dtype and np.array_equal(kept, array, equal_nan=array.dtype.kind == "f")


def test_big_endian(tmp_path: Path) -> None:
    def element(kind: int, content: bytes) -> bytes:
        return np.array([kind, len(content)], ">u4").tobytes() + content + bytes(-len(content) % 8)

    parts = [
        element(6, np.array([13, 0], ">u4").tobytes()),
        element(5, np.array([2, 3], ">i4").tobytes()),
        element(1, b"x"),
        element(4, np.array([1, 2, 3, 4, 5, 600], ">u2").tobytes()),
    ]
    head = b"MATLAB 5.0".ljust(124) + b"\x01\x00MI"
    (tmp_path / "x.mat").write_bytes(head + element(14, b"".join(parts)))
    (found,) = [variable.read() for variable in variables(tmp_path / "x.mat")]
    assert found.dtype == np.uint32 and found.tolist() == [[1, 3, 5], [2, 4, 600]]


@pytest.mark.parametrize("value", ["text", {"a": 1}, np.array([1, "a"], object), np.array([[1j, 2]])])
def test_other_content_is_not_read(tmp_path: Path, value: object) -> None:
    savemat(tmp_path / "x.mat", {"x": value})
    with pytest.raises(DataError, match="only real numbers are read"):
        [variable.read() for variable in variables(tmp_path / "x.mat")]
