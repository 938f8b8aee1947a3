"""Read the pickles of CIFAR without trusting them: nothing but arrays, dicts, lists, strings and numbers can come out.

No function that a pickle names is ever called. The few NumPy names that arrays need are answered by stand-ins of this
file, which check shape, dtype and length before an array is made; every opcode is looked at before the first one runs.
"""

import io
import math
import pickle
import pickletools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ns3l.errors import DataError

MAX_BYTES = 1 << 30
MAX_OPCODES = 4_000_000
MAX_DEPTH = 16
MAX_MEMO = 4_000_000
ITEM_TYPES = frozenset({"b1", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8"})
OPCODE_NAMES = (
    "PROTO FRAME STOP MARK POP POP_MARK PUT BINPUT LONG_BINPUT MEMOIZE GET BINGET LONG_BINGET "
    "NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 FLOAT BINFLOAT "
    "STRING BINSTRING SHORT_BINSTRING UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8 "
    "BINBYTES SHORT_BINBYTES BINBYTES8 BYTEARRAY8 "
    "EMPTY_LIST APPEND APPENDS LIST EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_DICT DICT SETITEM SETITEMS "
    "GLOBAL STACK_GLOBAL REDUCE BUILD"
)
OPCODES = frozenset(OPCODE_NAMES.split())


def read_pickle(path: Path, limit: int = MAX_BYTES) -> Any:
    """What a pickle of plain data and arrays holds; text of Python 2 comes as bytes; DataError for anything else."""
    try:
        size = path.stat().st_size
        if size > limit:
            raise DataError(f"{path}: a pickle of {size:,} bytes; at most {limit:,} are read")
        return loads(path.read_bytes(), str(path))
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error


def loads(data: bytes, name: str = "pickle") -> Any:
    """Unpickle bytes under the rules of this module."""
    try:
        _scan(data)
        return _plain(_Unpickler(io.BytesIO(data), encoding="bytes").load(), {}, 0)
    except DataError as error:
        raise DataError(f"{name}: {error}") from error.__cause__
    except (Exception, RecursionError, MemoryError) as error:
        raise DataError(
            f"{name}: not a readable pickle ({type(error).__name__}: {error}); get the file anew"
        ) from error


def _scan(data: bytes) -> None:
    """Refuse opcodes that make objects or reserve memory which the file does not pay for."""
    for count, (opcode, argument, position) in enumerate(pickletools.genops(data)):
        if count >= MAX_OPCODES:
            raise DataError(f"a pickle of more than {MAX_OPCODES:,} steps is refused")
        if opcode.name not in OPCODES:
            raise DataError(f"step {opcode.name} at byte {position} could make an object; only plain data are read")
        if isinstance(argument, int) and abs(argument) >= 1 << 64 and opcode.name != "FRAME":
            raise DataError(f"a number of more than 64 bits at byte {position} is refused")
        if opcode.name in ("PUT", "LONG_BINPUT") and not 0 <= int(argument or 0) < MAX_MEMO:
            raise DataError(f"memo number {argument} at byte {position} is absurd")


class _Dtype:
    """Stands for numpy.dtype: a name of the list above and a byte order."""

    def __init__(self, code: Any, *_: Any) -> None:
        text = code.decode("latin1") if isinstance(code, bytes) else code
        if not isinstance(text, str) or text.lstrip("<>|=") not in ITEM_TYPES:
            raise DataError(f"arrays of numbers are read, not of type {code!r}")
        self.code = text.lstrip("<>|=")
        self.order = text[0] if text[0] in "<>" else "<"

    def __setstate__(self, state: Any) -> None:
        order = state[1].decode("latin1") if isinstance(state[1], bytes) else state[1]
        if order not in ("<", ">", "|", "=") or any(part not in (None, 0, -1) for part in state[2:]):
            raise DataError("arrays with named fields or metadata are not read")
        self.order = ">" if order == ">" else "<"

    def numpy(self) -> np.dtype:
        return np.dtype(self.order + self.code)


class _Array:
    """Stands for numpy.ndarray until its state is known and checked."""

    value: np.ndarray | None = None

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, content = state
        self.value = _array(content, dtype, shape, "F" if fortran else "C")


def _array(content: Any, dtype: Any, shape: Any, order: Any) -> np.ndarray:
    if not isinstance(dtype, _Dtype) or not isinstance(content, bytes | bytearray):
        raise DataError("an array needs a dtype and its bytes")
    if not isinstance(shape, tuple) or not all(type(n) is int and 0 <= n < 1 << 40 for n in shape) or len(shape) > 8:
        raise DataError(f"an array of shape {str(shape)[:80]} is refused")
    kind = dtype.numpy()
    if math.prod(shape) * kind.itemsize != len(content):
        raise DataError(f"an array of shape {shape} and type {kind} does not have {len(content):,} bytes")
    return np.frombuffer(content, kind).reshape(shape, order="F" if order in ("F", b"F") else "C")


def _reconstruct(*_: Any) -> _Array:
    return _Array()


def _frombuffer(content: Any, dtype: Any, shape: Any, order: Any) -> _Array:
    made = _Array()
    made.value = _array(content, dtype, shape, order)
    return made


def _encode(text: Any, encoding: Any = "latin1") -> bytes:
    if encoding not in ("latin1", b"latin1") or not isinstance(text, str):
        raise DataError("only Latin-1 text can stand for bytes")
    return text.encode("latin1")


def _bytes(*parts: Any) -> bytes:
    if parts:
        raise DataError("bytes are made from nothing else here")
    return b""


def _never(*_: Any) -> None:
    raise DataError("an array is made in the one ordinary way or not at all")


class _StandIn:
    """A function that a pickle may call but not change."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *arguments: Any) -> Any:
        return self.function(*arguments)

    def __setstate__(self, state: Any) -> None:
        raise DataError("it tries to change a function; the file is not to be trusted")


_STAND_INS = {
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _StandIn(_reconstruct) for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): _StandIn(_frombuffer) for core in ("core", "_core")},
    ("numpy", "ndarray"): _StandIn(_never),
    ("numpy", "dtype"): _StandIn(_Dtype),
    ("_codecs", "encode"): _StandIn(_encode),
    ("__builtin__", "bytes"): _StandIn(_bytes),
    ("builtins", "bytes"): _StandIn(_bytes),
}
_OPEN = object()


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _STAND_INS[module, name]
        except KeyError:
            raise DataError(
                f"it asks for {module}.{name}, which is no plain data; the file is not to be trusted"
            ) from None

    def persistent_load(self, pid: Any) -> Any:  # noqa: ARG002 (the name is Python's)
        raise DataError("it points outside itself; only plain data are read")


def _plain(value: Any, seen: dict[int, Any], depth: int) -> Any:
    """The value with real arrays in place of stand-ins; shared parts are visited once, loops are refused."""
    if depth > MAX_DEPTH:
        raise DataError(f"data nested deeper than {MAX_DEPTH} levels are refused")
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return value
    if isinstance(value, _Array) and value.value is not None:
        return value.value
    if id(value) not in seen:
        seen[id(value)] = _OPEN
        seen[id(value)] = _contents(value, seen, depth + 1)
    if seen[id(value)] is _OPEN:
        raise DataError("it holds itself; such data are refused")
    return seen[id(value)]


def _contents(value: Any, seen: dict[int, Any], depth: int) -> Any:
    if isinstance(value, dict):
        return {_plain(key, seen, depth): _plain(item, seen, depth) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_plain(item, seen, depth) for item in value)
    raise DataError(f"it holds something that is no plain data ({type(value).__name__.strip('_').lower()})")
