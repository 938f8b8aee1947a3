"""What a trained model tells of itself, and the comparison with the supervised baseline."""

import math

import numpy as np
import pytest
from sklearn.datasets import make_blobs

from ns3l.data import Dataset
from ns3l.diagnosis import Diagnosis, _diagnosis, _folds, _mean, _supervised, _without
from ns3l.errors import DataError
from ns3l.estimator import SemiSupervisedClassifier
from ns3l.recipes import own


@pytest.fixture(scope="module")
def fitted():
    x, truth = make_blobs(90, 4, centers=3, cluster_std=1.0, random_state=0)
    y = np.where(np.arange(90) % 3 == 0, truth, -1)
    model = SemiSupervisedClassifier("pl+ns3l", steps=30, random_state=0, device="cpu").fit(x, y)
    return model, x, y


def test_behavior_on_the_training_rows_never_judges_by_labels_that_were_trained_on(fitted):
    told = fitted[0].diagnose()
    assert set(told.behavior) == {"ns3l", "pl"}
    assert set(told.behavior["ns3l"]) == {"marked", "rows_without"} and set(told.behavior["pl"]) == {"confident"}
    probability = fitted[0].predict_proba(fitted[1])
    assert told.behavior["ns3l"]["marked"] == pytest.approx((probability < 0.4 / 3).mean(), abs=1e-6)
    assert told.behavior["pl"]["confident"] == pytest.approx((probability.max(1) > 0.95).mean(), abs=1e-6)
    assert "not known" in str(told)


def test_comparison_holds_every_labeled_row_out_once(fitted):
    model, x, y = fitted
    told = model.diagnose(x, y, folds=2)
    assert told.rows == (y >= 0).sum()
    assert told.error - told.supervised_error == pytest.approx(100 * (told.spoiled - told.repaired) / told.rows)
    assert "true_marked" in told.held_out["ns3l"] and "held out" in str(told)
    assert told == model.diagnose(x, y, folds=2)


@pytest.mark.parametrize(
    ("repaired", "spoiled", "p", "word"),
    [(20, 2, 0.001, "helped"), (2, 20, 0.001, "hurt"), (14, 5, 0.06, "too few"), (14, 4, 0.03, "helped")],
)
def test_the_verdict_is_honest(repaired, spoiled, p, word):
    told = Diagnosis("ns3l", {}, {}, 100, 10.0, 20.0, repaired, spoiled, p)
    assert word in told.verdict


def test_a_number_that_no_fold_knows_stays_unknown():
    told = [{"pl": {"confident": 0.5, "wrong": math.nan}}, {"pl": {"confident": 0.0, "wrong": math.nan}}]
    mean = _mean(told)["pl"]
    assert mean["confident"] == 0.25 and math.isnan(mean["wrong"])
    told[0]["pl"]["wrong"] = 0.5
    assert _mean(told)["pl"]["wrong"] == 0.5
    assert "wrong" not in str(Diagnosis("pl", {}, {"pl": {"wrong": math.nan}}))


def test_what_cannot_be_held_out(fitted):
    model, x, y = fitted
    alone = np.where((y == 0) & (np.arange(90) > np.flatnonzero(y == 0)[0]), -1, y)
    with pytest.raises(DataError, match="two of every class"):
        model.diagnose(x, alone)
    with pytest.raises(DataError, match="labels too"):
        model.diagnose(x)


def test_repaired_rows_are_those_that_the_method_alone_got_right():
    right, supervised = np.array([True, True, True, False]), np.array([True, False, False, True])
    told = _diagnosis("ns3l", {}, {}, right, supervised)
    assert (told.error, told.supervised_error, told.repaired, told.spoiled) == (25.0, 50.0, 2, 1)


def test_a_row_that_is_held_out_is_not_trained_on_with_its_label():
    y = np.array([0, 1, 2, -1, -1] * 6)
    data = Dataset("rows", np.arange(60, dtype=np.float32).reshape(30, 2), y, ("a", "b", "c"))
    folds = _folds(data, 0, 3)
    assert sorted(np.concatenate(folds)) == np.flatnonzero(y >= 0).tolist()
    for held in folds:
        split = _without(data, held, 0)
        assert np.bincount(y[held]).tolist() == [2, 2, 2]
        assert not set(split.labeled) & set(held) and set(held) <= set(split.unlabeled)


def test_the_baseline_is_the_same_recipe_without_what_unlabeled_rows_need():
    data = Dataset("rows", np.zeros((4, 2), np.float32), np.array([0, 1, 0, 1]), ("a", "b"))
    recipe = own("mean-teacher", "rows", 2, (2,))
    baseline = _supervised(recipe, data)
    assert recipe.average is not None and baseline.average is None
    assert set(baseline.terms) == {"supervised"} and (baseline.batch.labeled, baseline.batch.unlabeled) == (50, 0)
    assert (baseline.steps, baseline.network, baseline.optimizer) == (recipe.steps, recipe.network, recipe.optimizer)
