"""What commands print: tables for people, JSON for programs."""

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ns3l.errors import UserError
from ns3l.report.run import plain

if TYPE_CHECKING:
    from rich.console import Console

WIDE = 160
"""Columns where standard output is no terminal."""


def as_json(value: Any) -> None:
    """One JSON document on standard output."""
    print(json.dumps(value, indent=1, ensure_ascii=False, default=_plain, allow_nan=False))


def _plain(value: object) -> str:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot be said in JSON")


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], numbers: Sequence[str] = ()) -> None:
    """A table for a terminal; where there is none, the same without a terminal's width in the way."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=SIMPLE_HEAD)
    for column in columns:
        shown.add_column(column, justify="right" if column in numbers else "left", overflow="fold")
    for row in rows:
        shown.add_row(*(Text(plain(cell, 10_000)) for cell in row))
    if title:
        console().print(Text(title, style="bold"))
    console().print(shown)


def show_report(paths: Sequence[Path], rule: str | None = None) -> None:
    """The report of runs below some folders, for a terminal."""
    from ns3l.report import print_report, report

    print_report(report(paths, rule=rule), console())


def console() -> "Console":
    """Standard output; wide where it is no terminal."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else WIDE, highlight=False)


def note(message: str) -> None:
    """A remark on standard error, so that standard output stays what was asked for."""
    print(message, file=sys.stderr, flush=True)


def write_text(path: Path, text: str) -> None:
    """A file, written whole or not at all."""
    from ns3l.record import write_bytes

    if path.is_dir():
        raise UserError(f"{path} is a folder; name a file in it")
    if not path.parent.is_dir():
        raise UserError(f"there is no folder {path.parent} to write {path.name} into")
    write_bytes(path, text.encode("utf-8", errors="replace"))


def per_cent(error: float | None) -> str:
    """An error as people read it."""
    return "–" if error is None else f"{error:.2f}"
