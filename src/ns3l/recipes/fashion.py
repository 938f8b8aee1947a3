"""Recipes on Fashion-MNIST: the paper's appendix, which compares ways to choose negatives."""

from collections.abc import Mapping
from dataclasses import replace

from ns3l.augment import Augmentation
from ns3l.batch import BatchSize
from ns3l.methods import terms_of
from ns3l.negatives import Threshold
from ns3l.objective import Term
from ns3l.optimize import Adam
from ns3l.preprocess import Scale
from ns3l.recipe import Averaging, EvaluationPlan, Network, Recipe, Weighted
from ns3l.recipes.realistic import BENCHMARKS, WEIGHTS
from ns3l.schedule import Ramp, Schedule
from ns3l.split import SplitRequest
from ns3l.terms.negative_sampling import NegativeSampling
from ns3l.terms.vat import VirtualAdversarial

PROTOCOL = "paper, Appendix B (Fashion-MNIST)"
LABELS, POOL = 2_000, 58_000
EPOCH = POOL // 50
"""Steps in which the unlabeled half of a batch goes once over the pool."""
EPOCHS = 50
APPENDIX, OURS = "paper, Appendix B", "our choice"


def fashion(method: str, labels: int | float | None = None, threshold: float | None = None) -> Recipe:
    """A method on Fashion-MNIST with a small network; a `threshold` for NS3L's in place of 0.4/K."""
    terms, builder = terms_of(method, 10)
    return Recipe(
        method=method,
        data="fashion-mnist",
        classes=10,
        terms={name: Weighted(_weight(name), _tuned(term, threshold)) for name, term in terms.items()},
        builder=builder,
        network=Network("small-conv-net", {"width": 16}),
        preprocessing=Scale(),
        augmentation=Augmentation(()),
        batch=BatchSize(50, 50 if len(terms) > 1 else 0),
        optimizer=Adam(1e-3),
        steps=EPOCHS * EPOCH,
        evaluation=EvaluationPlan(EPOCH, "student", "last"),
        average=Averaging(0.99) if {"mean-teacher", "ict"} & set(terms) else None,
        statistics="first_interleaved" if "mixmatch" in terms else "joint",
        split=SplitRequest(LABELS if labels is None else labels, labeled_in_pool=False),
        protocol=PROTOCOL,
        sources=_sources(terms),
    )


def _weight(name: str) -> float | Schedule:
    """As in the realistic evaluation, ramped over a quarter of all steps."""
    value = {**WEIGHTS, "ict": 20.0, "mixmatch": 75.0}.get(name, 1.0)
    return 1.0 if name == "supervised" else Ramp(value, EPOCHS * EPOCH // 4)


def _tuned(term: Term, threshold: float | None) -> Term:
    if isinstance(term, VirtualAdversarial):
        return replace(term, eps=BENCHMARKS["svhn"].eps)  # images scaled alike
    if threshold is None or not isinstance(term, NegativeSampling) or not isinstance(term.negatives, Threshold):
        return term
    return replace(term, negatives=Threshold(threshold))


def _sources(terms: Mapping[str, Term]) -> dict[str, str]:
    """Where each number comes from, by path; a path stands for all below it."""
    sources = {
        "network": f"{APPENDIX}: a small network; {OURS}: this one, of 24,000 weights, for the sake of CPUs",
        "preprocessing": OURS,
        "augmentation": f"{OURS}: none, the paper names none",
        "batch": f"{OURS}: 50 labeled rows in every row of the table",
        "optimizer": f"{OURS}: the paper does not say",
        "steps": f"{APPENDIX}: 50 epochs; {OURS}: an epoch is 58,000/50 steps",
        "evaluation": f"{APPENDIX}: at the end of training",
        "evaluation.every": f"{OURS}: every epoch",
        "statistics": OURS,
        "split": APPENDIX,
        "split.balance": OURS,
    }
    sources |= {name: APPENDIX if name in ("supervised", "ns3l") else OURS for name in terms}
    return sources | {f"{name}.weight": OURS for name in terms if name != "supervised"}
