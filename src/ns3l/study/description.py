"""What a study is: rows of recipes, a grid of settings, seeds, data, and where everything is recorded."""

import hashlib
import itertools
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ns3l.data.dataset import Dataset
from ns3l.data.reference import DataReference, refer
from ns3l.errors import RecipeError
from ns3l.executors.task import Assignment
from ns3l.recipe import Recipe, Weighted
from ns3l.recipes import PROTOCOLS, SHAPES, override, recipe, settable
from ns3l.recipes.override import unknown
from ns3l.structure import plain
from ns3l.terms.cross_entropy import CrossEntropy

DEFAULT = "default"
LONGEST = 120
"""Characters of a folder's name; longer ones are cut and end in a hash."""


@dataclass(frozen=True)
class Cell:
    """One run of a study and its place in it: row, grid point, seed."""

    label: str
    values: Mapping[str, Any]
    run: Assignment

    @property
    def name(self) -> str:
        """In words, for messages."""
        settings = ", ".join(f"{path}={_spoken(value)}" for path, value in self.values.items())
        return f"{self.label}{f' ({settings})' if settings else ''} seed {self.run.seed}"


@dataclass(frozen=True)
class Study:
    """Rows (label -> recipe) x grid (path -> values) x seeds on one data set, recorded below `root`."""

    name: str
    data: DataReference
    rows: Mapping[str, Recipe]
    root: Path
    grid: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    seeds: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        if not self.rows or not self.seeds:
            raise RecipeError("a study needs at least one method and one seed")
        if len(set(self.seeds)) < len(self.seeds):
            raise RecipeError(f"a seed is given twice: {', '.join(map(str, self.seeds))}")
        for path, values in self.grid.items():
            if not values:
                raise RecipeError(f"the grid has no values for {path}; give at least one, as in {path}=0.1,0.2")
        folders = [str(cell.run.path).casefold() for cell in self.cells()]
        if len(set(folders)) < len(folders):
            twice = next(folder for folder in folders if folders.count(folder) > 1)
            raise RecipeError(f"two runs of the study would be written to {twice}: labels or grid values repeat")

    def cells(self) -> tuple[Cell, ...]:
        """Every run, row by row, point by point, seed by seed."""
        return tuple(
            Cell(label, values, Assignment(varied, seed, self.root / safe(label) / point_name(values) / f"seed-{seed}"))
            for label, row in self.rows.items()
            for values in _points(row, self)
            for varied in (override(row, values) if values else row,)
            for seed in self.seeds
        )

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values."""
        return {
            "name": self.name,
            "data": self.data.to_dict(),
            "methods": {label: row.to_dict() for label, row in self.rows.items()},
            "grid": {path: plain(values) for path, values in self.grid.items()},
            "seeds": list(self.seeds),
        }


def _points(row: Recipe, study: Study) -> list[dict[str, Any]]:
    """The grid points of a row: paths that only other rows have do not vary it."""
    paths = [path for path in study.grid if _concerns(path, row, study.rows)]
    return [dict(zip(paths, values, strict=True)) for values in itertools.product(*(study.grid[p] for p in paths))]


def _concerns(path: str, row: Recipe, rows: Mapping[str, Recipe]) -> bool:
    """Whether a row has a setting; one that none has as it stands concerns the rows of its term, else all."""
    if path in settable(row) or any(path in settable(other) for other in rows.values()):
        return path in settable(row)
    head = path.split(".")[0]
    return head in row.terms or not any(head in other.terms for other in rows.values())


def _spoken(value: Any) -> str:
    return repr(value) if isinstance(value, float) else value if isinstance(value, str) else json.dumps(plain(value))


def point_name(values: Mapping[str, Any]) -> str:
    """The folder of a grid point: `ns3l.negatives.threshold=0.02,ns3l.weight=1.0`, or `default`."""
    return safe(",".join(f"{path}={_spoken(value)}" for path, value in values.items()) or DEFAULT)


def safe(name: str) -> str:
    """A name as a folder's name on any system: other characters than letters, digits and `_.-~+=,` as %XX."""
    if not name:
        raise RecipeError("a method's label must not be empty")
    quoted = quote(name, safe="+=,")
    quoted = f"%2E{quoted[1:]}" if quoted.startswith(".") else quoted
    if len(quoted) <= LONGEST and not quoted.endswith("."):
        return quoted
    return f"{quoted[: LONGEST - 9].rstrip('.%')}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def study(
    methods: Iterable[str] | Mapping[str, Recipe],
    data: str | os.PathLike[str] | Dataset | DataReference,
    labels: int | float | None = None,
    grid: Mapping[str, Sequence[Any]] | None = None,
    seeds: int | Iterable[int] = 5,
    out: str | os.PathLike[str] = "runs/study",
    *,
    settings: Mapping[str, Any] | None = None,
    schedule: float = 1.0,
    protocol: str | None = None,
    baseline: bool = True,
    root: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Study:
    """A study of methods (by name, or recipes by label) on data, every one with the same seeds, labels and splits.

    `settings` overrides fields of every recipe that has them. Unless refused, a supervised-only row with the same
    budget is added. `seeds` is their number or the seeds themselves; `root` and `options` go to `ns3l.load`.
    """
    reference = refer(data, root, **options)
    if isinstance(methods, Mapping):
        rows = {label: _scaled(row, labels, schedule) for label, row in methods.items()}
        rows = with_baselines(rows, _stripped) if baseline else rows
    else:
        makes = partial(made, data=reference, labels=labels, schedule=schedule)
        rows = {name: makes(name, protocol=protocol) for name in methods}
        rows = with_baselines(rows, lambda peer: supervised(peer, makes)) if baseline else rows
    return assembled(rows, reference, grid, seeds, out, settings)


