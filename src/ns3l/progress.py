"""A run while it goes on: a live table in a terminal, plain lines elsewhere, TensorBoard event files on request."""

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TextIO

from ns3l.errors import UserError

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

Mode = Literal["auto", "plain", "quiet", "live"]
ERRORS = {"validation_error": "validation", "test_error": "test"}


@dataclass
class _Row:
    """What is known of one replica."""

    name: str
    step: int = 0
    metrics: dict[str, Any] = field(default_factory=dict)
    began: tuple[int, float] | None = None

    def take(self, step: int, metrics: dict[str, Any], now: float) -> None:
        self.began = self.began or (step, now)
        self.step = step
        self.metrics = {**self.metrics, **metrics}

    def rate(self, now: float) -> float | None:
        """Steps a second: as recorded, else as seen since the first update."""
        known = self.metrics.get("steps_per_second")
        if known:
            return float(known)
        first, since = self.began or (self.step, now)
        return (self.step - first) / (now - since) if self.step > first and now > since else None


class Progress:
    """Shows replicas side by side; use it in `with`.

    `auto` is live in a terminal and plain otherwise; plain prints a line at each evaluation; quiet prints nothing but
    what is said.
    """

    def __init__(self, mode: Mode, replicas: Sequence[str], steps: int, stream: TextIO | None = None) -> None:
        if mode not in ("auto", "plain", "quiet", "live"):
            raise UserError(f"progress must be auto, plain, quiet or live, not {mode!r}")
        self.stream = stream or sys.stdout
        self.mode = ("live" if self.stream.isatty() else "plain") if mode == "auto" else mode
        self.steps = steps
        self._rows = [_Row(name) for name in replicas]
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self.mode == "live":
            from rich.console import Console
            from rich.live import Live

            console = Console(file=self.stream)
            self._live = Live(get_renderable=self._table, console=console, refresh_per_second=4, redirect_stdout=False)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def update(self, replica: int, step: int, metrics: dict[str, Any]) -> None:
        """Take in what a replica (by its place) recorded at a step, in the form of a line of metrics.jsonl."""
        now = time.monotonic()
        self._rows[replica].take(step, metrics, now)
        if self.mode == "plain" and any(metrics.get(name) is not None for name in ERRORS):
            print(self._line(self._rows[replica], now), file=self.stream, flush=True)

    def say(self, message: str) -> None:
        """Show a message above the progress, in quiet mode too: it is something that the user must know."""
        if self._live is not None:
            from rich.text import Text

            self._live.console.print(Text(message))
        else:
            print(message, file=self.stream, flush=True)

    def _line(self, row: _Row, now: float) -> str:
        parts = [row.name, f"step {row.step:,}/{self.steps:,}", _losses(row), _errors(row), *self._pace(row, now)]
        return "  ".join(part for part in parts if part)

    def _pace(self, row: _Row, now: float) -> tuple[str, str]:
        rate = row.rate(now)
        if not rate:
            return "", ""
        return f"{rate:,.4g} steps/s", f"{duration((self.steps - row.step) / rate)} left"

    def _table(self) -> "Table":
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False)
        for title in ("run", "", "step", "loss", "error", "speed", "time"):
            table.add_column(title)
        now = time.monotonic()
        for row in self._rows:
            bar = ProgressBar(total=max(1, self.steps), completed=row.step, width=16)
            cells = [f"{row.step:,}/{self.steps:,}", _losses(row), _errors(row), *self._pace(row, now)]
            table.add_row(Text(row.name), bar, *(Text(cell) for cell in cells))
        return table


def _losses(row: _Row) -> str:
    losses = {name: value for name, value in row.metrics.get("loss", {}).items() if value is not None}
    terms = ", ".join(f"{name} {value:.4g}" for name, value in losses.items() if name != "total")
    if "total" not in losses:
        return f"loss {terms}" if terms else ""
    return f"loss {losses['total']:.4g}" + (f" ({terms})" if terms else "")


def _errors(row: _Row) -> str:
    known = {word: row.metrics.get(name) for name, word in ERRORS.items()}
    said = [f"{word} {value:.2f} %" for word, value in known.items() if value is not None]
    return ("error " + ", ".join(said)) if said else ""


def duration(seconds: float) -> str:
    """Seconds as people write them: 0:42, 12:05, 3:20:00."""
    whole = max(0, round(seconds))
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class EventWriter:
    """Writes the numbers of metrics as TensorBoard scalars (`loss/total`, `test_error`, …) into a folder.

    A resumed run gives its step as `start`: what an earlier process wrote after it is no longer shown.
    """

    def __init__(self, folder: Path | str, start: int | None = None) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as problem:
            raise UserError(
                "TensorBoard event files need the package tensorboard; install it with: pip install ns3l[tensorboard]"
            ) from problem
        self._writer = SummaryWriter(str(folder), purge_step=start)

    def write(self, step: int, metrics: dict[str, Any]) -> None:
        """Write every number in metrics at a step."""
        for name, value in scalars(metrics):
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Flush and close the file."""
        self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def scalars(metrics: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """The numbers in nested metrics, named by their path; the step itself is left out."""
    for name, value in metrics.items():
        if isinstance(value, dict):
            yield from scalars(value, f"{prefix}{name}/")
        elif isinstance(value, (int, float)) and not isinstance(value, bool) and name != "step":
            yield f"{prefix}{name}", float(value)
