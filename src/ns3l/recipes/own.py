"""Recipes for one's own data: measured defaults that adapt to what the data are."""

from collections.abc import Mapping
from dataclasses import replace

from ns3l.augment import Augmentation, Noise, Shift
from ns3l.batch import BatchSize
from ns3l.methods import terms_of
from ns3l.objective import Builder, Objective, Statistics, Term
from ns3l.optimize import Adam
from ns3l.preprocess import Standardize
from ns3l.recipe import Averaging, EvaluationPlan, Network, Recipe, Weighted
from ns3l.schedule import Ramp, Schedule
from ns3l.split import SplitRequest
from ns3l.terms.vat import VirtualAdversarial

WEIGHTS: Mapping[str, float] = {
    "pi": 20.0,
    "mean-teacher": 8.0,
    "vat": 1.0,
    "entmin": 0.1,
    "ict": 20.0,
    "target-error": 75.0,
}
"""Of terms whose weight is not 1."""
STEPS = 400
EVALUATIONS = 8
EPS_PER_ROOT = 0.2
"""VAT's perturbation of standardised rows of D values: this times the square root of D."""


def own(
    method: str | Objective,
    data: str,
    classes: int,
    shape: tuple[int, ...],
    labels: int | float | None = None,
    validation: int | float = 0,
    steps: int = STEPS,
) -> Recipe:
    """A recipe by the form of the rows, (H, W, C) images or (D,) features; a method by name or one's own objective."""
    terms, builder, statistics = _parts(method, classes, shape, max(1, steps // 4))
    objective = Objective(builder, statistics, **{name: (entry.weight, entry.term) for name, entry in terms.items()})
    reads_unlabeled = builder is not None or any("unlabeled" in view for view in objective.reads)
    return Recipe(
        method=method if isinstance(method, str) else "+".join(terms),
        data=data,
        classes=classes,
        terms=terms,
        builder=builder,
        network=network_for(shape),
        preprocessing=Standardize("auto" if len(shape) == 1 else "feature"),
        augmentation=augmentation_for(shape),
        batch=BatchSize(50, 50 if reads_unlabeled else 0),
        optimizer=Adam(3e-3),
        steps=steps,
        evaluation=EvaluationPlan(every=max(1, steps // EVALUATIONS), rule="best_validation" if validation else "last"),
        average=Averaging(0.99) if objective.needs_average else None,
        statistics=statistics,
        split=SplitRequest(labels, validation),
        protocol="own",
    )


def _parts(
    method: str | Objective, classes: int, shape: tuple[int, ...], ramp: int
) -> tuple[dict[str, Weighted], Builder | None, Statistics]:
    """Weighted terms, builder and batch-norm policy."""
    if isinstance(method, Objective):
        terms = {name: Weighted(method.weights[name], term) for name, term in method.terms.items()}
        return terms, method.build, method.statistics
    named, builder = terms_of(method, classes)
    terms = {name: Weighted(_weight(name, ramp), _fitted(term, shape)) for name, term in named.items()}
    return terms, builder, "first_interleaved" if builder else "joint"


def _weight(name: str, ramp: int) -> float | Schedule:
    return 1.0 if name == "supervised" else Ramp(WEIGHTS.get(name, 1.0), ramp)


def _fitted(term: Term, shape: tuple[int, ...]) -> Term:
    """A term with what depends on the size of a row."""
    if not isinstance(term, VirtualAdversarial):
        return term
    size = 1
    for side in shape:
        size *= side
    return replace(term, eps=round(EPS_PER_ROOT * size**0.5, 3))


def network_for(shape: tuple[int, ...]) -> Network:
    """A network by shape and size: MLP for features, a small convolutional net up to 28 pixels, else WRN-28-2."""
    if len(shape) != 3:
        return Network("mlp", {"hidden": [128, 128]})
    return Network("small-conv-net", {"pool": True}) if max(shape[:2]) <= 28 else Network("wide-resnet")


def augmentation_for(shape: tuple[int, ...]) -> Augmentation:
    """Noise for features, shifts for images."""
    if len(shape) != 3:
        return Augmentation((Noise(0.3),))
    return Augmentation((Shift(1 if min(shape[:2]) < 16 else 2),)) if min(shape[:2]) > 2 else Augmentation()
