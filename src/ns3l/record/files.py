"""Files of a run folder: written whole or not at all, read within limits."""

import errno
import json
import math
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from ns3l.errors import DiskError, RunError

LARGEST_JSON = 64 * 2**20


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a failed write (disk full, read-only, I/O error) into a DiskError that says what is still there."""
    try:
        yield
    except OSError as problem:
        raise DiskError(
            f"Cannot write {path}: {problem.strerror or problem}. What was recorded before is intact; "
            "free space or make the folder writable, then start the same command again."
        ) from problem


def refuse_file(folder: Path) -> None:
    """Say early that a folder cannot be made where a file lies, or below one."""
    nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not nearest.is_dir():
        raise RunError(f"{nearest} is a file; a run needs a folder. Give another path.")


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically: a temporary file beside it, fsync, rename, fsync of the folder."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with writing(path):
        try:
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)  # noqa: PTH105 (one place to inject faults)
            sync_folder(path.parent)
        except BaseException:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise


def sync_folder(folder: Path) -> None:
    """Make renames and removals in a folder durable (a no-op on Windows, which cannot)."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_temporaries(folder: Path) -> None:
    """Remove what a killed writer left half-written. Only the holder of the folder's lock may call this."""
    for path in folder.glob(".*.tmp"):
        with suppress(OSError):
            path.unlink()


def plain(value: Any, where: str = "", lossy: bool = False) -> Any:
    """`value` as JSON data: NumPy scalars, arrays and tensors become numbers and lists.

    A number that is not finite is refused, or becomes None where `lossy`.
    """
    if isinstance(value, (Tensor, np.ndarray, np.generic)):
        value = value.tolist()
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        if math.isfinite(value) or lossy:
            return value if math.isfinite(value) else None
        raise ValueError(f"{where or 'value'} is {value}, which JSON cannot hold; give a finite number or None")
    if isinstance(value, (list, tuple)):
        if {int, str}.issuperset(map(type, value)):  # a split may list millions of rows
            return list(value)
        return [plain(item, f"{where}[{i}]", lossy) for i, item in enumerate(value)]
    if isinstance(value, dict) and all(isinstance(name, str) for name in value):
        return {name: plain(item, f"{where}.{name}" if where else name, lossy) for name, item in value.items()}
    raise TypeError(
        f"{where or 'value'} must be JSON data (dict with text keys, list, number, text), not {type(value)}"
    )


def to_json(value: Any, lossy: bool = False) -> str:
    """One line of strict JSON."""
    return _dumps(plain(value, lossy=lossy))


def _dumps(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode(errors="backslashreplace").decode()  # names of files may hold what UTF-8 cannot say


def write_json(path: Path, value: Any, lossy: bool = False) -> None:
    """Write JSON atomically, with one line for each top-level key."""
    value = plain(value, lossy=lossy)
    if isinstance(value, dict) and value:
        text = "{\n" + ",\n".join(f"{_dumps(name)}: {_dumps(item)}" for name, item in value.items()) + "\n}\n"
    else:
        text = _dumps(value) + "\n"
    write_bytes(path, text.encode())


def parse_json(text: bytes | str) -> Any:
    """Strict JSON; ValueError says what is wrong, also where it nests too deeply."""
    try:
        return json.loads(text, parse_constant=_refuse, parse_int=_whole, parse_float=_finite)
    except RecursionError:
        raise ValueError("it nests too deeply") from None


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _whole(text: str) -> int:
    if len(text) > 20:  # 64 bits with a sign; what computes with more runs into its own limits later
        raise ValueError(f"a number of {len(text):,} digits, {text[:20]}…, is refused")
    return int(text)


def _finite(text: str) -> float:
    if math.isinf(value := float(text)):
        raise ValueError(f"{text[:20]} is larger than any number")
    return value


def size_of(path: Path) -> int:
    """The bytes of a file; OSError for a pipe or a device, which would hold up or flood whoever reads it."""
    state = path.stat()
    if not stat.S_ISREG(state.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file")
    return state.st_size


def read_json(path: Path, limit: int = LARGEST_JSON) -> dict[str, Any]:
    """Read a JSON object of at most `limit` bytes; RunError says what is wrong with it."""
    try:
        size = size_of(path)
        if size > limit:
            raise RunError(f"{path} has {size:,} bytes; a file of this kind has at most {limit:,}. It is not read.")
        with path.open("rb") as file:
            value = parse_json(file.read(limit))
    except OSError as problem:
        raise RunError(f"Cannot read {path}: {problem.strerror or problem}.") from problem
    except RunError:
        raise
    except ValueError as problem:
        raise RunError(f"{path} is damaged: {problem}. Restore it from a copy, or use another run folder.") from None
    if not isinstance(value, dict):
        raise RunError(f"{path} must hold a JSON object, not a {type(value).__name__}.")
    return value


def differences(stored: Any, given: Any, where: str = "") -> list[str]:
    """Paths at which two JSON values differ, each with both values: `batch.labeled: 50 stored, 64 given`."""
    if isinstance(stored, dict) and isinstance(given, dict):
        names = [*stored, *(name for name in given if name not in stored)]
        missing = object()
        return [
            line
            for name in names
            for line in (
                [f"{where}{name}: {'not stored' if name not in stored else 'not given'}"]
                if missing in (stored.get(name, missing), given.get(name, missing))
                else differences(stored[name], given[name], f"{where}{name}.")
            )
        ]
    if isinstance(stored, list) and isinstance(given, list) and len(stored) == len(given) <= 100:
        stem = where.rstrip(".")
        return [
            line
            for i, (old, new) in enumerate(zip(stored, given, strict=True))
            for line in differences(old, new, f"{stem}[{i}].")
        ]
    if stored == given and isinstance(stored, bool) == isinstance(given, bool):
        return []
    return [f"{where.rstrip('.') or 'value'}: {_short(stored)} stored, {_short(given)} given"]


def _short(value: Any) -> str:
    text = to_json(value, lossy=True)
    return text if len(text) <= 60 else f"{text[:57]}..."
