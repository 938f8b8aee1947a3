"""Get official files: from their address or a mirror, resumed, checked, under a lock, moved into place at the end.

While it comes in, a file is called `<name>.part`; its own name it gets only when its checksum is right.
"""

import contextlib
import http.client
import logging
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ns3l.errors import DataError

PIECE = 1 << 18
ATTEMPTS = 5
PAUSE = 0.5  # seconds before a second attempt, twice as long before a third …
TIMEOUT = 30.0
SLOWEST = 512  # bytes a second; a server that sends less for `timeout` seconds has stalled
PATIENCE = 6 * 3600.0  # seconds to wait for another process that downloads the same file


@dataclass(frozen=True)
class Remote:
    """A published file: its path below the data folder, addresses (official first), checksum as `sha256:…`, bytes."""

    file: str
    urls: tuple[str, ...]
    checksum: str
    size: int

    def instructions(self, root: Path) -> str:
        """How to put the file there by hand."""
        lines = [f"  {root / self.file}  ({self.size:,} bytes, {self.checksum})"]
        return "\n".join(lines + [f"    from {url}" for url in self.urls])


@contextlib.contextmanager
def locked(root: Path, name: str) -> Iterator[None]:
    """One process at a time works on `name` below `root`; others wait."""
    from filelock import FileLock, Timeout

    lock = root / f".{name}.lock"
    try:
        root.mkdir(parents=True, exist_ok=True)
        held = FileLock(lock, timeout=PATIENCE)
        held.acquire()
    except Timeout:
        raise DataError(f"{name}: another process has held {lock} for {PATIENCE / 3600:.0f} hours; end it") from None
    except OSError as error:
        raise DataError(f"{root}: cannot be written ({error.strerror or error}); name another with --root") from error
    try:
        yield
    finally:
        held.release()


def download(remote: Remote, root: Path, progress: bool = True, timeout: float = TIMEOUT) -> Path:
    """The file of `remote` below `root`, downloaded unless it is there with the right checksum."""
    target = root / remote.file
    failures: list[str] = []
    with locked(target.parent, target.name), _quiet_pooch(), _progress(target.name, remote.size, progress) as report:
        for url in (*remote.urls, *remote.urls):
            failure = _try(url, remote, target, timeout, report)
            if failure is None:
                return target
            failures.append(f"  {url}: {failure}")
    tried = "\n".join(dict.fromkeys(failures))
    advice = remote.instructions(root)
    raise DataError(f"{target.name} could not be downloaded:\n{tried}\nTo put it there by hand:\n{advice}")


def _try(url: str, remote: Remote, target: Path, timeout: float, report: Callable[[int], None]) -> str | None:
    """Download from one address; what went wrong, None when nothing did."""
    import pooch

    fetcher = _Resuming(target.with_name(f"{target.name}.part"), remote.size, timeout, report)
    try:
        pooch.retrieve(url, remote.checksum, target.name, target.parent, downloader=fetcher)
    except urllib.error.HTTPError as error:
        return f"the server answers {error.code} {error.reason}"
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        return str(reason).split("\n")[0] or type(error).__name__
    return None


class _Resuming:
    """A downloader for pooch that goes on where the partial file ends."""

    def __init__(self, part: Path, size: int, timeout: float, report: Callable[[int], None]) -> None:
        self.part, self.size, self.timeout, self.report = part, size, timeout, report

    def __call__(self, url: str, output_file: Any, *_: Any) -> None:
        """Fetch `url` to `output_file`, in several attempts as long as each brings something."""
        error: Exception | None = None
        for attempt in range(ATTEMPTS):
            have = self._have()
            try:
                if have != self.size:
                    time.sleep(PAUSE * attempt)
                    self._attempt(url, have)
            except urllib.error.HTTPError as refused:
                if refused.code != 416:
                    raise
                self.part.unlink(missing_ok=True)
            except (OSError, ValueError, http.client.HTTPException) as failed:
                error = failed
            if self._have() == self.size:
                self.part.replace(str(output_file))
                return
            if self._have() <= have and attempt:
                break
        raise error or OSError(f"the connection ended after {self._have():,} of {self.size:,} bytes")

    def _have(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0

    def _attempt(self, url: str, have: int) -> None:
        if have > self.size:
            self.part.unlink()
            have = 0
        request = urllib.request.Request(url, headers={"User-Agent": "ns3l", **_range(have)})
        if request.type not in ("http", "https"):
            raise ValueError(f"only http and https addresses are fetched, not {request.type}")
        with urllib.request.urlopen(request, timeout=self.timeout) as answer:
            resumed = answer.status == 206 and answer.headers.get("Content-Range", "").startswith(f"bytes {have}-")
            with self.part.open("ab" if have and resumed else "wb") as out:
                self._copy(answer, out)

    def _copy(self, answer: Any, out: Any) -> None:
        written, since, mark = out.tell(), time.monotonic(), out.tell()
        while piece := answer.read1(PIECE):
            written += len(piece)
            if written > self.size:
                out.truncate(0)
                raise ValueError(f"the server sends more than the {self.size:,} bytes of the file; nothing is kept")
            out.write(piece)
            self.report(written)
            if time.monotonic() - since > self.timeout:
                if written - mark < SLOWEST * self.timeout:
                    raise TimeoutError(f"the server sends less than {SLOWEST} bytes a second")
                since, mark = time.monotonic(), written
        out.flush()
        os.fsync(out.fileno())


def _range(have: int) -> dict[str, str]:
    return {"Range": f"bytes={have}-"} if have else {}


@contextlib.contextmanager
def _quiet_pooch() -> Iterator[None]:
    """Keep pooch's own lines out of ours."""
    import pooch

    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextlib.contextmanager
def _progress(name: str, size: int, shown: bool) -> Iterator[Callable[[int], None]]:
    """A progress bar on standard error when that is a terminal; a function that takes the bytes so far."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, disable=not (shown and console.is_terminal)) as bar:
        task = bar.add_task(name, total=size)
        yield lambda done: bar.update(task, completed=done)
