"""The demo: digits with 30 labels, five methods on the same splits; a table, the toy picture and an HTML report."""

import multiprocessing
import os
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from ns3l.data import Dataset, load
from ns3l.errors import UserError
from ns3l.recipe import EvaluationPlan, Recipe
from ns3l.recipes import own
from ns3l.record import refuse_file
from ns3l.shared import How
from ns3l.split import Split, SplitRequest
from ns3l.statistics import paired, summarize
from ns3l.train import fit

METHODS = ("supervised", "pl", "ns3l", "vat", "vat+ns3l")
LABELS = 3  # of every class
TRAIN = {"digits": 1400, "fashion-mnist": 60_000}
STEPS = 400
WIDTH = 24
QUICK_STEPS = 100
Data = Literal["digits", "fashion-mnist"]


@dataclass(frozen=True)
class Demo:
    """Test errors in per cent by method and seed, and where the run folders, the picture and the report are."""

    errors: dict[str, dict[int, float]]
    report: Path
    picture: Path
    runs: Path
    seconds: float

    @property
    def verdict(self) -> str:
        """Whether the rows with NS3L beat the supervised one, in words."""
        lines = []
        for method in ("ns3l", "vat+ns3l"):
            gain = paired(self.errors[method], self.errors["supervised"])
            wins = sum(self.errors[method][seed] < error for seed, error in self.errors["supervised"].items())
            mean = gain.difference.mean
            by = f"{abs(mean):.1f} points {'lower' if mean < 0 else 'higher'} in the mean"
            told = f"lower on {wins} of {gain.difference.n} splits, {by}"
            if mean < 0 and 2 * wins > gain.difference.n:
                lines.append(f"{method} beat the supervised baseline: {told}.")
            else:
                lines.append(f"{method} did NOT beat the supervised baseline: {told}.")
        return "\n".join(lines)


def demo(
    out: Path | str = "ns3l-demo",
    seeds: int | Iterable[int] = 3,
    quick: bool = False,
    data: Data = "digits",
    root: Path | str | None = None,
    processes: int | None = None,
) -> Demo:
    """Train five methods on a few labels, print a table, write a picture and an HTML report into `out`.

    `seeds` says how many splits, or which. `quick` takes a quarter of the steps: to see that all works, not for the
    numbers. Folders of an earlier demo are read, not trained again. `processes` work side by side, one per core unless
    given, at most 4.
    """
    begun, out = time.monotonic(), Path(out)
    chosen = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    if len(chosen) < 2 or len(set(chosen)) < len(chosen):
        raise UserError(f"the demo compares methods over 2 or more different seeds, got {chosen}")
    refuse_file(out)
    _loaded(data, root)  # once before all processes: wrong names are told at once, what is missing is fetched once
    steps = QUICK_STEPS if quick else STEPS
    _say(f"{data}, {LABELS} labels a class, {len(METHODS)} methods x {len(chosen)} splits, {steps} steps each")
    jobs = [(data, method, seed, steps, str(out / "runs"), root) for seed in chosen for method in METHODS]
    errors: dict[str, dict[int, float]] = {method: {} for method in METHODS}
    for method, seed, error in _done(jobs, processes):
        errors[method][seed] = error
        _say(f"  {sum(map(len, errors.values())):2}/{len(jobs)}  {method}, split {seed}: {error:.1f} % error")
    errors = {method: dict(sorted(held.items())) for method, held in errors.items()}
    return _shown(Demo(errors, out / "report.html", out / "toy.png", out / "runs", time.monotonic() - begun))


def few_labels(data: Data, seed: int, root: Path | str | None = None) -> tuple[Dataset, Split]:
    """A few labeled rows of every class, all training rows as the pool, the rest as test rows; drawn by NumPy."""
    rows = _loaded(data, root)
    rng = np.random.default_rng(seed)
    if rows.x_test is None:
        order = rng.permutation(len(rows.x))
        train, test = order[: TRAIN[data]], order[TRAIN[data] :]
        rows = replace(rows, x=rows.x[train], y=rows.y[train], x_test=rows.x[test], y_test=rows.y[test])
    each = [rng.choice(np.flatnonzero(rows.y == k), LABELS, replace=False) for k in range(len(rows.classes))]
    labeled = np.sort(np.concatenate(each))
    request = SplitRequest(labels=len(labeled))
    pool = np.arange(len(rows.x))
    return rows, Split(labeled, pool, np.empty(0, np.int64), seed, rows.hash, "numpy default_rng, choice", request)


@cache
def _loaded(data: Data, root: Path | str | None) -> Dataset:
    if data not in TRAIN:
        raise UserError(f"the demo knows {' and '.join(TRAIN)}, got {data!r}")
    return load(data, root)


def demo_recipe(method: str, data: Dataset, steps: int = STEPS) -> Recipe:
    """The defaults for one's own data, with a narrower network for two minutes on two cores, evaluated four times."""
    recipe = own(method, data.name, len(data.classes), tuple(data.x.shape[1:]), steps=steps)
    network = replace(recipe.network, options={**recipe.network.options, "width": WIDTH})
    return replace(recipe, network=network, evaluation=EvaluationPlan(max(1, steps // 4), rule="last"))


def _train(job: tuple[Any, ...]) -> tuple[str, int, float]:
    """One run, in a process of its own."""
    data, method, seed, steps, runs, root = job
    torch.set_num_threads(1)
    rows, split = few_labels(data, seed, root)
    how = How(device="cpu" if data == "digits" else "auto", progress="quiet")
    folder = Path(runs) / method
    result = fit(demo_recipe(method, rows, steps), rows, seeds=[seed], splits=[split], out=folder, how=how)
    error = result.errors()[0]
    assert error is not None
    return method, seed, error


def _done(jobs: Sequence[tuple[Any, ...]], processes: int | None) -> Iterable[tuple[str, int, float]]:
    """Every run as it ends; each process takes one core."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    count = processes or min(4, cores, len(jobs))
    if count == 1:
        yield from map(_train, jobs)
        return
    with ProcessPoolExecutor(count, multiprocessing.get_context("spawn")) as pool:
        for job in as_completed([pool.submit(_train, job) for job in jobs]):
            yield job.result()


def _shown(found: Demo) -> Demo:
    """Print table, verdict and paths; write picture and report."""
    from ns3l.report import report, write_html
    from ns3l.toy import picture

    picture(found.picture)
    write_html(report(found.runs), found.report)
    _print_table(found)
    _say(found.verdict)
    _say(f"Report: {found.report}\nToy example of the paper: {found.picture}\nRuns: {found.runs}")
    _say(f"{found.seconds:.0f} s")
    return found


def _print_table(found: Demo) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Test error in per cent, mean ± standard deviation over splits")
    for title in ("method", "error", "minus supervised, same splits (95 % interval)"):
        table.add_column(title, justify="left" if title == "method" else "right")
    for method, errors in found.errors.items():
        table.add_row(method, *_cells(errors, found.errors["supervised"]))
    Console().print(table)


def _cells(errors: dict[int, float], supervised: dict[int, float]) -> tuple[str, str]:
    told, gain = summarize(list(errors.values())), paired(errors, supervised).difference
    error = f"{told.mean:.1f} ± {told.std:.1f} (n={told.n})"
    return error, "" if errors is supervised else f"{gain.mean:+.1f} ({gain.low:+.1f} to {gain.high:+.1f})"


def _say(text: str) -> None:
    print(text, flush=True)
