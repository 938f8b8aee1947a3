"""Images decoded once: a memory-mapped uint8 file beside a manifest that says which file became which row.

A store is a cache. Only the rename of `manifest.json` makes a build count; what an interrupted build leaves is swept
away by the next one. Whatever does not hold together is built anew.
"""

import json
import logging
import os
import re
import secrets
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
from filelock import FileLock, Timeout

from ns3l.data.decode import Form, Header, ImageFault, Wanted, decode, quiet_decoder, read_header
from ns3l.data.stream import in_parallel
from ns3l.errors import DataError

VERSION = 1
MANIFEST = "manifest.json"
LOCK = "lock"
PIXELS = re.compile(r"images-[0-9a-f]{16}\.uint8")
LEFTOVER = re.compile(r"(images-[0-9a-f]{16}\.uint8|manifest\.json)\.part")
Item = TypeVar("Item")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Source:
    """One file that should become a row: its name in the data set, and what tells that it has changed.

    A file that cannot even be looked at has a fault and the size -1.
    """

    name: str
    path: Path
    size: int
    changed: int
    fault: str = ""


@dataclass(frozen=True)
class Record:
    """What the manifest keeps of one file: its state when it was decoded, its header, or why it could not be."""

    name: str
    size: int
    changed: int
    header: Header | None
    fault: str = ""

    def describes(self, source: Source) -> bool:
        """Whether the file is still the one that was decoded."""
        return (self.size, self.changed) == (source.size, source.changed)


@dataclass(frozen=True, eq=False)
class Store:
    """The rows of all usable files, in the order asked for, and the faults of the others."""

    pixels: np.ndarray
    names: tuple[str, ...]
    form: Form
    headers: dict[str, Header]
    damaged: dict[str, str]
    decoded: int


@dataclass(frozen=True)
class _Manifest:
    form: Form
    records: tuple[Record, ...]
    pixels: str

    @property
    def rows(self) -> tuple[str, ...]:
        return tuple(record.name for record in self.records if record.header is not None)


def open_store(
    place: Path,
    sources: Sequence[Source],
    wanted: Wanted = Wanted(),
    *,
    classes: tuple[str, ...] = (),
    workers: int | None = None,
) -> Store:
    """Open the store at `place`, after decoding what is new and dropping what is gone.

    Damaged files are kept in the manifest with their reason, so that they are not tried again until they change.
    """
    try:
        place.mkdir(parents=True, exist_ok=True)
        with _locked(place), quiet_decoder():
            old = _read_manifest(place, len(sources))
            _sweep(place, keep=old.pixels if old else "")
            form, records = _settle(sources, old, wanted, workers)
            if old is not None and (old.form, old.records) == (form, records):
                return _opened(place, old, decoded=0)
            return _build(place, sources, old, form, records, classes, workers)
    except OSError as error:
        raise DataError(
            f"the image store {place} cannot be written: {error.strerror or error}; "
            "free some space or give another place with store="
        ) from error


def finished_store(place: Path, sources: Sequence[Source], wanted: Wanted = Wanted()) -> Store | None:
    """The store at `place` if it is complete, else None; for places that cannot be written, where nobody can lock."""
    old = _read_manifest(place, len(sources))
    if old is None or [record.name for record in old.records] != [source.name for source in sources]:
        return None
    if not all(record.describes(source) for record, source in zip(old.records, sources, strict=True)):
        return None
    same = wanted.form(record.header for record in old.records if record.header) == old.form
    return _opened(place, old, decoded=0) if same else None


def _settle(
    sources: Sequence[Source], old: _Manifest | None, wanted: Wanted, workers: int | None
) -> tuple[Form, tuple[Record, ...]]:
    """The form of the rows, and a record of each file; headers are read only where the form depends on them."""
    known = {record.name: record for record in old.records} if old else {}
    kept = [record if (record := known.get(s.name)) and record.describes(s) else None for s in sources]
    if wanted.open:
        new = [source for source, record in zip(sources, kept, strict=True) if record is None]
        read = iter(_shown("reading headers", in_parallel(_header_record, new, workers), len(new)))
        kept = [record or next(read) for record in kept]
    form = wanted.form(record.header for record in kept if record and record.header)
    blank = [Record(s.name, s.size, s.changed, None, s.fault) for s in sources]
    return form, tuple(record or empty for record, empty in zip(kept, blank, strict=True))


def _header_record(source: Source) -> Record:
    state = (source.name, source.size, source.changed)
    if source.fault:
        return Record(*state, None, source.fault)
    try:
        return Record(*state, read_header(source.path))
    except ImageFault as fault:
        return Record(*state, None, str(fault))


