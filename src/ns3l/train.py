"""Training: runs side by side on a device, from data and recipes to results. The loop itself is `_loop`."""

import gc
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from ns3l.data.dataset import Dataset
from ns3l.distributed import job
from ns3l.engine import Engine, settings
from ns3l.errors import RecipeError, RunError
from ns3l.model import Model
from ns3l.progress import Progress
from ns3l.recipe import Recipe
from ns3l.record import Interruption
from ns3l.run import Run, Trained, begin, close, complete, end, look, save
from ns3l.shared import How, Plan, Shared
from ns3l.split import Split, make_split

LOOK = 20
"""Steps after which the host looks for a signal to stop."""
MOST = 10
"""Replicas in one group at most: more gain nothing where it was measured."""
LONG = 5000
"""Steps from which on it is worth while to measure how many replicas side by side are fastest."""


class Stopped(Exception):
    """A signal ended training between two steps; checkpoints are written."""

    def __init__(self, code: int) -> None:
        super().__init__(f"stopped by a signal; start the same command again to continue (exit code {code})")
        self.code = code


def train(plans: Sequence[Plan], data: Dataset, how: How = How()) -> list[Trained]:
    """Train runs whose recipes have the same form, side by side as many as fit; complete ones are only read."""
    with job(how.where().type) as place, Interruption() as stop:
        trained = {plan: complete(plan, how) for plan in plans}
        waiting = [plan for plan in plans if trained[plan] is None]
        shared = Shared(data, how, place)
        for group in _groups(waiting, shared):
            for done in _group(group, shared, stop):
                trained[done.plan] = done
    return [done for done in trained.values() if done is not None]


def _groups(plans: list[Plan], shared: Shared) -> Iterable[list[Plan]]:
    """Runs to train side by side: one at a time on a CPU; on a GPU as many of one form as is fastest."""
    for shape in dict.fromkeys(form(plan.recipe) for plan in plans):
        alike = [plan for plan in plans if form(plan.recipe) == shape]
        size = shared.how.replicas or _size(alike, shared)
        yield from (alike[i : i + size] for i in range(0, len(alike), size))


def _size(plans: list[Plan], shared: Shared) -> int:
    """How many runs side by side: on a GPU measured where runs are long, else as many as are known to gain."""
    if shared.device.type != "cuda" or shared.place.world > 1 or len(plans) == 1:
        return 1
    if plans[0].recipe.steps < LONG:
        return MOST
    free = torch.cuda.mem_get_info(shared.device)[0]
    return fastest(lambda size: _probe(plans[:size], shared), len(plans), free)


def fastest(probe: Callable[[int], tuple[float, float]], most: int, free: float) -> int:
    """The group size of least time a run: larger ones are tried while they fit into memory and gain 3 per cent.

    `probe` gives seconds and bytes of a step of so many runs.
    """
    best, each, least = 1, 0.0, float("inf")
    for size in sorted({min(size, most) for size in (1, 2, 5, MOST)}):
        if size * each > 0.9 * free:
            break
        try:
            seconds, used = probe(size)
        except torch.cuda.OutOfMemoryError:
            break
        if seconds / size > 0.97 * least:
            break
        best, each, least = size, used / size, seconds / size
    return best


def _probe(plans: list[Plan], shared: Shared) -> tuple[float, float]:
    """Seconds and bytes of a step of these runs, measured; nothing is written."""
    execution = plans[0].recipe.execution
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(shared.device)
    with settings(execution, shared.device):
        runs = [begin(replace(plan, path=None), shared) for plan in plans]
        engine = Engine([run.replica for run in runs], execution)
        engine.advance(0, 5)
        torch.cuda.synchronize()
        began = time.perf_counter()
        engine.advance(5, 20)
        torch.cuda.synchronize()
        return (time.perf_counter() - began) / 20, torch.cuda.max_memory_allocated(shared.device)


def form(recipe: Recipe) -> tuple[object, ...]:
    """What runs side by side must share: steps, evaluation and execution."""
    return recipe.steps, recipe.evaluation.every, recipe.execution


def _group(plans: list[Plan], shared: Shared, stop: Interruption) -> list[Trained]:
    """Train runs side by side; where memory does not suffice, in halves."""
    try:
        return _together(plans, shared, stop)
    except torch.cuda.OutOfMemoryError as problem:
        if len(plans) == 1:
            raise RunError(f"one run alone does not fit into the device's memory: {problem}") from problem
    gc.collect()  # compiled steps hold each other in circles
    torch.cuda.empty_cache()
    half = len(plans) // 2
    return _group(plans[:half], shared, stop) + _group(plans[half:], shared, stop)


