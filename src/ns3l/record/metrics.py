"""metrics.jsonl: one JSON object a line, appended while a run goes on, cut back where it resumes earlier."""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from ns3l.record.files import parse_json, size_of, to_json, write_bytes, writing

LARGEST_LINE = 2**20
LARGEST_FILE = 2**29


def append_line(path: Path, metrics: dict[str, Any]) -> None:
    """Append one line and hand it to the system; where that fails, the file is as it was before."""
    line = to_json(metrics, lossy=True).encode() + b"\n"
    with writing(path), path.open("ab") as file:
        size = os.fstat(file.fileno()).st_size
        try:
            file.write(line)
            file.flush()
        except BaseException:
            with suppress(OSError):
                os.ftruncate(file.fileno(), size)
            raise


def sync(path: Path) -> None:
    """Make every line written so far durable."""
    if path.exists():
        with writing(path), path.open("rb+") as file:
            os.fsync(file.fileno())


def lines(path: Path, tell: Callable[[str], None]) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Each sound line with what it says; damaged ones are told of and left out."""
    try:
        size_of(path)
        file = path.open("rb")
    except OSError as problem:
        if not isinstance(problem, FileNotFoundError):
            tell(f"{path} cannot be read: {problem.strerror or problem}")
        return
    with file:
        if os.fstat(file.fileno()).st_size > LARGEST_FILE:
            tell(f"{path} has over {LARGEST_FILE:,} bytes; only that many are read")
        number = 0
        while file.tell() < LARGEST_FILE and (line := file.readline(LARGEST_LINE)):
            number += 1
            try:
                yield line, _parse(line)
            except ValueError as problem:
                tell(f"{path}, line {number}: left out, {problem}")


def _parse(line: bytes) -> dict[str, Any]:
    if not line.endswith(b"\n"):
        raise ValueError("it is cut off")
    try:
        found = parse_json(line)
    except ValueError as problem:
        raise ValueError(f"it is damaged ({problem})") from None
    step = found.get("step") if isinstance(found, dict) else None
    if not isinstance(step, int) or isinstance(step, bool):
        raise ValueError("it is no object with a whole-number step")
    assert isinstance(found, dict)
    return found


def cut_back(path: Path, step: int | None, tell: Callable[[str], None]) -> None:
    """Leave only sound lines up to `step` (None: no line), so that a resumed run's file is an uninterrupted one's."""
    if not path.exists():
        return
    kept = [] if step is None else [line for line, found in lines(path, tell) if found["step"] <= step]
    content = b"".join(kept)
    if len(content) != path.stat().st_size:
        write_bytes(path, content)
