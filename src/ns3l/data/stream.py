"""Image files decoded in parallel, in order, in bounded memory: the path of a folder of any size to a predictor."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import TypeVar

import numpy as np

from ns3l.data.decode import SUFFIXES, Fit, Form, ImageFault, decode
from ns3l.errors import DataError

Item = TypeVar("Item")
Made = TypeVar("Made")
GROUP = 16


def iterate_images(
    source: str | Path | Iterable[str | Path],
    size: int | tuple[int, int],
    channels: int,
    batch: int = 256,
    *,
    fit: Fit = "crop",
    damaged: Callable[[str, str], None] | None = None,
    workers: int | None = None,
) -> Iterator[tuple[tuple[str, ...], np.ndarray]]:
    """Yield (names, uint8 [n, H, W, C]) for a folder (subfolders too), one file or a list of files.

    Names are relative to the folder, sorted folder by folder. A file that cannot be decoded raises `DataError`, or,
    where `damaged` is given, is told to it as (name, reason) and left out.
    """
    height, width = (size, size) if isinstance(size, int) else size
    form = Form(height, width, channels, fit)
    if batch < 1:
        raise DataError(f"batch: expected a positive number of images, got {batch}")
    names: list[str] = []
    rows: list[np.ndarray] = []
    for name, row in _decoded(_named(source), form, workers):
        if isinstance(row, ImageFault):
            _tell(name, row, damaged)
            continue
        names.append(name)
        rows.append(row)
        if len(rows) == batch:
            yield tuple(names), np.stack(rows)
            names, rows = [], []
    if rows:
        yield tuple(names), np.stack(rows)


def _decoded(
    files: Iterable[tuple[str, Path]], form: Form, workers: int | None
) -> Iterator[tuple[str, np.ndarray | ImageFault]]:
    def work(item: tuple[str, Path]) -> tuple[str, np.ndarray | ImageFault]:
        name, path = item
        try:
            return name, decode(path, form)[1]
        except ImageFault as fault:
            return name, fault

    yield from in_parallel(work, files, workers)


def _tell(name: str, fault: ImageFault, damaged: Callable[[str, str], None] | None) -> None:
    if damaged is None:
        raise DataError(f"{name}: {fault}")
    damaged(name, str(fault))


def _named(source: str | Path | Iterable[str | Path]) -> Iterator[tuple[str, Path]]:
    if not isinstance(source, str | Path):
        yield from ((str(path), Path(path)) for path in source)
        return
    root = Path(source)
    if root.is_dir():
        yield from ((name, root / name) for name in image_names(root))
    elif root.exists():
        yield root.name, root
    else:
        raise DataError(f"{root}: no such file or folder")


def image_names(root: Path, below: str = "") -> Iterator[str]:
    """Image files under a folder by extension, relative to `root`, sorted in each folder.

    Hidden entries are left out, links to folders are not followed.
    """
    with os.scandir(root / below) as listing:
        entries = sorted(listing, key=lambda entry: entry.name)
    for entry in entries:
        name = f"{below}/{entry.name}" if below else entry.name
        if entry.name.startswith("."):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from image_names(root, name)
        elif not entry.is_dir() and looks_like_image(entry.name):
            yield name


def looks_like_image(name: str) -> bool:
    """Whether a file should be tried as an image, by its extension."""
    return Path(name).suffix.lower() in SUFFIXES


def default_workers() -> int:
    """Every core this process may use; Pillow lets go of the interpreter lock while it decodes."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_parallel(work: Callable[[Item], Made], items: Iterable[Item], workers: int | None = None) -> Iterator[Made]:
    """Results in the order of the items, from a pool of threads, with a bounded number of items under way."""
    threads = max(1, workers or default_workers())

    def group(part: list[Item]) -> list[Made]:
        return [work(item) for item in part]

    source, under_way = iter(items), deque[Future[list[Made]]]()
    with ThreadPoolExecutor(threads) as pool:
        try:
            while True:
                while len(under_way) < 2 * threads + 2 and (part := list(islice(source, GROUP))):
                    under_way.append(pool.submit(group, part))
                if not under_way:
                    return
                yield from under_way.popleft().result()
        finally:
            for future in under_way:
                future.cancel()
