"""Recipes for one's own data: measured defaults that adapt to what the data are."""

from collections.abc import Mapping

from ns3l.augment import Augmentation, Noise, Shift
from ns3l.batch import BatchSize
from ns3l.methods import terms_of
from ns3l.optimize import Adam
from ns3l.preprocess import Standardize
from ns3l.recipe import Averaging, EvaluationPlan, Network, Recipe, Weighted
from ns3l.schedule import Ramp, Schedule
from ns3l.split import SplitRequest

WEIGHTS: Mapping[str, float] = {
    "pi": 20.0,
    "mean-teacher": 8.0,
    "vat": 0.3,
    "entmin": 0.1,
    "ict": 20.0,
    "target-error": 75.0,
}


def own(
    method: str,
    data: str,
    classes: int,
    shape: tuple[int, ...],
    labels: int | float | None = None,
    validation: int | float = 0,
    steps: int = 800,
) -> Recipe:
    """A recipe by the form of the rows: (H, W, C) images or (D,) features."""
    terms, builder = terms_of(method, classes)
    unlabeled = 50 if len(terms) > 1 else 0
    weights: dict[str, float | Schedule] = {
        name: Ramp(WEIGHTS.get(name, 1.0), max(1, steps // 4)) if name != "supervised" else 1.0 for name in terms
    }
    averaged = "mean-teacher" in terms or "ict" in terms
    images = len(shape) == 3
    return Recipe(
        method=method,
        data=data,
        classes=classes,
        terms={name: Weighted(weights[name], term) for name, term in terms.items()},
        builder=builder,
        network=network_for(shape),
        preprocessing=Standardize(),
        augmentation=Augmentation((Shift(1 if min(shape[:2]) < 16 else 2),) if images else (Noise(0.1),)),
        batch=BatchSize(50, unlabeled),
        optimizer=Adam(3e-3),
        steps=steps,
        evaluation=EvaluationPlan(every=max(1, steps // 8), rule="best_validation" if validation else "last"),
        average=Averaging(0.99) if averaged else None,
        statistics="first_interleaved" if builder else "joint",
        split=SplitRequest(labels, validation),
        protocol="own",
    )


def network_for(shape: tuple[int, ...]) -> Network:
    """A network by shape and size: MLP for features, a small convolutional net up to 28 pixels, else WRN-28-2."""
    if len(shape) != 3:
        return Network("mlp")
    return Network("small-conv-net") if max(shape[:2]) <= 28 else Network("wide-resnet")