def _build(
    place: Path,
    sources: Sequence[Source],
    old: _Manifest | None,
    form: Form,
    records: tuple[Record, ...],
    classes: tuple[str, ...],
    workers: int | None,
) -> Store:
    """Write all rows to a new file, those of unchanged files copied, then let the manifest point to it."""
    rows = _old_rows(place, old, form)
    unchanged = {r.name: r for r in old.records} if old and rows is not None else {}
    pixels = f"images-{secrets.token_hex(8)}.uint8"
    done: list[Record] = []
    decoded = 0

    def work(item: tuple[Source, Record]) -> tuple[Record, np.ndarray | None, bool]:
        source, record = item
        if rows is not None and unchanged.get(source.name) == record and record.header:
            return record, rows[0][rows[1][source.name]], False
        return (*_decoded(source, record, form), True)

    with _written(place / pixels) as out:
        items = in_parallel(work, list(zip(sources, records, strict=True)), workers)
        for record, row, fresh in _shown("decoding images", items, len(sources)):
            done.append(record)
            decoded += fresh
            if row is not None:
                out.write(np.ascontiguousarray(row).data)
    manifest = _Manifest(form, tuple(done), pixels)
    _write_manifest(place, manifest, classes)
    _sweep(place, keep=pixels)
    return _opened(place, manifest, decoded)


def _decoded(source: Source, record: Record, form: Form) -> tuple[Record, np.ndarray | None]:
    state = (source.name, source.size, source.changed)
    if record.fault:
        return record, None
    try:
        header, row = decode(source.path, form)
        return Record(*state, header), row
    except ImageFault as fault:
        return Record(*state, None, str(fault)), None


def _old_rows(place: Path, old: _Manifest | None, form: Form) -> tuple[np.ndarray, dict[str, int]] | None:
    if old is None or old.form != form or not old.rows:
        return None
    return _mapped(place, old), {name: row for row, name in enumerate(old.rows)}


def _mapped(place: Path, manifest: _Manifest) -> np.ndarray:
    shape = (len(manifest.rows), *manifest.form.shape)
    if not manifest.rows:
        return np.empty(shape, np.uint8)
    return np.memmap(place / manifest.pixels, np.uint8, mode="r", shape=shape)


def _opened(place: Path, manifest: _Manifest, decoded: int) -> Store:
    headers = {r.name: r.header for r in manifest.records if r.header is not None}
    damaged = {r.name: r.fault for r in manifest.records if r.header is None}
    return Store(_mapped(place, manifest), manifest.rows, manifest.form, headers, damaged, decoded)


def _read_manifest(place: Path, files: int) -> _Manifest | None:
    """The manifest, or None where it is missing, damaged, absurd, of another version, or at odds with the pixels."""
    try:
        if not (place / MANIFEST).is_file() or (place / MANIFEST).stat().st_size > 1_000_000 + 8_192 * files:
            return None
        text = json.loads((place / MANIFEST).read_text("utf-8"))
        if text["version"] != VERSION or not PIXELS.fullmatch(text["pixels"]):
            return None
        height, width, channels, fit = (text["form"][key] for key in ("height", "width", "channels", "fit"))
        form = Form(int(height), int(width), int(channels), fit)
        manifest = _Manifest(form, tuple(_record(*row) for row in text["files"]), text["pixels"])
        path = place / manifest.pixels
        whole = not path.is_symlink() and path.stat().st_size == len(manifest.rows) * int(np.prod(manifest.form.shape))
        return manifest if whole else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
        return None


def _record(name: str, size: int, changed: int, header: list[Any] | None, fault: str) -> Record:
    if header is None:
        return Record(str(name), int(size), int(changed), None, str(fault))
    width, height, grey = header
    if width < 1 or height < 1:
        raise ValueError("an image without pixels")
    return Record(str(name), int(size), int(changed), Header(int(width), int(height), bool(grey)))


def _write_manifest(place: Path, manifest: _Manifest, classes: tuple[str, ...]) -> None:
    text = {
        "version": VERSION,
        "pixels": manifest.pixels,
        "form": asdict(manifest.form),
        "classes": classes,
        "columns": ["name", "size", "changed", ["width", "height", "grey"], "fault"],
        "files": [
            [r.name, r.size, r.changed, [r.header.width, r.header.height, r.header.grey] if r.header else None, r.fault]
            for r in manifest.records
        ],
    }
    with _written(place / MANIFEST) as out:
        out.write(json.dumps(text, separators=(",", ":")).encode())


@contextmanager
def _written(path: Path) -> Iterator[BinaryIO]:
    """A file that appears whole or not at all."""
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        part.replace(path)
        _sync_folder(path.parent)
    finally:
        part.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _sweep(place: Path, keep: str) -> None:
    """Remove what interrupted builds left, and every pixel file but the one that the manifest names."""
    for path in place.iterdir():
        if LEFTOVER.fullmatch(path.name) or (PIXELS.fullmatch(path.name) and path.name != keep):
            with suppress(OSError):  # still open elsewhere on systems that mind; the next build tries again
                path.unlink()


@contextmanager
def _locked(place: Path) -> Iterator[None]:
    lock = FileLock(place / LOCK)
    try:
        lock.acquire(timeout=0.2)
    except Timeout:
        log.warning("another process is building the image store %s; waiting for it", place)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _shown(what: str, items: Iterable[Item], total: int) -> Iterator[Item]:
    """A progress bar on standard error, only where somebody looks at it."""
    if total < 2 or not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import track

    yield from track(items, description=what, total=total, console=Console(stderr=True), transient=True)
