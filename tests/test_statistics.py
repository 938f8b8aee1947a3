"""Statistics against SciPy and NumPy."""

import itertools
import math

import numpy as np
import pytest
import scipy.stats

from ns3l.errors import UserError
from ns3l.statistics import compare, finding, paired, pooled_std, select, summarize

OURS = {(0, "a"): 16.1, (1, "b"): 16.9, (2, "c"): 16.0, (3, "d"): 15.2}
BASE = {(0, "a"): 17.0, (1, "b"): 17.3, (2, "c"): 17.9, (4, "e"): 12.0}


def test_summary_is_that_of_numpy_and_scipy():
    values = list(OURS.values())
    made = summarize(values)
    low, high = scipy.stats.t.interval(0.95, 3, np.mean(values), scipy.stats.sem(values))
    assert (made.mean, made.std) == pytest.approx((np.mean(values), np.std(values, ddof=1)))
    assert (made.low, made.high) == pytest.approx((low, high))
    assert math.isnan(summarize([1.0]).std)


def test_pairs_are_matched_by_split_and_tested_as_scipy_does():
    made = paired(OURS, BASE)
    ours, base = [16.1, 16.9, 16.0], [17.0, 17.3, 17.9]
    assert made.difference.n == 3
    assert set(made.unpaired) == {(3, "d"), (4, "e")}
    assert made.p_t == pytest.approx(scipy.stats.ttest_rel(ours, base).pvalue)
    assert made.p_wilcoxon == pytest.approx(scipy.stats.wilcoxon(ours, base).pvalue)


@pytest.mark.parametrize("steps", [[-3, -3], [0, -4], [1, 1, -1, 2, 0, 2, 5, -5], [-1, -2, -3, 4, 5, -6, -7, -8]])
def test_the_signed_rank_test_is_exact_where_sizes_are_equal_too(steps):
    found = paired({seed: step / 8 for seed, step in enumerate(steps)}, dict.fromkeys(range(len(steps)), 0.0))
    signs = itertools.product((1, -1), repeat=len(steps) - steps.count(0))
    ranks = scipy.stats.rankdata([abs(step) for step in steps if step])
    own = sum(rank * np.sign(step) for rank, step in zip(ranks, filter(None, steps), strict=True))
    assert found.p_wilcoxon == np.mean([abs(np.dot(ranks, sign)) >= abs(own) for sign in signs])


def test_the_signed_rank_test_of_many_pairs_takes_no_time():
    ours = {seed: (seed * 37 % 101) / 8 - 6 for seed in range(2000)}
    found, known = paired(ours, dict.fromkeys(ours, 0.0)), [value for value in ours.values() if value]
    assert found.p_wilcoxon == pytest.approx(scipy.stats.wilcoxon(known, method="approx").pvalue)


def test_two_pairs_are_never_significant_by_ranks():
    assert paired({0: 1.0, 1: 2.0}, {0: 2.0, 1: 3.0}).p_wilcoxon == 0.5
    assert paired({0: 1.0, 1: 2.0}, {0: 1.0, 1: 2.0}).p_wilcoxon == 1.0
    assert math.isnan(paired({0: 1.0}, {0: 2.0}).p_wilcoxon)


def test_findings_are_plain():
    assert finding(paired({0: 2.0, 1: 2.1}, {0: 1.0, 1: 1.2})) == "unlabeled data did not help"
    assert finding(paired({0: 1.0, 1: 2.0}, {0: 1.1, 1: 5.0})) == "no clear gain"
    assert finding(paired({0: 1.0, 1: 2.0, 2: 3.0}, {0: 3.0, 1: 4.1, 2: 5.2})) == "lower error"


def test_rules_never_look_at_the_test_error_to_choose():
    test, validation = [9.0, 5.0, 7.0], [3.0, 4.0, 3.0]
    assert [select(test, validation, rule) for rule in ("last", "best_validation", "median_20")] == [7.0, 9.0, 7.0]
    with pytest.raises(UserError, match="best_test"):
        select(test, validation, "best_test")


def test_the_last_twenty_evaluations_and_no_others_enter_their_median():
    test = [50.0] * 15 + [float(place) for place in range(20)]
    assert select(test, None, "median_20") == 9.5
    assert select(test[:18], None, "median_20") == 50.0


def test_without_validation_nothing_is_best_on_it():
    assert select([9.0, 5.0], None, "best_validation") is None
    assert select([9.0, 5.0], [], "best_validation") is None
    assert select([], [], "last") is None
    with pytest.raises(ValueError, match="one validation error per test error, got 1 and 2"):
        select([9.0, 5.0], [1.0], "best_validation")


@pytest.mark.parametrize(
    ("ours", "words"),
    [
        ((2.0, 2.0), "unlabeled data did not help"),
        ((1.9,), "lower error, one split only"),
        ((1.5, 1.5), "lower error, no spread to judge by"),
        ((1.5, 1.6, 1.6, 1.98), "no clear gain"),
        ((1.5, 1.6, 1.6, 1.9), "lower error"),
        ((), "no common split"),
    ],
)
def test_a_finding_never_claims_more_than_the_interval_does(ours, words):
    found = paired(dict(enumerate(ours)), dict.fromkeys(range(len(ours)), 2.0))
    assert finding(found) == words
    assert finding(found, against_supervised=False) == words.replace("unlabeled data did not help", "no gain")


def test_deviations_are_pooled_by_their_degrees_of_freedom():
    assert pooled_std(1.0, 2, 3.0, 10) == pytest.approx(math.sqrt((1 + 9 * 9) / 10))
    assert pooled_std(1.0, 2, 3.0, None) == pytest.approx(math.sqrt(5))


def test_verdict_is_two_pooled_deviations():
    ours = summarize([10.0, 12.0])
    assert compare(ours, 11.0 + 1.99 * math.sqrt(1.5), 1.0).within
    assert not compare(ours, 11.0 + 2.01 * math.sqrt(1.5), 1.0).within
    assert compare(summarize([10.0]), 11.0, 1.0).within is None
