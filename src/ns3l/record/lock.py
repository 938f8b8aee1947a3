"""One writer for a run folder. The system frees the lock when its holder dies, so a stale one never blocks."""

import os
import platform
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

from ns3l.errors import InUseError, RunError
from ns3l.record.files import parse_json, to_json, writing

LOCK = ".lock"
HOLDER = ".lock-holder"


class FolderLock:
    """An exclusive lock on a folder, taken at once or refused with a RunError that names its holder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = FileLock(folder / LOCK, timeout=0, thread_local=False)
        self._take()
        try:
            with writing(folder / HOLDER):
                (folder / HOLDER).write_text(to_json({"pid": os.getpid(), "host": platform.node()}), encoding="utf-8")
        except RunError:
            self.release()
            raise

    def _take(self) -> None:
        with writing(self.folder / LOCK):
            try:
                self._lock.acquire()
            except (Timeout, RuntimeError) as problem:
                raise InUseError(
                    f"{self.folder} is being written by {holder(self.folder)}. Wait for it to end or stop it; "
                    "only one process may write a folder."
                ) from problem

    @property
    def released(self) -> bool:
        """Whether the folder was given free."""
        return not self._lock.is_locked

    def release(self) -> None:
        """Give the folder free; harmless when done twice."""
        if not self._lock.is_locked:
            return
        with suppress(OSError):
            (self.folder / HOLDER).unlink(missing_ok=True)
        self._lock.release(force=True)


def holder(folder: Path) -> str:
    """Who wrote its name beside the lock, in words."""
    try:
        found = parse_json((folder / HOLDER).read_bytes()[:4096])
        return f"process {int(found['pid'])} on {found['host']!s}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
