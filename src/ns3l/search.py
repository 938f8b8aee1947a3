"""Search for settings (thresholds, weights, learning rates) by Optuna: judged on validation, never on test."""

import math
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ns3l.data.dataset import Dataset
from ns3l.environment import environment
from ns3l.errors import InUseError, RecipeError, RunError, UserError
from ns3l.executors.task import Assignment, reason_of, record_failure
from ns3l.recipe import Recipe
from ns3l.recipes import override
from ns3l.record import Interruption, differences, read_json, write_json
from ns3l.record.files import plain, writing
from ns3l.record.lock import FolderLock, holder
from ns3l.shared import How, Plan
from ns3l.split import make_split
from ns3l.study.description import point_name
from ns3l.train import Stopped, train

if TYPE_CHECKING:
    from optuna import Study as Storage
    from optuna import Trial

DIGITS = 3
"""Significant digits of a number that is tried: enough for a setting, short enough for a folder's name."""


@dataclass(frozen=True)
class Range:
    """Numbers from low to high, drawn evenly or (`log`) evenly in their logarithm."""

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        if not self.low < self.high or (self.log and self.low <= 0):
            raise RecipeError(f"a range needs low < high, and low > 0 where it is logarithmic; got {self}")


Space = Mapping[str, Range | Sequence[Any]]
"""What is searched: path -> range of numbers, or choices."""


@dataclass(frozen=True)
class Tried:
    """One trial: its settings, its mean validation error in per cent, and how it ended."""

    number: int
    values: Mapping[str, Any]
    validation_error: float | None
    status: str
    path: Path


@dataclass(frozen=True)
class SearchResult:
    """All trials of a search; `best` is the complete one with the lowest validation error."""

    trials: tuple[Tried, ...]
    recipe: Recipe

    @property
    def best(self) -> Tried | None:
        """The chosen trial; None where none is complete."""
        judged = [t for t in self.trials if t.status == "complete" and t.validation_error is not None]
        return min(judged, key=lambda t: t.validation_error or 0.0, default=None)

    @property
    def best_recipe(self) -> Recipe:
        """The recipe with the settings of the best trial."""
        if self.best is None:
            raise RunError("no trial is complete, so there is no best recipe; look at the reasons in the run folders")
        return override(self.recipe, self.best.values)

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values."""
        rows = [
            {**t.__dict__, "values": dict(t.values), "path": str(t.path), "best": t is self.best} for t in self.trials
        ]
        return {"method": self.recipe.method, "data": self.recipe.data, "trials": rows}

    def to_text(self) -> str:
        """A table for the terminal, the best trial first."""
        paths = list(self.trials[0].values) if self.trials else []
        lines = [("trial", *paths, "validation error", "status")]
        for trial in sorted(self.trials, key=lambda t: (t.status != "complete", t.validation_error or 0.0, t.number)):
            error = "" if trial.validation_error is None else f"{trial.validation_error:.2f} %"
            status = trial.status + (", best" if trial is self.best else "")
            lines.append((str(trial.number), *(_spoken(trial.values.get(path)) for path in paths), error, status))
        widths = [max(len(line[place]) for line in lines) for place in range(len(lines[0]))]
        told = ("  ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)) for line in lines)
        return "\n".join(line.rstrip() for line in told)


def _spoken(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def parse_range(text: str) -> Range | tuple[str, ...]:
    """`0.01..0.1` is a range, `1e-4..1e-2:log` a logarithmic one, `a,b,c` are choices."""
    if ".." not in text:
        return tuple(part.strip() for part in text.split(","))
    bounds, _, kind = text.partition(":")
    low, _, high = bounds.partition("..")
    try:
        if kind in ("", "log"):
            return Range(float(low), float(high), kind == "log")
    except ValueError as problem:
        if isinstance(problem, RecipeError):
            raise
    raise RecipeError(f"a range is written LOW..HIGH or LOW..HIGH:log, choices A,B,C; got {text!r}")


def usual_space(recipe: Recipe) -> dict[str, Range]:
    """Thresholds from 0.1/K to 0.9/K, weights and learning rate from a tenth to ten times the recipe's."""
    last = recipe.steps
    space = {}
    for name, entry in recipe.terms.items():
        weight = entry.weight if isinstance(entry.weight, int | float) else float(entry.weight(last))
        if name != "supervised" and weight > 0:
            space[f"{name}.weight"] = Range(_round(weight / 10), _round(weight * 10), True)
        if hasattr(getattr(entry.term, "negatives", None), "threshold"):
            space[f"{name}.negatives.threshold"] = Range(_round(0.1 / recipe.classes), _round(0.9 / recipe.classes))
    lr = recipe.optimizer.lr if isinstance(recipe.optimizer.lr, int | float) else float(recipe.optimizer.lr(0))
    return space | {"optimizer.lr": Range(_round(lr / 10), _round(lr * 10), True)}


