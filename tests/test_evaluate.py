"""Evaluation against scikit-learn and against loops written differently; what it must leave untouched."""

import json
import math
import statistics

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as reference
from torch import nn

from ns3l.evaluate import BINS, Errors, evaluate, logits_of, median_of_last, selected


def example(rows=200, classes=7, seed=0, scale=2.0):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, classes, generator=generator, dtype=torch.float64) * scale
    return logits, torch.randint(classes - 1, (rows,), generator=generator)  # the last class never occurs


def rounded(value):
    """Nested results with numbers rounded, so that the order of a sum does not matter."""
    if isinstance(value, dict):
        return {name: rounded(item) for name, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list) else value and round(value, 9)


@pytest.mark.parametrize(("rows", "classes"), [(1, 2), (50, 2), (200, 7), (300, 40)])
def test_scores_equal_those_of_scikit_learn(rows, classes):
    logits, labels = example(rows, classes)
    found = evaluate(logits, labels)
    guess, share = logits.argmax(1).numpy(), logits.softmax(1).numpy()
    true, every = labels.numpy(), list(range(classes))
    assert found.error == pytest.approx(100 * (1 - reference.accuracy_score(true, guess)))
    assert found.macro_f1 == pytest.approx(reference.f1_score(true, guess, average="macro", zero_division=0))
    assert found.nll == pytest.approx(reference.log_loss(true, share, labels=every))
    brier = reference.brier_score_loss(true, share if classes > 2 else share[:, 1], labels=every, scale_by_half=False)
    assert found.brier == pytest.approx(brier)
    assert np.array_equal(found.confusion, reference.confusion_matrix(true, guess, labels=every))
    if classes > 5:
        top = reference.top_k_accuracy_score(true, share, k=5, labels=every)
        assert found.top_5_error == pytest.approx(100 * (1 - top))
    else:
        assert found.top_5_error is None


def test_error_of_each_class_and_none_for_an_absent_one():
    logits, labels = example()
    found = evaluate(logits, labels).per_class_error
    for number in range(6):
        rows = labels == number
        assert found[number] == pytest.approx(100 * (logits[rows].argmax(1) != number).double().mean().item())
    assert found[6] is None


def test_calibration_equals_a_loop_over_examples():
    logits, labels = example(seed=3)
    bins = [[] for _ in range(BINS)]
    for row, label in zip(logits.softmax(1).tolist(), labels.tolist(), strict=True):
        place = next(i for i in range(BINS) if max(row) <= (i + 1) / BINS or i == BINS - 1)
        bins[place].append((max(row), row.index(max(row)) == label))
    ece = sum(abs(sum(c for c, _ in b) - sum(h for _, h in b)) for b in bins) / len(labels)
    found = evaluate(logits, labels)
    assert found.ece == pytest.approx(ece)
    assert [b.count for b in found.reliability] == [len(b) for b in bins]
    for got, expected in zip(found.reliability, bins, strict=True):
        if expected:
            assert got.confidence == pytest.approx(statistics.mean(c for c, _ in expected))
            assert got.accuracy == pytest.approx(statistics.mean(h for _, h in expected))
        else:
            assert got.confidence is None and got.accuracy is None


def test_a_confidence_between_two_bins_belongs_to_the_lower():
    found = evaluate(torch.zeros(4, 5), torch.tensor([0, 1, 2, 3]))  # confidence 0.2, the upper end of the third bin
    assert [place for place, b in enumerate(found.reliability) if b.count] == [2]


def test_golden_values():
    logits = torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 3.0], [1.0, 0.0, 0.0]])
    found = evaluate(logits, torch.tensor([0, 1, 1, 2]))
    assert found.error == 50.0 and found.per_class_error == (0.0, 50.0, 100.0)
    assert found.confusion == ((1, 0, 0), (0, 1, 1), (1, 0, 0))
    assert found.macro_f1 == pytest.approx((2 / 3 + 2 / 3 + 0) / 3)
    assert found.nll == pytest.approx(1.359339, abs=1e-6)  # by hand: (.239546 + .551445 + 3.094922 + 1.551445) / 4


def test_chunks_change_nothing(monkeypatch):
    logits, labels = example()
    whole = evaluate(logits, labels)
    monkeypatch.setattr("ns3l.evaluate.CHUNK", 30)
    assert rounded(evaluate(logits, labels).to_dict()) == rounded(whole.to_dict())


def test_a_collapsed_network_is_not_praised():
    found = evaluate(torch.zeros(10, 10), torch.arange(10))
    assert found.error == 90.0 and found.top_5_error == 50.0


@given(st.integers(0, 2**20), st.sampled_from([torch.float32, torch.bfloat16]), st.floats(-50, 50))
def test_class_order_shift_and_example_order_do_not_matter(seed, dtype, shift):
    logits, labels = example(30, 6, seed)
    logits = logits.to(dtype)
    found = evaluate(logits, labels)
    order = torch.randperm(30, generator=torch.Generator().manual_seed(seed))
    assert rounded(evaluate(logits[order], labels[order]).to_dict()) == rounded(found.to_dict())
    moved = evaluate(logits.double() + shift, labels)
    assert moved.nll == pytest.approx(found.nll, rel=1e-9) and moved.error == found.error
    assert 0 <= found.ece <= 1 and 0 <= found.brier <= 2 and sum(b.count for b in found.reliability) == 30


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_rows_that_are_not_finite_are_errors_and_never_reach_json(bad):
    logits, labels = example(20, 6)
    logits = torch.nn.functional.one_hot(labels, 6).double() * 5
    logits[3, 1] = bad
    found = evaluate(logits, labels)
    assert found.error == 5.0 and found.not_finite == 1 and found.nll is None
    assert sum(map(sum, found.confusion)) == 19
    json.dumps(found.to_dict(), allow_nan=False)


