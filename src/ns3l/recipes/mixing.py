"""Recipes of the MixMatch protocol (Berthelot et al. 2019), as the paper runs them: its MixMatch tables."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ns3l.augment import Augmentation, Flip, Shift
from ns3l.batch import BatchSize
from ns3l.errors import RecipeError
from ns3l.methods import terms_of
from ns3l.mixmatch import MixMatch, Mixup
from ns3l.negatives import Threshold
from ns3l.objective import Builder, Term
from ns3l.optimize import Adam
from ns3l.preprocess import Scale
from ns3l.recipe import Averaging, EvaluationPlan, Network, Recipe, Weighted
from ns3l.schedule import LinearRamp, Schedule
from ns3l.split import SplitRequest
from ns3l.terms.interpolation import InterpolationConsistency
from ns3l.terms.negative_sampling import NegativeSampling

PROTOCOL = "MixMatch (Berthelot et al. 2019)"
STEPS, RAMP = 1_048_576, 16_384
ICT_RAMP = 0.4
"""The share of all steps over which ICT's weight ramps."""
BERTHELOT, PAPER, OURS = "Berthelot et al. 2019, released settings", "paper, Results", "our choice"


@dataclass(frozen=True)
class Benchmark:
    """What the protocol does with a data set; `ns3l` are the paper's weights by labels, the last for any other."""

    classes: int
    labels: int
    validation: int
    augmentation: Augmentation
    error: float
    ns3l: Mapping[int | None, float]
    mixup: float = 0.75
    ict: tuple[float, float] = (0.75, 1000.0)
    groups: int = 3
    steps: int = STEPS
    folds: bool = False


CIFAR_STEPS = Augmentation((Flip(), Shift(4)))
BENCHMARKS: Mapping[str, Benchmark] = {
    "cifar10": Benchmark(10, 4_000, 5_000, CIFAR_STEPS, error=75.0, ns3l={250: 5.0, None: 10.0}),
    "svhn": Benchmark(
        10, 1_000, 7_325, Augmentation((Shift(4),)), error=250.0, ns3l={None: 2.0}, mixup=0.25, ict=(0.5, 20.0)
    ),
    "stl10": Benchmark(
        10,
        1_000,
        0,
        Augmentation((Flip(), Shift(12))),
        error=50.0,
        ns3l={None: 2.0},
        groups=4,
        steps=STEPS // 8,
        folds=True,
    ),
    "cifar100": Benchmark(100, 10_000, 5_000, CIFAR_STEPS, error=75.0, ns3l={None: 10.0}),
}
PARTS = ("supervised", "mixup", "mixmatch", "ict", "ns3l")
"""The terms for which the protocol has settings, by name."""


def mixing(method: str, data: str = "cifar10", labels: int | float | None = None) -> Recipe:
    """MixMatch, mixup, ICT, each with or without NS3L, or supervised only; `labels` are the paper's unless given."""
    benchmark = _benchmark(data)
    labels = benchmark.labels if labels is None else labels
    terms, builder = terms_of(method, benchmark.classes)
    if set(terms) - set(PARTS):
        told = ", ".join(sorted(set(terms) - set(PARTS)))
        raise RecipeError(f"the MixMatch protocol has no settings for {told}: take protocol='A'")
    return Recipe(
        method=method,
        data=data,
        classes=benchmark.classes,
        terms={n: Weighted(_weight(n, benchmark, labels), _tuned(t, benchmark)) for n, t in terms.items()},
        builder=_builder(builder, benchmark),
        network=_network(benchmark),
        preprocessing=Scale(),
        augmentation=benchmark.augmentation,
        batch=BatchSize(64, 64 if len(terms) > 1 else 0),
        optimizer=Adam(0.002, weight_decay=0.02),
        steps=benchmark.steps,
        evaluation=EvaluationPlan(1024, "average", "median_20"),
        average=Averaging(0.999, "copy"),
        statistics="first_interleaved" if isinstance(builder, MixMatch) else "joint",
        split=_split(benchmark, labels),
        protocol=PROTOCOL,
        sources=_sources(data, terms),
    )


def _benchmark(data: str) -> Benchmark:
    if data not in BENCHMARKS:
        near = difflib.get_close_matches(data, BENCHMARKS, 1)
        advice = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(BENCHMARKS)}"
        raise RecipeError(f"the MixMatch protocol has no settings for the data {data!r}; {advice}")
    return BENCHMARKS[data]


def _weight(name: str, benchmark: Benchmark, labels: int | float) -> float | Schedule:
    if name == "mixmatch":
        return LinearRamp(benchmark.error, RAMP)
    if name == "ict":
        return LinearRamp(benchmark.ict[1], round(ICT_RAMP * benchmark.steps))
    if name == "ns3l":
        return benchmark.ns3l.get(labels if isinstance(labels, int) else None, benchmark.ns3l[None])
    return 1.0


def _tuned(term: Term, benchmark: Benchmark) -> Term:
    if isinstance(term, InterpolationConsistency):
        return replace(term, alpha=benchmark.ict[0])
    if isinstance(term, NegativeSampling) and isinstance(term.negatives, Threshold):
        return replace(term, negatives=Threshold(0.5 / benchmark.classes))
    return term


def _builder(builder: Builder | None, benchmark: Benchmark) -> Builder | None:
    return replace(builder, alpha=benchmark.mixup) if isinstance(builder, Mixup) else builder


def _network(benchmark: Benchmark) -> Network:
    return Network("wide-resnet", {"depth": 28, "width": 2, "bias": True, "groups": benchmark.groups})


def _split(benchmark: Benchmark, labels: int | float) -> SplitRequest:
    """In class proportion; where there are official folds of so many labels, seed s takes fold s."""
    request = SplitRequest(labels, benchmark.validation, "stratified", labeled_in_pool=False)
    return replace(request, fold="seed") if benchmark.folds and labels == benchmark.labels else request


def _sources(data: str, terms: Mapping[str, Term]) -> dict[str, str]:
    """Where each number comes from, by path; a path stands for all below it."""
    sources = {
        "builder": f"{PAPER}, {BERTHELOT}",
        "network": BERTHELOT,
        "preprocessing": BERTHELOT,
        "augmentation": BERTHELOT,
        "batch": BERTHELOT,
        "optimizer": BERTHELOT,
        "steps": f"{OURS}: an eighth; the paper trained fewer epochs on STL-10 and does not say how many"
        if data == "stl10"
        else BERTHELOT,
        "evaluation": BERTHELOT,
        "average": BERTHELOT,
        "statistics": BERTHELOT,
        "split": BERTHELOT,
        "split.labels": PAPER,
        "split.validation": f"{OURS}: the protocol keeps one image" if data == "stl10" else "paper, Experimental Setup",
        "supervised": BERTHELOT,
        "mixmatch": BERTHELOT,
        "mixmatch.weight": f"{PAPER}, {BERTHELOT}",
        "ict": BERTHELOT,
        "mixup": f"{OURS}: labeled and unlabeled part alike",
        "ns3l": PAPER,
        "ns3l.weight": f"{PAPER}; {OURS}: not ramped",
    }
    if "mixmatch" not in terms:
        sources |= dict.fromkeys(("ns3l", "ns3l.weight"), f"{OURS}: as beside MixMatch")
    if data == "cifar100":
        sources |= dict.fromkeys(("mixmatch.weight", "ict", "ns3l", "ns3l.weight"), f"{OURS}: CIFAR-10's")
    absent = set(PARTS) - set(terms)
    return {path: source for path, source in sources.items() if path.split(".")[0] not in absent}