def _round(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def search(
    recipe: Recipe,
    data: Dataset,
    space: Space | None = None,
    trials: int = 20,
    seeds: Sequence[int] = (0,),
    out: str | os.PathLike[str] = "runs/search",
    *,
    seed: int = 0,
    how: How = How(),
    tell: Callable[[str], None] = print,
) -> SearchResult:
    """Try settings of a recipe: TPE proposes, the median of earlier trials prunes at evaluation points.

    A trial is the mean validation error over `seeds`, by the recipe's rule. The same call continues what was begun, and
    ends as if it had not been interrupted.
    """
    if not recipe.split.validation:
        raise RecipeError("a search is judged on validation rows, never on test: give the recipe split.validation")
    space = dict(usual_space(recipe) if space is None else space)
    root = Path(out).absolute()
    with writing(root):
        root.mkdir(parents=True, exist_ok=True)
    lock = _lock(root)
    try:
        _describe(root, recipe, data, space, seeds, seed)
        return _Search(root, recipe, data, space, tuple(seeds), seed, how, tell).run(trials)
    finally:
        lock.release()


def _lock(root: Path) -> FolderLock:
    try:
        return FolderLock(root)
    except InUseError as problem:
        raise InUseError(f"the search in {root} is being carried out by {holder(root)}; wait or stop it") from problem


def _describe(root: Path, recipe: Recipe, data: Dataset, space: Space, seeds: Sequence[int], seed: int) -> None:
    """Write search.json, or refuse a folder that holds another search."""
    ranges = {path: plain(r.__dict__ if isinstance(r, Range) else list(r)) for path, r in space.items()}
    what = {"recipe": recipe.to_dict(), "data_hash": data.hash, "space": ranges, "seeds": list(seeds), "seed": seed}
    path = root / "search.json"
    if not path.exists():
        write_json(path, {"format": 1, **what, "environment": environment()}, lossy=True)
        return
    stored = read_json(path)
    if found := differences({name: stored.get(name) for name in what}, plain(what)):
        told = "\n  ".join(found[:10])
        raise RunError(f"{root} holds another search:\n  {told}\nGive another folder; nothing was changed.")


@dataclass(frozen=True)
class _Search:
    """What every trial of a search shares."""

    root: Path
    recipe: Recipe
    data: Dataset
    space: Space
    seeds: tuple[int, ...]
    seed: int
    how: How
    tell: Callable[[str], None]

    def run(self, trials: int) -> SearchResult:
        """Trials up to this number; the one that was interrupted is taken up."""
        optuna = _optuna()
        storage = self._storage(optuna)
        with Interruption() as stop:
            while (trial := self._next(optuna, storage, trials)) is not None:
                if stop.requested:
                    raise Stopped(128 + stop.requested)
                self._try(optuna, storage, trial)
        return SearchResult(tuple(self._tried(trial) for trial in storage.trials), self.recipe)

    def _storage(self, optuna: Any) -> "Storage":
        """Trials so far, in a file beside the runs."""
        return optuna.create_study(
            storage=f"sqlite:///{self.root / 'trials.sqlite'}",
            study_name="search",
            direction="minimize",
            pruner=optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=self.recipe.steps // 4),
            load_if_exists=True,
        )

    def _next(self, optuna: Any, storage: "Storage", trials: int) -> "Trial | None":
        """The trial that is under way, else a new one; TPE's draws are a function of seed and number."""
        begun = [trial for trial in storage.trials if trial.state == optuna.trial.TrialState.RUNNING]
        number = begun[0].number if begun else len(storage.trials)
        if number >= trials:
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            storage.sampler = optuna.samplers.TPESampler(seed=self.seed * 1_000_003 + number, multivariate=True)
        return optuna.trial.Trial(storage, begun[0]._trial_id) if begun else storage.ask()

    def _suggest(self, trial: "Trial | _Stored") -> dict[str, Any]:
        values: dict[str, Any] = {}
        for path, choice in self.space.items():
            if isinstance(choice, Range):
                values[path] = _round(trial.suggest_float(path, choice.low, choice.high, log=choice.log))
            else:
                values[path] = choice[trial.suggest_categorical(path, tuple(range(len(choice))))]
        return values

    def _try(self, optuna: Any, storage: "Storage", trial: "Trial") -> None:
        """Train the seeds of a trial one after the other; its state is stored when it ended."""
        states = optuna.trial.TrialState
        values = self._suggest(trial)
        folder = self.root / point_name(values)
        try:
            varied = override(self.recipe, values)
            errors = [self._train(optuna, trial, place, varied, folder) for place in range(len(self.seeds))]
            storage.tell(trial, sum(errors) / len(errors))
            self.tell(f"trial {trial.number}: validation error {sum(errors) / len(errors):.2f} % with {values}")
        except Stopped:
            raise
        except optuna.TrialPruned as reason:
            storage.tell(trial, state=states.PRUNED)
            self.tell(f"trial {trial.number}: {reason} with {values}")
        except Exception as problem:
            storage.tell(trial, state=states.FAIL)
            self.tell(f"trial {trial.number}: failed with {values}: {reason_of(problem)}")

    def _train(self, optuna: Any, trial: "Trial", place: int, recipe: Recipe, folder: Path) -> float:
        """One seed; pruned where its errors so far are above the median of earlier trials at the same point."""
        seed = self.seeds[place]
        split = make_split(self.data, recipe.split, seed)
        plan = Plan(recipe, split, seed, folder / f"seed-{seed}")

        def watch(_: Plan, metrics: dict[str, Any]) -> bool:
            point = place * recipe.steps + metrics["step"]
            known = _points(trial)
            if metrics.get("validation_error") is not None and point not in known:
                trial.report(metrics["validation_error"], point)
            if trial.should_prune():
                raise optuna.TrialPruned(f"pruned at step {metrics['step']}, above the median of earlier trials")
            return self.how.watch is not None and self.how.watch(plan, metrics)

        try:
            (done,) = train([plan], self.data, replace(self.how, watch=watch))
        except Stopped:
            raise
        except Exception as problem:
            reason = str(problem) if isinstance(problem, optuna.TrialPruned) else reason_of(problem)
            record_failure(Assignment(recipe, seed, folder / f"seed-{seed}"), reason, split.to_dict())
            raise
        error = (done.result.get("validation_error") or {}).get(recipe.evaluation.rule)
        if done.result["status"] != "complete" or error is None or not math.isfinite(error):
            raise RunError(read_json(folder / f"seed-{seed}" / "result.json").get("reason") or "no validation error")
        return float(error)

    def _tried(self, trial: Any) -> Tried:
        states = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}
        values = self._suggest(_Stored(trial.params))
        path = self.root / point_name(values)
        last = trial.intermediate_values[max(trial.intermediate_values)] if trial.intermediate_values else None
        error = trial.value if trial.state.name == "COMPLETE" else last
        return Tried(trial.number, values, error, states.get(trial.state.name, "running"), path)


@dataclass(frozen=True)
class _Stored:
    """The parameters of a trial that ended, asked for as a running one is asked."""

    params: Mapping[str, Any]

    def suggest_float(self, name: str, low: float, high: float, log: bool) -> float:  # noqa: ARG002
        return float(self.params[name])

    def suggest_categorical(self, name: str, choices: Sequence[int]) -> int:  # noqa: ARG002
        return int(self.params[name])


def _points(trial: "Trial") -> set[int]:
    """The points at which a trial has reported; a run that is continued may pass one again."""
    return set(trial.study.trials[trial.number].intermediate_values)


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as problem:
        raise UserError("a search needs the package optuna; install it with: pip install ns3l[search]") from problem
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