def test_certain_and_wrong_is_said_as_none():
    logits = torch.tensor([[0.0, -math.inf], [0.0, -math.inf]])
    found = evaluate(logits, torch.tensor([0, 1])).to_dict()
    assert found["nll"] is None and found["error"] == 50.0 and "top_5_error" not in found
    json.dumps(found, allow_nan=False)


def test_no_confusion_matrix_of_millions():
    assert evaluate(torch.randn(4, 1001), torch.arange(4)).to_dict()["confusion"] is None


@pytest.mark.parametrize(
    ("logits", "labels", "message"),
    [
        (torch.zeros(3), torch.zeros(3).long(), "shape \\[N, K\\]"),
        (torch.zeros(3, 1), torch.zeros(3).long(), "K >= 2"),
        (torch.zeros(3, 4).long(), torch.zeros(3).long(), "floats"),
        (torch.zeros(3, 4), torch.zeros(2).long(), "3 integers"),
        (torch.zeros(3, 4), torch.zeros(3), "3 integers"),
        (torch.zeros(3, 4), torch.tensor([0, 1, -1]), "unlabeled rows"),
        (torch.zeros(3, 4), torch.tensor([0, 1, 4]), "0 to 3, but 4 occurs"),
        (torch.zeros(0, 4), torch.zeros(0).long(), "no rows"),
    ],
)
def test_bad_input_is_named(logits, labels, message):
    with pytest.raises(ValueError, match=message):
        evaluate(logits, labels)


class Frozen(nn.Module):
    """A network with one part that stays in eval mode, and a batch norm that would move in training mode."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.out = nn.utils.skip_init(nn.Linear, 4, 3)  # drawn below, not from the global state
        self.out.eval()

    def forward(self, x):
        return self.out(self.norm(x))


@pytest.mark.usefixtures("untouched_random_state")
def test_logits_in_batches_leave_the_network_as_it_was(tmp_path):
    torch_generator = torch.Generator().manual_seed(0)
    network = Frozen()
    for value in network.parameters():
        value.data = torch.randn(value.shape, generator=torch_generator)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    stored = np.memmap(tmp_path / "x", dtype=np.float32, mode="w+", shape=(23, 4))
    stored[:] = torch.randn(23, 4, generator=torch_generator).numpy()
    stored.flush()
    stored = np.memmap(tmp_path / "x", dtype=np.float32, mode="r", shape=(23, 4))
    found = logits_of(network, lambda x: x * 2, stored, batch=5)
    assert [network.training, network.norm.training, network.out.training] == [True, True, False]
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert not found.is_inference() and not found.requires_grad and found.dtype == torch.float32
    network.eval()
    assert torch.allclose(found, network(torch.from_numpy(np.array(stored)) * 2), atol=1e-6)


def test_training_flags_come_back_after_an_error():
    network = Frozen()
    with pytest.raises(RuntimeError):
        logits_of(network, None, np.zeros((3, 5), np.float32))
    assert network.training and network.norm.training


def test_autocast_is_used_and_results_are_float32():
    network = nn.Linear(4, 3)
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(1))
    exact, rough = logits_of(network, None, x), logits_of(network, None, x, autocast=torch.bfloat16)
    assert rough.dtype == torch.float32 and not torch.equal(exact, rough)
    assert torch.allclose(exact, rough, atol=0.1)


def test_logits_refuse_nothing_and_wrong_shapes():
    with pytest.raises(ValueError, match="no rows"):
        logits_of(nn.Linear(4, 3), None, np.zeros((0, 4), np.float32))
    with pytest.raises(ValueError, match="logits of shape"):
        logits_of(nn.Flatten(0), None, np.zeros((2, 4), np.float32))
    with pytest.raises(ValueError, match="at least 1"):
        logits_of(nn.Linear(4, 3), None, np.zeros((2, 4), np.float32), batch=0)


def test_median_of_last():
    assert median_of_last([]) is None
    assert median_of_last([4.0]) == 4.0
    assert median_of_last([100.0] * 9 + [float(i) for i in range(20)]) == 9.5
    assert median_of_last([5.0, 1.0, 2.0], 2) == 1.5


def test_rules_never_look_at_the_best_test_error():
    history = [(1, 30.0, 29.0), (2, 20.0, 25.0), (3, 20.0, 10.0), (4, 25.0, 12.0)]
    assert selected(history) == {"last": 12.0, "best_validation": 25.0, "median_20": 18.5}
    errors = Errors().after(*history[0]).after(*history[1]).after(*history[2]).after(*history[3])
    assert errors.best_step == 2
    assert errors.selected("validation") == {"last": 25.0, "best_validation": 20.0, "median_20": 22.5}


def test_rules_without_validation_or_test():
    assert selected([(1, None, 5.0), (2, None, 3.0)]) == {"last": 3.0, "best_validation": None, "median_20": 4.0}
    assert selected([(1, 2.0, None)]) == {"last": None, "best_validation": None, "median_20": None}
    assert selected([]) == {"last": None, "best_validation": None, "median_20": None}
