"""Statistics against SciPy and NumPy."""

import math

import numpy as np
import pytest
import scipy.stats

from ns3l.errors import UserError
from ns3l.statistics import compare, finding, paired, select, summarize

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


def test_findings_are_plain():
    assert finding(paired({0: 2.0, 1: 2.1}, {0: 1.0, 1: 1.2})) == "unlabeled data did not help"
    assert finding(paired({0: 1.0, 1: 2.0}, {0: 1.1, 1: 5.0})) == "no clear gain"
    assert finding(paired({0: 1.0, 1: 2.0, 2: 3.0}, {0: 3.0, 1: 4.1, 2: 5.2})) == "lower error"


def test_rules_never_look_at_the_test_error_to_choose():
    test, validation = [9.0, 5.0, 7.0], [3.0, 4.0, 3.0]
    assert [select(test, validation, rule) for rule in ("last", "best_validation", "median_20")] == [7.0, 9.0, 7.0]
    with pytest.raises(UserError, match="best_test"):
        select(test, validation, "best_test")


def test_verdict_is_two_pooled_deviations():
    ours = summarize([10.0, 12.0])
    assert compare(ours, 11.0 + 1.99 * math.sqrt(1.5), 1.0).within
    assert not compare(ours, 11.0 + 2.01 * math.sqrt(1.5), 1.0).within
    assert compare(summarize([10.0]), 11.0, 1.0).within is None
