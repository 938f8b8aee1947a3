"""Known data sets: which files they come in, where those may lie on this disk, and what must be in them."""

import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ns3l.data.archives import unpack
from ns3l.data.dataset import Dataset
from ns3l.data.download import Remote, download, locked
from ns3l.errors import DataError


@dataclass(frozen=True)
class Layout:
    """One form of a data set on disk: a folder with these files, perhaps (`gz`) compressed, perhaps in an archive."""

    folder: str
    files: tuple[str, ...]
    archive: str = ""
    gz: bool = False

    def missing(self, place: Path) -> tuple[str, ...]:
        """The files that are not in `place`."""
        return tuple(name for name in self.files if self.file(place, name) is None)

    def file(self, place: Path, name: str) -> Path | None:
        """A file of the layout in `place`, plain or compressed; None where it is not."""
        for path in (place / name, *([place / f"{name}.gz"] if self.gz else [])):
            if path.is_file():
                return path
        return None


@dataclass(frozen=True)
class Official:
    """What the published set holds: images per class in the training and test part, and further unlabeled images."""

    train: tuple[int, ...]
    test: tuple[int, ...]
    extra: int = 0

    def differences(self, data: Dataset) -> list[str]:
        """In words, where `data` is not the published set; empty when it is."""
        found = []
        for part, labels, counts in (("training", data.y, self.train), ("test", data.y_test, self.test)):
            have = np.bincount(labels, minlength=len(counts)) if labels is not None else np.zeros(len(counts), int)
            if have.tolist() != list(counts):
                found.append(
                    f"{int(have.sum()):,} {part} images, not {sum(counts):,} in the published number per class"
                )
        if data.x_extra is not None and len(data.x_extra) != self.extra:
            found.append(f"{len(data.x_extra):,} further images, not {self.extra:,}")
        return found


@dataclass(frozen=True)
class Known:
    """A data set that is known by name."""

    name: str
    layouts: tuple[Layout, ...]
    remotes: tuple[Remote, ...]
    official: Official
    system: tuple[str, ...] = ()

    def find(self, root: str | os.PathLike[str] | None = None) -> tuple[Layout, Path]:
        """The layout and folder in which the set is on disk, unpacked from its archive if need be."""
        places = list(self._places(root))
        for place in places:
            for layout in self.layouts:
                for folder in self._folders(place, layout):
                    if folder.is_dir() and not layout.missing(folder):
                        return layout, folder
        for place in places:
            for layout in self.layouts:
                if found := self._unpacked(place, layout):
                    return layout, found
        raise DataError(self._advice(places, root))

    def fetch(self, root: str | os.PathLike[str] | None = None, progress: bool = True) -> Path:
        """Download the official files, unless they are on disk already; the folder that holds them."""
        try:
            return self.find(root)[1]
        except DataError as error:
            if "was not found" not in str(error):
                raise
        place = data_root(root)
        for remote in self.remotes:
            download(remote, place, progress=progress)
        return self.find(place)[1]

    def remind(self, data: Dataset) -> Dataset:
        """The same data, with a warning where they are not the published set."""
        if differences := self.official.differences(data):
            warnings.warn(f"{self.name} on this disk is not the published set: {'; '.join(differences)}", stacklevel=4)
        return data

    def _places(self, root: str | os.PathLike[str] | None) -> Iterator[Path]:
        yield data_root(root)
        if root is None:
            yield from map(Path, [*self.system, str(cache_root())])

    def _folders(self, place: Path, layout: Layout) -> tuple[Path, ...]:
        return (place / layout.folder, place / self.name / layout.folder, place / self.name, place)

    def _unpacked(self, place: Path, layout: Layout) -> Path | None:
        for archive in (place / layout.archive, place / self.name / layout.archive, place):
            if layout.archive and archive.name == layout.archive and archive.is_file():
                target = archive.parent / layout.folder
                with locked(archive.parent, self.name):
                    if not target.is_dir():
                        unpack(archive, target, inside=layout.folder, needed=layout.files)
                if missing := layout.missing(target):
                    raise DataError(f"{target}: {', '.join(missing)} missing; remove that folder and try again")
                return target
        return None

    def _advice(self, places: list[Path], root: str | os.PathLike[str] | None) -> str:
        lines = [f"{self.name} was not found in {' or '.join(str(place) for place in places)}."]
        for layout in self.layouts:
            folders = [folder for place in places for folder in self._folders(place, layout)[:2] if folder.is_dir()]
            lines += [f"{folder} is there but lacks {', '.join(layout.missing(folder))}." for folder in folders]
        where = f" --root {places[0]}" if root is not None else ""
        lines.append(f"Get it with: ns3l data fetch {self.name}{where}")
        lines.append("Without a network, put there by hand:")
        lines += [remote.instructions(places[0]) for remote in self.remotes]
        return "\n".join(lines)


def data_root(root: str | os.PathLike[str] | None = None) -> Path:
    """Where data are looked for first and put: the argument, else NS3L_DATA, else the user's cache."""
    if root is not None:
        return Path(root).expanduser()
    named = os.environ.get("NS3L_DATA")
    return Path(named).expanduser() if named else cache_root()


def cache_root() -> Path:
    """The user's cache folder for data: XDG_CACHE_HOME/ns3l, by default ~/.cache/ns3l."""
    named = os.environ.get("XDG_CACHE_HOME")
    return (Path(named) if named else Path("~/.cache").expanduser()) / "ns3l"
