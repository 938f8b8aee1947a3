"""Read numeric arrays of MATLAB 5 files, and nothing else of them.

SciPy's reader is written for files that one trusts: a few changed header bytes can end the whole process. This one
believes no length that the file does not pay for.
"""

import contextlib
import math
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ns3l.errors import DataError

HEADER = 128
MATRIX, COMPRESSED = 14, 15
STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
KINDS = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
MAX_VARIABLES = 1000
PIECE = 1 << 20


@dataclass(frozen=True)
class Variable:
    """An array of the file before its numbers are read: `read` does that, and only until the next one is asked for."""

    name: str
    shape: tuple[int, ...]
    kind: np.dtype
    read: Callable[[], np.ndarray]


def variables(path: Path) -> Iterator[Variable]:
    """The variables of a MATLAB 5 file, one after another."""
    with path.open("rb") as file:
        head = file.read(HEADER)
        order = {b"IM": "<", b"MI": ">"}.get(head[126:128], "")
        if len(head) < HEADER or not order or head[124:126] != (b"\x00\x01" if order == "<" else b"\x01\x00"):
            raise DataError(f"{path}: not a MATLAB file of version 5; get it anew")
        with _damage(path):
            for variable in _elements(file, order):
                yield replace(variable, read=_damage(path)(variable.read))


@contextlib.contextmanager
def _damage(path: Path) -> Iterator[None]:
    try:
        yield
    except DataError:
        raise
    except (ValueError, zlib.error, OverflowError, MemoryError) as error:
        raise DataError(f"{path}: cannot be read ({error}); cut off or damaged: get it anew") from error


def _elements(file: BinaryIO, order: str) -> Iterator[Variable]:
    end = file.seek(0, 2)
    position = HEADER
    for _ in range(MAX_VARIABLES):
        if position == end:
            return
        file.seek(position)
        kind, size = _numbers(_Plain(file, end - position).read(8), f"{order}u4")
        position += 8 + size
        if position > end:
            raise ValueError(f"an element of {size:,} bytes goes {position - end:,} bytes past the end")
        source: _Plain | _Inflated = _Plain(file, size)
        if kind == COMPRESSED:
            source = _Inflated(file, size)
            kind, _ = _numbers(source.read(8), f"{order}u4")
        if kind == MATRIX:
            yield _variable(source, order)
    raise ValueError(f"more than {MAX_VARIABLES} variables")


class _Plain:
    """Bytes of the file, at most `left`."""

    def __init__(self, file: BinaryIO, left: int) -> None:
        self.file, self.left = file, left

    def read(self, size: int) -> bytearray:
        if size > self.left:
            raise ValueError(f"{size:,} bytes are promised, {self.left:,} are there")
        self.left -= size
        content = bytearray(size)
        if self.file.readinto(content) != size:  # type: ignore[attr-defined]
            raise ValueError("the file ends early")
        return content

    def finish(self) -> None:
        """Nothing more to check."""


class _Inflated:
    """Bytes that come out of a compressed element of the file."""

    def __init__(self, file: BinaryIO, left: int) -> None:
        self.file, self.left, self.inflate = file, left, zlib.decompressobj()

    def read(self, size: int) -> bytearray:
        content = bytearray()
        while len(content) < size:
            packed = self.inflate.unconsumed_tail or self._packed()
            piece = self.inflate.decompress(packed, min(PIECE, size - len(content)))
            if not piece and not packed:
                raise ValueError(f"{size:,} bytes are promised, {len(content):,} are there")
            content += piece
        return content

    def finish(self) -> None:
        """Go to the end, where the checksum is."""
        while not self.inflate.eof:
            packed = self.inflate.unconsumed_tail or self._packed()
            if self.inflate.decompress(packed, 64) and not packed:
                raise ValueError("more follows than promised")
            if not packed:
                raise ValueError("the compressed part ends early")

    def _packed(self) -> bytes:
        piece = self.file.read(min(PIECE, self.left))
        self.left -= len(piece)
        return piece


def _variable(source: _Plain | _Inflated, order: str) -> Variable:
    flags = _element(source, order, limit=8)
    shape = _element(source, order, limit=128)
    name = _element(source, order, limit=1024)
    number = int(flags[0]) & 0xFF if flags.dtype.kind == "u" and flags.size == 2 else 0
    imaginary = bool(flags.size and int(flags[0]) & 0x0800)
    if shape.dtype.kind != "i" or (shape < 0).any() or name.dtype.itemsize != 1:
        raise ValueError("the header of a variable is damaged")
    kind = np.dtype(KINDS.get(number, "O") if not imaginary else "O")
    dimensions = tuple(int(n) for n in shape)

    def read() -> np.ndarray:
        if kind.hasobject:
            raise ValueError("only real numbers are read")
        size = math.prod(dimensions) * 8
        stored = _element(source, order, limit=size)
        if stored.size != math.prod(dimensions):
            raise ValueError(f"an array {dimensions} with {stored.size:,} numbers")
        source.finish()
        return stored.astype(kind, copy=False).reshape(dimensions, order="F")

    return Variable(name.tobytes().decode("ascii"), dimensions, kind, read)


def _element(source: _Plain | _Inflated, order: str, limit: int) -> np.ndarray:
    """The numbers of one data element: in 8 bytes with its tag where it is small, else after it and padded."""
    tag = source.read(8)
    kind, size = _numbers(tag, f"{order}u4")
    small = kind >> 16
    if small:
        kind, size, content = kind & 0xFFFF, small, tag[4:]
    if kind not in STORED or size > (4 if small else limit):
        raise ValueError(f"an element of type {kind} with {size:,} bytes is not expected here")
    dtype = np.dtype(order + STORED[kind])
    if not small:
        content = source.read(size)
        source.read(min(-size % 8, 8))
    return np.frombuffer(content, dtype, count=size // dtype.itemsize)


def _numbers(content: bytearray, dtype: str) -> list[int]:
    return np.frombuffer(content, dtype).tolist()
