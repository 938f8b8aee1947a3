"""The restricted unpickler: plain data and arrays come out, nothing runs."""

import os
import pickle
import struct
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ns3l.data.unpickle import OPCODES, loads, read_pickle
from ns3l.errors import DataError

NUMBERS = st.sampled_from([np.uint8, np.int64, np.float32, ">i4", np.bool_])


def python2(keys: dict[bytes, bytes]) -> bytes:
    """A dict of byte strings as cPickle of Python 2 wrote it (protocol 2, BINSTRING)."""
    body = b"".join(
        b"U" + bytes([len(k)]) + k + b"q\x01" + b"T" + struct.pack("<i", len(v)) + v + b"q\x02" for k, v in keys.items()
    )
    return b"\x80\x02}q\x00(" + body + b"u."


@pytest.mark.parametrize("protocol", range(6))
def test_ordinary_data(protocol: int) -> None:
    batch = {"data": np.arange(12, dtype=np.uint8).reshape(3, 4), "labels": [1, 2, 3], "name": "x", "rate": (0.5, None)}
    out = loads(pickle.dumps(batch, protocol))
    assert np.array_equal(out["data"], batch["data"]) and out["data"].dtype == np.uint8
    assert {k: out[k] for k in ("labels", "name", "rate")} == {k: batch[k] for k in ("labels", "name", "rate")}


@settings(max_examples=50, deadline=None)
@given(hnp.arrays(NUMBERS, hnp.array_shapes(max_dims=4, max_side=4)), st.integers(2, 5), st.booleans())
def test_arrays_come_back(array: np.ndarray, protocol: int, fortran: bool) -> None:
    array = np.asfortranarray(array) if fortran else array
    out = loads(pickle.dumps([array], protocol))[0]
    assert out.dtype == array.dtype and np.array_equal(out, array, equal_nan=array.dtype.kind == "f")


def test_python_2_strings_come_as_bytes() -> None:
    assert loads(python2({b"labels": b"\xff\x00"})) == {b"labels": b"\xff\x00"}


class Runs:
    """Unpickling this makes a folder, if anything it names is ever called."""

    def __init__(self, call: Any, *arguments: Any) -> None:
        self.call, self.arguments = call, arguments

    def __reduce__(self) -> Any:
        return self.call, self.arguments


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("call", [os.mkdir, eval, getattr, np.load, Fraction, np.frombuffer])
def test_nothing_is_called(tmp_path: Path, protocol: int, call: Any) -> None:
    target = tmp_path / "made"
    argument = f"__import__('os').mkdir({str(target)!r})" if call is eval else str(target)
    with pytest.raises(DataError):
        loads(pickle.dumps({"data": Runs(call, argument)}, protocol))
    assert not target.exists()


HOSTILE = {
    "a class": pickle.dumps(Fraction(1, 2)),
    "a name only": b"cos\nsystem\n.",
    "old-style instance": b"(S'echo'\nios\nsystem\n.",
    "extension code": b"\x82\x01.",
    "persistent id": b"Pabc\n.",
    "huge memo": b"\x80\x02]r\xff\xff\xff\x7f.",
    "huge text memo": b"]p4000000000\n.",
    "huge bytes": b"\x80\x04\x8e" + struct.pack("<Q", 1 << 60) + b"x.",
    "huge array": b"\x80\x05\x96" + struct.pack("<Q", 1 << 50) + b"x.",
    "huge number": b"\x80\x02\x8a\xff" + b"\x01" * 255 + b".",
    "state for a function": b"cnumpy\ndtype\n}U\x01aK\x01sb.",
    "attributes for a function": b"c_codecs\nencode\nN}U\x0c__defaults__)s\x86b.",
    "state for a list": b"]}b.",
    "array without state": b"cnumpy.core.multiarray\n_reconstruct\n)R.",
    "ndarray called": b"cnumpy\nndarray\n(I1000000000000\ntR.",
    "object array": pickle.dumps(np.array([None, {}], dtype=object)),
    "named fields": pickle.dumps(np.zeros(2, [("a", "u1")])),
    "dates": pickle.dumps(np.array(["2020"], "M8[D]")),
    "complex": pickle.dumps(np.array([1j])),
    "scalar": pickle.dumps(np.float64(1.0)),
    "set": pickle.dumps({1, 2}),
    "unhashable key": b"}]K\x01s.",
    "holds itself": b"]q\x00h\x00a.",
    "holds itself often": b"]q\x00(" + b"h\x00" * 500 + b"e.",
    "deep": b"]" * 100 + b"a" * 99 + b".",
    "empty": b"",
    "no stop": b"\x80\x02]",
    "text": b"<html>404</html>",
    "zip": b"PK\x03\x04 and so on",
    "empty stack": b"0.",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_pickles(name: str) -> None:
    with pytest.raises(DataError, match="batch_1: "):
        loads(HOSTILE[name], "batch_1")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a class", r"asks for fractions.Fraction|could make an object"),
        ("old-style instance", "step INST at byte 9 could make an object"),
        ("extension code", "step EXT1 at byte 0 could make an object"),
        ("persistent id", "step PERSID"),
        ("huge memo", "memo number 2147483647 at byte 3 is absurd"),
        ("huge text memo", "memo number 4000000000"),
        ("holds itself", "it holds itself"),
        ("holds itself often", "it holds itself"),
        ("deep", "nested deeper than 16 levels"),
        ("attributes for a function", "tries to change a function"),
    ],
)
def test_hostile_pickles_are_refused_for_the_right_reason(name: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        loads(HOSTILE[name])


def test_array_must_have_its_bytes() -> None:
    honest = pickle.dumps(np.zeros((4, 5), np.uint8), 2)
    with pytest.raises(DataError, match="does not have 20 bytes"):
        loads(honest.replace(b"K\x04K\x05\x86", b"K\x04K\xff\x86"))


def test_shared_parts_are_read_once() -> None:
    shared: list = [1]
    for _ in range(12):
        shared = [shared] * 10
    assert len(loads(pickle.dumps(shared))) == 10


def test_cut_anywhere_is_a_data_error() -> None:
    whole = pickle.dumps({"data": np.arange(4, dtype=np.uint8), "labels": [1, 2]}, 2)
    for end in range(len(whole)):
        with pytest.raises(DataError):
            loads(whole[:end])


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60), st.integers(0, 200), st.integers(0, 255))
def test_random_bytes_never_escape(tail: bytes, place: int, value: int) -> None:
    honest = bytearray(pickle.dumps({"data": np.arange(4, dtype=np.uint8), "labels": [1, 2]}, 2))
    honest[place % len(honest)] = value
    for data in (tail, bytes(honest), bytes(honest[: place % len(honest)]) + tail):
        try:
            loads(data)
        except DataError:
            continue


def test_opcodes_are_pickles_own() -> None:
    import pickletools

    assert {code.name for code in pickletools.opcodes} >= OPCODES
    assert not OPCODES & {"INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "PERSID", "BINPERSID", "EXT1", "EXT2", "EXT4"}


def test_file_errors(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        read_pickle(tmp_path / "absent")
    (tmp_path / "big").write_bytes(b"x" * 100)
    with pytest.raises(DataError, match="a pickle of 100 bytes; at most 50 are read"):
        read_pickle(tmp_path / "big", limit=50)
