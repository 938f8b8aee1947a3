"""What a trained model tells of its negatives and pseudo-labels, and whether unlabeled rows helped."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from ns3l.batch import Batch, BatchSize
from ns3l.data.dataset import Dataset
from ns3l.draw import Draw
from ns3l.errors import DataError, RunError
from ns3l.model import Model
from ns3l.objective import Forward
from ns3l.passes import SECOND
from ns3l.recipe import Recipe, Weighted
from ns3l.recipes.own import own
from ns3l.shared import How
from ns3l.split import Split
from ns3l.train import fit

Behavior = dict[str, dict[str, float]]
SCORED = {"unlabeled", SECOND[1]}
SAYS: Mapping[str, str] = {
    "marked": "{:.0%} of all (row, class) pairs are marked as negative",
    "rows_without": "{:.0%} of the rows have no negative",
    "true_marked": "{:.1%} of the held-out rows have their true class marked",
    "confident": "{:.0%} of the rows get a pseudo-label",
    "wrong": "{:.1%} of the pseudo-labels of held-out rows are wrong",
}
NEEDS_TRUTH = {"true_marked", "wrong"}


@dataclass(frozen=True)
class Diagnosis:
    """How a method behaved; errors are in per cent of the `rows` held-out labeled rows.

    `repaired` and `spoiled` count the held-out rows that only the method, or only the supervised baseline, got right;
    `p_value` is the two-sided sign test on them. None where no comparison was asked for.
    """

    method: str
    behavior: Behavior
    held_out: Behavior = field(default_factory=dict)
    rows: int = 0
    error: float | None = None
    supervised_error: float | None = None
    repaired: int = 0
    spoiled: int = 0
    p_value: float | None = None

    @property
    def verdict(self) -> str:
        """Whether unlabeled rows helped, in words."""
        if self.error is None or self.supervised_error is None or self.p_value is None:
            return (
                "Whether the unlabeled rows helped is not known: give diagnose(X, y) the training data, and the "
                "supervised baseline is trained beside the method."
            )
        told = (
            f"On {self.rows} held-out labeled rows {self.method} errs on {self.error:.1f} %, the supervised baseline "
            f"on {self.supervised_error:.1f} % ({self.repaired} rows repaired, {self.spoiled} spoiled, "
            f"p = {self.p_value:.2g})"
        )
        if self.p_value > 0.05:
            return f"{told}: too few to tell whether the unlabeled rows helped."
        return f"{told}: the unlabeled rows {'helped' if self.repaired > self.spoiled else 'hurt'}."

    def __str__(self) -> str:
        """A paragraph for people."""
        lines = [f"Method: {self.method}"]
        lines += _said(self.behavior, "over the training rows")
        lines += _said(
            {name: {k: v for k, v in told.items() if k in NEEDS_TRUTH} for name, told in self.held_out.items()},
            "while held out",
        )
        return "\n".join([*lines, self.verdict])


def _said(behavior: Behavior, where: str) -> list[str]:
    return [
        f"  {name}: {SAYS[key].format(value)} ({where})"
        for name, told in behavior.items()
        for key, value in told.items()
        if key in SAYS and value == value
    ]


def behavior(model: Model, x: np.ndarray, truth: np.ndarray | None = None) -> Behavior:
    """What each term that looks at plain predictions tells of a model on some rows; truth only where held out."""
    logits = model.logits(x)
    known = {} if truth is None else {"unlabeled": torch.as_tensor(truth)}
    batch = Batch({"unlabeled": logits[:0]}, {}, truth=known)
    fwd = Forward(batch, dict.fromkeys(SCORED, logits), Draw(0))
    told: Behavior = {}
    for name, entry in model.recipe.terms.items():
        if set(entry.term.reads) <= SCORED and not entry.term.needs:
            found = {key: float(value) for key, value in entry.term.diagnose(fwd).items()}
            kept = {key: value for key, value in found.items() if truth is not None or key not in NEEDS_TRUTH}
            told |= {name: kept} if kept else {}
    return told


def compared(recipe: Recipe, data: Dataset, seed: int, how: How, folds: int, before: Behavior) -> Diagnosis:
    """The method and its supervised baseline, by cross-validation over the labeled rows."""
    baseline = _supervised(recipe, data)
    hits: dict[str, list[np.ndarray]] = {"method": [], "supervised": []}
    told: list[Behavior] = []
    for held in _folds(data, seed, folds):
        split = _without(data, held, seed)
        for name, one in (("method", recipe), ("supervised", baseline)):
            model = fit(one, data, seeds=[seed], splits=[split], how=how).models[0]
            if model is None:
                raise RunError(f"the {name} run stopped because its numbers were no longer finite: lower learning_rate")
            hits[name].append(model.logits(data.x[held]).argmax(1).numpy() == data.y[held])
            if name == "method":
                told.append(behavior(model, data.x[held], data.y[held]))
    return _diagnosis(recipe.method, before, _mean(told), *(np.concatenate(hits[name]) for name in hits))


def _diagnosis(
    method: str, before: Behavior, held_out: Behavior, right: np.ndarray, supervised: np.ndarray
) -> Diagnosis:
    from scipy.stats import binomtest

    repaired, spoiled = int((right & ~supervised).sum()), int((supervised & ~right).sum())
    p_value = binomtest(repaired, repaired + spoiled).pvalue if repaired + spoiled else 1.0
    return Diagnosis(
        method,
        before,
        held_out,
        len(right),
        100 * float(1 - right.mean()),
        100 * float(1 - supervised.mean()),
        repaired,
        spoiled,
        float(p_value),
    )


def _supervised(recipe: Recipe, data: Dataset) -> Recipe:
    """The same recipe with the supervised term alone."""
    alone = own("supervised", data.name, recipe.classes, tuple(data.x.shape[1:]))
    terms: dict[str, Weighted] = alone.terms
    return replace(
        recipe,
        method="supervised",
        terms=terms,
        builder=None,
        statistics="joint",
        batch=BatchSize(recipe.batch.labeled, 0),
        average=None,
        evaluation=replace(recipe.evaluation, rule="last", patience=None, weights="student"),
    )


def _folds(data: Dataset, seed: int, folds: int) -> list[np.ndarray]:
    """Labeled rows to hold out, in class proportion; of every class some label stays."""
    known = np.flatnonzero(data.y >= 0)
    counts = np.bincount(data.y[known], minlength=len(data.classes))
    folds = min(folds, int(counts.min()))
    if folds < 2:
        raise DataError(
            f"holding labeled rows out needs two of every class and folds >= 2; class "
            f'"{data.classes[counts.argmin()]}" has {counts.min()}'
        )
    order = np.random.Generator(np.random.Philox(seed)).permutation(known)
    order = order[np.argsort(data.y[order], kind="stable")]
    return [np.sort(order[fold::folds]) for fold in range(folds)]


def _without(data: Dataset, held: np.ndarray, seed: int) -> Split:
    """All rows for training, those held out as unlabeled ones."""
    labeled = np.setdiff1d(np.flatnonzero(data.y >= 0), held)
    return Split(labeled, np.arange(data.pool_size), np.empty(0, np.int64), seed, data.hash)


def _mean(told: list[Behavior]) -> Behavior:
    """The mean of every number over the folds that know it; NaN where none does."""
    return {
        name: {key: _known_mean([one[name][key] for one in told]) for key in numbers}
        for name, numbers in told[0].items()
    }


def _known_mean(values: list[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan
