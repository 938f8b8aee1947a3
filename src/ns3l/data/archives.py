"""Unpack tar, zip and gz files of strangers: nothing lands outside the target, no links, bounded size and count.

Everything is written into a temporary folder beside the target, which gets its name only when all is there.
"""

import contextlib
import gzip
import shutil
import stat
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from ns3l.errors import DataError

PIECE = 1 << 20


@dataclass(frozen=True)
class Limits:
    """How much an archive may unpack to; more is refused before or while it is written."""

    bytes: int = 16 << 30
    members: int = 200_000


def unpack(
    archive: Path, target: Path, inside: str = "", needed: tuple[str, ...] = (), limits: Limits = Limits()
) -> Path:
    """Unpack `archive` so that `target` is its content, or, with `inside`, that folder of its content.

    Nothing is put there unless all `needed` files are in it.
    """
    if target.exists():
        raise DataError(f"{target} is in the way; move or remove it before {archive.name} is unpacked there")
    with _as_data_error(archive), _temporary_folder(target) as folder:
        _extract(archive, folder, limits)
        source = folder / inside
        if not source.is_dir():
            raise DataError(f"no folder {inside!r} in it; it is another archive than expected")
        if missing := [name for name in needed if not (source / name).is_file()]:
            raise DataError(f"{', '.join(missing)} missing in it; it is another archive than expected: get it anew")
        source.replace(target)
    return target


def read_gzip(path: Path, limit: int = 1 << 30) -> bytearray:
    """The unpacked content of one .gz file; refused when it is damaged, cut off or larger than `limit`."""
    content = bytearray()
    with _as_data_error(path), gzip.open(path, "rb") as stream:
        while piece := stream.read(PIECE):
            content += piece
            if len(content) > limit:
                raise DataError(f"unpacks to more than {limit:,} bytes, far more than expected")
    return content


@contextlib.contextmanager
def _as_data_error(path: Path) -> Iterator[None]:
    try:
        yield
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    except (Exception, RecursionError, MemoryError) as error:
        reason = str(error) or type(error).__name__
        raise DataError(f"{path}: cannot be unpacked ({reason}); it may be cut off or damaged: get it anew") from error


@contextlib.contextmanager
def _temporary_folder(target: Path) -> Iterator[Path]:
    target.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _extract(archive: Path, folder: Path, limits: Limits) -> None:
    with archive.open("rb") as raw:
        magic = raw.read(4)
        raw.seek(0)
        if magic[:2] == b"PK":
            with zipfile.ZipFile(raw) as zipped:
                _extract_zip(zipped, folder, limits)
            return
        stream: Any = gzip.GzipFile(fileobj=raw) if magic[:2] == b"\x1f\x8b" else raw
        with tarfile.open(fileobj=_Bounded(stream), mode="r:") as opened:  # type: ignore[call-overload]
            _extract_tar(opened, folder, limits)
        _read_to_end(stream)


def _read_to_end(stream: Any) -> None:
    """A gzip stream checks its sum only at its end: go there, past the padding of the tar in it."""
    for _ in range(64):
        if not stream.read(PIECE):
            return
    raise DataError("much follows after the end of the archive; refused")


class _Bounded:
    """A stream that never reads much at once, so that a header cannot ask for gigabytes of memory."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= 4 * PIECE:
            raise DataError(f"a header asks for {size:,} bytes at once; that is no ordinary archive")
        return self.stream.read(size)

    def seek(self, position: int, whence: int = 0) -> int:
        return self.stream.seek(position, whence)

    def tell(self) -> int:
        return self.stream.tell()


def _extract_tar(opened: tarfile.TarFile, folder: Path, limits: Limits) -> None:
    budget = _Budget(limits)
    for member in opened:
        if member.issym() or member.islnk():
            raise DataError(f"{member.name!r} is a link; archives with links are refused")
        if not (member.isdir() or member.isreg()) or member.issparse():
            raise DataError(f"{member.name!r} is neither a file nor a folder; such archives are refused")
        if member.isdir() and member.name in (".", "./"):
            continue
        path = _inside(folder, member.name)
        if member.isdir():
            budget.take(0)
            path.mkdir(parents=True, exist_ok=True)
            continue
        budget.take(member.size)
        source = opened.extractfile(member)
        if source is None:
            raise DataError(f"{member.name!r} has no content")
        _write(source, path, member.size)


def _extract_zip(opened: zipfile.ZipFile, folder: Path, limits: Limits) -> None:
    budget = _Budget(limits)
    for member in opened.infolist():
        kind = stat.S_IFMT(member.external_attr >> 16)
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise DataError(f"{member.filename!r} is a link or a device; such archives are refused")
        if member.flag_bits & 1:
            raise DataError(f"{member.filename!r} is encrypted; such archives are refused")
        path = _inside(folder, member.filename)
        budget.take(0 if member.is_dir() else member.file_size)
        if member.is_dir():
            path.mkdir(parents=True, exist_ok=True)
            continue
        with opened.open(member) as source:
            _write(source, path, member.file_size)


class _Budget:
    """Counts members and bytes down as an archive is unpacked."""

    def __init__(self, limits: Limits) -> None:
        self.limits, self.members, self.bytes = limits, 0, 0

    def take(self, size: int) -> None:
        self.members += 1
        self.bytes += size
        if self.members > self.limits.members:
            raise DataError(f"more than {self.limits.members:,} members; that is no ordinary data set")
        if size < 0 or self.bytes > self.limits.bytes:
            raise DataError(f"it unpacks to more than {self.limits.bytes:,} bytes; refused")


def _inside(folder: Path, name: str) -> Path:
    """Where a member goes; a name that could lead elsewhere is refused, not mended."""
    parts = PurePosixPath(name).parts
    wrong = not parts or name.startswith("/") or ".." in parts or "\\" in name or "\0" in name or ":" in parts[0]
    if wrong or len(parts) > 32 or any(len(part.encode(errors="replace")) > 255 for part in parts):
        raise DataError(f"a member is named {name[:100]!r}, which could lead out of the target; refused")
    return folder.joinpath(*parts)


def _write(source: IO[bytes], path: Path, size: int) -> None:
    if path.exists():
        raise DataError(f"{path.name} exists twice in it; refused")
    path.parent.mkdir(parents=True, exist_ok=True)
    left = size
    with path.open("xb") as out:
        while left and (piece := source.read(min(left, PIECE))):
            out.write(piece)
            left -= len(piece)
    if left:
        raise DataError(f"{path.name} is cut off: {left:,} of {size:,} bytes are missing")