def assembled(
    rows: Mapping[str, Recipe],
    data: DataReference,
    grid: Mapping[str, Sequence[Any]] | None,
    seeds: int | Iterable[int],
    out: str | os.PathLike[str],
    settings: Mapping[str, Any] | None = None,
) -> Study:
    """A study of these rows, with settings overridden in every row that has them."""
    rows = dict(rows)
    for path, value in (settings or {}).items():
        known = sorted({name for row in rows.values() for name in settable(row)})
        if path not in known:
            raise RecipeError(unknown(path, known))
        concerned = [label for label, row in rows.items() if _concerns(path, row, rows)]
        rows |= {label: override(rows[label], {path: value}) for label in concerned}
    chosen = tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds)
    varied = {path: tuple(values) for path, values in (grid or {}).items()}
    folder = Path(out).absolute()
    return Study(folder.name, data, rows, folder, varied, chosen)


def made(
    method: str,
    data: DataReference,
    labels: int | float | None = None,
    schedule: float = 1.0,
    protocol: str | None = None,
) -> Recipe:
    """The recipe of a method for data that need not be known by name."""
    if data.held is None and data.name in SHAPES:
        return recipe(method, data.name, labels, schedule=schedule, protocol=protocol)
    found = data.load()
    shape = tuple(found.x.shape[1:])
    return recipe(method, data.name, labels, len(found.classes), shape, schedule, protocol)


def _scaled(row: Recipe, labels: int | float | None, schedule: float) -> Recipe:
    row = row if labels is None else replace(row, split=replace(row.split, labels=labels))
    return row.scaled(schedule)


def with_baselines(rows: dict[str, Recipe], make: Callable[[Recipe], Recipe]) -> dict[str, Recipe]:
    """The rows, led by a supervised one for each protocol that has none: made for the row with the most steps."""
    there = {row.protocol for row in rows.values() if row.method == "supervised"}
    added: dict[str, Recipe] = {}
    for protocol in dict.fromkeys(row.protocol for row in rows.values() if row.protocol not in there):
        peers = [row for row in rows.values() if row.protocol == protocol]
        label = "supervised" if "supervised" not in (*rows, *added) else f"supervised, {protocol}"
        added[label] = make(max(peers, key=lambda row: row.steps))
    return added | rows


def supervised(peer: Recipe, makes: Callable[..., Recipe]) -> Recipe:
    """Supervised learning as the peer's protocol has it, else the peer without everything for unlabeled examples."""
    for protocol in PROTOCOLS:
        try:
            own = makes("supervised", protocol=protocol)
        except RecipeError:
            continue
        if (own.protocol, own.steps, own.split) == (peer.protocol, peer.steps, peer.split):
            return own
    return _stripped(peer)


def _stripped(peer: Recipe) -> Recipe:
    """A recipe without everything that concerns unlabeled examples: the same steps, labels, splits and the rest."""
    return replace(
        peer,
        method="supervised",
        terms={"supervised": Weighted(1.0, CrossEntropy())},
        builder=None,
        batch=replace(peer.batch, unlabeled=0),
        average=peer.average if peer.evaluation.weights == "average" else None,
        statistics="joint",
        sources={},
    )
