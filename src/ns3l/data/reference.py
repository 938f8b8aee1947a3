"""A data set by name or path, so that every process that works on a study can load it by itself."""

import os
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from ns3l.data import DATASETS, load
from ns3l.data.dataset import Dataset
from ns3l.data.known import data_root


@dataclass(frozen=True)
class DataReference:
    """What `ns3l.load` is to load: a known name or a path, where it lies, and options; or a data set in memory."""

    name: str
    root: str | None = None
    options: tuple[tuple[str, Any], ...] = ()
    held: Dataset | None = field(default=None, repr=False)

    def load(self) -> Dataset:
        """The data set; the last one loaded is kept."""
        return self.held if self.held is not None else _loaded(self)

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values."""
        return {"name": self.name, "root": self.root, "options": dict(self.options), "in_memory": self.held is not None}


@lru_cache(maxsize=1)
def _loaded(reference: DataReference) -> Dataset:
    options = dict(reference.options)
    if reference.name in DATASETS:
        return load(reference.name, reference.root, **options)
    return load(Path(reference.root or ".") / reference.name, **options)


def refer(
    data: str | os.PathLike[str] | Dataset | DataReference, root: str | os.PathLike[str] | None = None, **options: Any
) -> DataReference:
    """A reference to a known set, a path or a data set in memory; places are made absolute for other processes."""
    if isinstance(data, DataReference):
        return data
    if isinstance(data, Dataset):
        return DataReference(data.name, held=data)
    name = os.fspath(data)
    where = data_root(root).absolute() if name in DATASETS else Path.cwd()
    return DataReference(name, str(where), tuple(sorted(options.items())))