def _together(plans: list[Plan], shared: Shared, stop: Interruption) -> list[Trained]:
    runs: list[Run] = []
    try:
        with settings(plans[0].recipe.execution, shared.device):
            for plan in plans:
                runs.append(begin(plan, shared))
            steps = dict.fromkeys(run.first_step for run in runs)  # a kill may have left them at different ones
            parts = [[run for run in runs if run.first_step == step] for step in steps]
            return [done for part in parts for done in _trained(part, shared, stop)]
    finally:
        for run in runs:
            close(run)


def _trained(runs: list[Run], shared: Shared, stop: Interruption) -> list[Trained]:
    recipe = runs[0].plan.recipe
    names = [f"{run.plan.recipe.method} seed {run.plan.seed}" for run in runs]
    with Progress(shared.how.progress if shared.place.first else "quiet", names, recipe.steps) as progress:
        for run in runs:
            for notice in run.folder.notices if run.folder else ():
                progress.say(notice)
        try:
            engine = Engine([run.replica for run in runs], recipe.execution)
            if engine.reason:
                progress.say(engine.reason)
            _loop(runs, engine, shared, stop, progress)
        except RuntimeError as problem:
            if shared.place.world == 1 or isinstance(problem, torch.cuda.OutOfMemoryError):
                raise
            save(runs, int(runs[0].replica.count))
            raise RunError(
                f"a process of this job was lost ({str(problem).splitlines()[0]}); the state is saved, start it again"
            ) from problem
        return [end(run, engine.mode) for run in runs]


def _loop(runs: list[Run], engine: Engine, shared: Shared, stop: Interruption, progress: Progress) -> None:
    """Advance, look, evaluate, record, save: until the last step."""
    recipe, saved = runs[0].plan.recipe, time.monotonic()
    step = int(runs[0].replica.count)
    every, often = recipe.evaluation.every, shared.how.checkpoint_steps or recipe.steps
    _look(runs, step, progress, shared.how)
    while step < recipe.steps and not all(run.done for run in runs):
        ahead = min(step + LOOK, recipe.steps, *(step + n - step % n for n in (every, often)))
        engine.advance(step, ahead - step)
        step = ahead
        _look(runs, step, progress, shared.how)
        signal = shared.place.agree(stop.requested or 0)
        late = shared.place.agree(int(time.monotonic() - saved > shared.how.checkpoint_seconds))
        if signal or late or (step % often == 0 and step < recipe.steps):
            save(runs, step)
            saved = time.monotonic()
        if signal:
            raise Stopped(128 + signal)


def _look(runs: list[Run], step: int, progress: Progress, how: How) -> None:
    """Look at the runs where an evaluation is due that was not made before an interruption."""
    recipe = runs[0].plan.recipe
    if step % recipe.evaluation.every == 0 or step == recipe.steps:
        for place, run in enumerate(runs):
            if not run.done and step > (run.errors.history[-1][0] if run.errors.history else 0):
                look(run, step, place, progress, how)


@dataclass(frozen=True)
class Result:
    """The runs of one recipe, a seed each."""

    runs: tuple[Trained, ...]

    @property
    def models(self) -> tuple[Model | None, ...]:
        """The trained models, None where a run failed."""
        return tuple(run.model for run in self.runs)

    def errors(self, part: str = "test_error", rule: str | None = None) -> list[float | None]:
        """The error of every run in per cent, by the recipe's rule unless another is named."""
        return [run.result[part][rule or run.plan.recipe.evaluation.rule] for run in self.runs]


def fit(
    recipe: Recipe,
    data: Dataset,
    *,
    labels: int | float | None = None,
    seeds: Iterable[int] = (0,),
    out: Path | str | None = None,
    splits: Sequence[Split] | None = None,
    how: How = How(),
) -> Result:
    """Train a recipe on data, once for every seed, each on its own split; in folders `out/seed-0` … if given.

    Folders that exist are continued, complete ones are only read. `splits` gives a split for every seed instead.
    """
    if labels is not None:
        recipe = replace(recipe, split=replace(recipe.split, labels=labels))
    seeds = list(seeds)
    if splits is not None and len(splits) != len(seeds):
        raise RecipeError(f"there are {len(seeds)} seeds and {len(splits)} splits; give one split for each seed")
    chosen = splits if splits is not None else [make_split(data, recipe.split, seed) for seed in seeds]
    paths = [None if out is None else Path(out) / f"seed-{seed}" for seed in seeds]
    plans = [Plan(recipe, split, seed, path) for split, seed, path in zip(chosen, seeds, paths, strict=True)]
    return Result(tuple(train(plans, data, how)))
