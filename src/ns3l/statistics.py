"""Means, spreads, selection rules and paired comparisons: how a number in a report was made."""

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

from ns3l.errors import UserError

__all__ = [
    "RULES",
    "Comparison",
    "Paired",
    "Summary",
    "compare",
    "finding",
    "missing_seeds",
    "paired",
    "pooled_std",
    "select",
    "summarize",
]

RULES: dict[str, str] = {
    "last": "the last evaluation",
    "best_validation": "the evaluation with the lowest validation error",
    "median_20": "the median of the last 20 evaluations, or of all where there are fewer",
}
"""The selection rules, by name. None of them looks at the test error to choose."""

_MEDIAN_SPAN = 20
_NOISE_DIGITS = 9
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Summary:
    """n values: mean, sample standard deviation (n - 1) and the t interval of the mean; NaN where n is too small."""

    n: int
    mean: float
    std: float
    low: float
    high: float


@dataclass(frozen=True)
class Paired:
    """Differences (method minus baseline) on the same splits: their summary and two tests of "no difference"."""

    difference: Summary
    p_t: float
    p_wilcoxon: float
    unpaired: tuple[Hashable, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """Our mean beside a published one; `within` says whether they differ by at most 2 pooled standard deviations."""

    difference: float
    pooled: float
    within: bool | None


def summarize(values: Sequence[float], confidence: float = 0.95) -> Summary:
    """Mean, sample standard deviation and t interval of some values."""
    n = len(values)
    mean = math.fsum(values) / n if n else math.nan
    if n < 2:
        return Summary(n, mean, math.nan, math.nan, math.nan)
    std = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1))
    half = _t_quantile(confidence, n - 1) * std / math.sqrt(n)
    return Summary(n, mean, std, mean - half, mean + half)


def _t_quantile(confidence: float, degrees: int) -> float:
    """The two-sided quantile of Student's t distribution."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, 0.5 + confidence / 2))


def select(test: Sequence[float], validation: Sequence[float] | None, rule: str) -> float | None:
    """The test error that a rule takes from the evaluations of one run; None where the rule cannot be followed.

    `validation` is aligned with `test`; of several equally low validation errors the first counts.
    """
    check_rule(rule)
    if not test:
        return None
    if rule == "last":
        return test[-1]
    if rule == "median_20":
        return median(test[-_MEDIAN_SPAN:])
    if not validation:
        return None
    if len(validation) != len(test):
        raise ValueError(
            f"expected one validation error per test error, got {len(validation)} and {len(test)}; "
            "pass the errors of the same evaluations"
        )
    return test[min(range(len(test)), key=lambda index: validation[index])]


def check_rule(rule: str) -> None:
    """Refuse a selection rule that does not exist."""
    if rule not in RULES:
        raise UserError(f"expected a selection rule out of {', '.join(RULES)}, got {rule!r}; choose one of these")


def paired(ours: Mapping[Key, float], baseline: Mapping[Key, float], confidence: float = 0.95) -> Paired:
    """Compare two methods split by split: keys name the split (seed and split hash), values are errors.

    Keys that only one side has are left out and named in `unpaired`.
    """
    both = [key for key in ours if key in baseline]
    alone = tuple(key for key in (*ours, *baseline) if (key in ours) != (key in baseline))
    differences = [round(ours[key] - baseline[key], _NOISE_DIGITS) for key in both]
    return Paired(summarize(differences, confidence), _t_test(differences), _wilcoxon(differences), alone)


def _t_test(differences: Sequence[float]) -> float:
    """The two-sided paired t-test; NaN under two pairs and where the differences do not vary."""
    summary = summarize(differences)
    if summary.n < 2 or not summary.std:
        return math.nan
    from scipy.special import stdtr

    t = summary.mean / (summary.std / math.sqrt(summary.n))
    return float(2 * stdtr(summary.n - 1, -abs(t)))


def _wilcoxon(differences: Sequence[float]) -> float:
    """The two-sided signed-rank test; zeros are left out. NaN under two pairs.

    Up to 50 pairs it is exact with equal sizes too, which SciPy's is not; beyond that SciPy's approximation is close.
    """
    if len(differences) < 2:
        return math.nan
    from scipy.stats import rankdata, wilcoxon

    changed = [value for value in differences if value]
    if len(changed) > 50:
        return float(wilcoxon(changed, method="approx").pvalue)
    ranks = [round(2 * rank) for rank in rankdata([abs(value) for value in changed])]  # whole, as equal ones share one
    found = abs(sum(int(math.copysign(rank, value)) for rank, value in zip(ranks, changed, strict=True)))
    ways = Counter({0: 1})
    for rank in ranks:
        ways = Counter({total + rank: count for total, count in ways.items()}) + Counter(
            {total - rank: count for total, count in ways.items()}
        )
    return sum(count for total, count in ways.items() if abs(total) >= found) / 2 ** len(ranks)


def missing_seeds(seeds: Sequence[int], expected: Sequence[int]) -> tuple[int, ...]:
    """The seeds that were expected and are not there."""
    return tuple(sorted(set(expected) - set(seeds)))


def finding(comparison: Paired, against_supervised: bool = True) -> str:
    """In words, whether a method did better than its baseline; lower errors are better."""
    gain = comparison.difference
    if gain.n == 0:
        return "no common split"
    if gain.mean >= 0:
        return "unlabeled data did not help" if against_supervised else "no gain"
    if gain.n < 2:
        return "lower error, one split only"
    if not gain.std:
        return "lower error, no spread to judge by"
    return "no clear gain" if gain.high >= 0 else "lower error"


def pooled_std(std_a: float, n_a: int | None, std_b: float, n_b: int | None) -> float:
    """The pooled standard deviation; where a count is unknown, both sides weigh the same."""
    if n_a is None or n_b is None:
        return math.sqrt((std_a**2 + std_b**2) / 2)
    return math.sqrt(((n_a - 1) * std_a**2 + (n_b - 1) * std_b**2) / (n_a + n_b - 2))


def compare(ours: Summary, mean: float, std: float, n: int | None = None) -> Comparison:
    """Our summary beside a published mean and standard deviation; no verdict under two values of ours."""
    difference = ours.mean - mean
    if ours.n < 2:
        return Comparison(difference, math.nan, None)
    pooled = pooled_std(ours.std, ours.n, std, n)
    return Comparison(difference, pooled, abs(difference) <= 2 * pooled)
