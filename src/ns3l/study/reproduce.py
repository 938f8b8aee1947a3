"""An item of the paper, a table or a figure, as a study."""

import difflib
import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from ns3l.data.reference import refer
from ns3l.errors import RecipeError
from ns3l.executors.task import Executor
from ns3l.recipe import Recipe
from ns3l.recipes import ITEMS, Item
from ns3l.recipes.items import Rows
from ns3l.shared import How
from ns3l.study.description import Study, assembled, made, supervised, with_baselines
from ns3l.study.execute import StudyResult, execute


def reproduction(
    item: str,
    seeds: int | Iterable[int] | None = None,
    schedule: float = 1.0,
    out: str | os.PathLike[str] | None = None,
    *,
    names: Iterable[str] | None = None,
    settings: Mapping[str, Any] | None = None,
    baseline: bool = True,
    root: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Study:
    """The study behind an item of `ns3l.recipes.ITEMS`; `schedule` times all step counts of its rows.

    `names` leaves rows of these labels or methods, and supervised ones. Unless refused, a supervised-only row is added
    where the item has none. `root` and `options` go to `ns3l.load`.
    """
    found = _item(item)
    if not found.rows:
        raise RecipeError(f"{item} trains no network; it is computed by ns3l.{item}")
    data = refer(found.data, root, **options)
    kept = found.rows if names is None else _chosen(found.rows, tuple(names), baseline)
    rows = {label: row.scaled(schedule) for label, row in kept}
    if baseline:
        rows = with_baselines(rows, lambda peer: supervised(peer, _maker(peer, found, schedule)))
    return assembled(rows, data, found.grid, found.seeds if seeds is None else seeds, out or f"runs/{item}", settings)


def _chosen(rows: Rows, names: tuple[str, ...], baseline: bool) -> Rows:
    """The rows of these labels or methods in the item's order, with its own supervised row as the baseline."""
    known = [*(label for label, _ in rows), *dict.fromkeys(row.method for _, row in rows)]
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            advice = f"did you mean {near[0]!r}?" if near else f"there are {'; '.join(known)}"
            raise RecipeError(f"there is no row {name!r}; {advice}")
    wanted = {*names, "supervised"} if baseline else {*names}
    return tuple((label, row) for label, row in rows if label in wanted or row.method in wanted)


def _maker(peer: Recipe, item: Item, schedule: float) -> Callable[..., Recipe]:
    return partial(made, data=refer(item.data), labels=peer.split.labels, schedule=schedule)


def _item(name: str) -> Item:
    if name not in ITEMS:
        near = difflib.get_close_matches(name, ITEMS, 1)
        advice = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(ITEMS)}"
        raise RecipeError(f"there is no item {name!r}; {advice}")
    return ITEMS[name]


def reproduce(
    item: str,
    seeds: int | Iterable[int] | None = None,
    schedule: float = 1.0,
    out: str | os.PathLike[str] | None = None,
    executor: Executor | None = None,
    how: How = How(),
    **options: Any,
) -> StudyResult:
    """Carry out the study behind an item, or what is left of it; further options as of `reproduction`."""
    return execute(reproduction(item, seeds, schedule, out, **options), executor, how)
