"""The demo: its splits, its verdict, and one short pass over all of it."""

import numpy as np
import pytest

from ns3l import demo as module
from ns3l.demo import METHODS, Demo, demo, few_labels
from ns3l.errors import UserError


def test_splits_are_those_of_the_published_numbers():
    from sklearn.svm import SVC

    errors = []
    for seed in range(5):
        data, split = few_labels("digits", seed)
        split.check(data)
        assert len(split.labeled) == 30 and np.bincount(data.y[split.labeled]).tolist() == [3] * 10
        assert (len(data.x), len(data.x_test), len(split.unlabeled)) == (1400, 397, 1400)
        model = SVC(C=10).fit(data.x[split.labeled].reshape(30, 64) / 255, data.y[split.labeled])
        errors.append(100 * (model.predict(data.x_test.reshape(-1, 64) / 255) != data.y_test).mean())
    assert np.mean(errors) == pytest.approx(17.8, abs=0.15)


def test_a_short_pass_over_all_of_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(module, "QUICK_STEPS", 4)
    found = demo(tmp_path, seeds=2, quick=True, processes=1)
    told = capsys.readouterr().out
    assert list(found.errors) == list(METHODS) and all(sorted(e) == [0, 1] for e in found.errors.values())
    assert found.report.stat().st_size > 10_000 and found.picture.stat().st_size > 10_000
    assert "report.html" in told and "±" in told and "beat" in told
    again = demo(tmp_path, seeds=2, quick=True, processes=1)
    assert again.errors == found.errors and again.seconds < found.seconds


@pytest.mark.parametrize(("ns3l", "words"), [(10.0, "ns3l beat"), (30.0, "ns3l did NOT beat")])
def test_the_verdict_is_honest(tmp_path, ns3l, words):
    errors = {"supervised": {0: 20.0, 1: 21.0}, "ns3l": {0: ns3l, 1: ns3l}, "vat+ns3l": {0: 5.0, 1: 25.0}}
    verdict = Demo(errors, tmp_path, tmp_path, tmp_path, 1.0).verdict
    assert verdict.startswith(words) and "vat+ns3l did NOT beat the supervised baseline: lower on 1 of 2" in verdict
    assert f"{abs(ns3l - 20.5):.1f} points {'lower' if ns3l < 20 else 'higher'} in the mean" in verdict


def test_wrong_use_is_told_before_any_process_starts(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_done", None)
    with pytest.raises(UserError, match="digits and fashion-mnist"):
        demo(tmp_path, data="cifar10")
    (tmp_path / "notes.txt").touch()
    with pytest.raises(UserError, match=r"notes.txt is a file"):
        demo(tmp_path / "notes.txt" / "demo")


def test_wrong_use(tmp_path):
    with pytest.raises(UserError, match="2 or more"):
        demo(tmp_path, seeds=1)
    with pytest.raises(UserError, match="fashion-mnist"):
        few_labels("cifar10", 0)
