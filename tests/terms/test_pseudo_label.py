"""Pseudo-labels: soft and hard, one pass and two."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_softmax, softmax
from tests.terms.scene import forward, some_logits

from ns3l.terms.pseudo_label import PseudoLabel

FORMS, PASSES = pytest.mark.parametrize("form", ["soft", "hard"]), pytest.mark.parametrize("passes", [1, 2])


def by_hand(labels_from, scored, threshold, form):
    """Row by row in NumPy; rows that are not confident count in the mean with cost 0."""
    costs = []
    for chooser, row in zip(labels_from.numpy(), scored.numpy(), strict=True):
        p, label = softmax(chooser), int(np.argmax(chooser))
        if p[label] <= threshold:
            costs.append(0.0)
        elif form == "hard":
            costs.append(-log_softmax(row)[label])
        else:
            target = softmax(10.0 * (np.arange(len(row)) == label))
            costs.append(float(np.sum(target * (np.log(target) - log_softmax(row)))))
    return np.mean(costs)


@FORMS
@PASSES
@given(seed=st.integers(0, 1000), threshold=st.floats(0.3, 0.99))
def test_reference(form, passes, seed, threshold):
    logits = some_logits("unlabeled", "unlabeled_2", seed=seed)
    expected = by_hand(logits["unlabeled"], logits["unlabeled_2" if passes == 2 else "unlabeled"], threshold, form)
    value = PseudoLabel(threshold, form, passes)(forward(logits)).item()
    assert value == pytest.approx(expected, rel=1e-10, abs=1e-14)
    assert value >= 0


@FORMS
@PASSES
def test_the_choice_takes_no_gradient(form, passes):
    logits = {name: z.requires_grad_() for name, z in some_logits("unlabeled", "unlabeled_2").items()}
    term = PseudoLabel(0.9, form, passes)
    term(forward(logits)).backward()
    scored = logits[term.reads[-1]].grad
    confident = logits["unlabeled"].detach().softmax(1).amax(1) > 0.9
    assert 0 < confident.sum() < len(confident)
    assert torch.equal(scored.abs().sum(1) > 0, confident)
    if passes == 2:
        assert logits["unlabeled"].grad is None


@given(st.permutations(range(4)))
def test_order_of_classes_does_not_matter(order):
    logits = some_logits("unlabeled", "unlabeled_2")
    renamed = {name: z[:, order] for name, z in logits.items()}
    values = [PseudoLabel(0.8)(forward(given)).item() for given in (logits, renamed)]
    assert values[0] == pytest.approx(values[1], rel=1e-12)


def test_golden_values():
    logits = torch.tensor([[4.0, 0.0], [0.2, 0.0]], dtype=torch.float64)
    fwd = forward({"unlabeled": logits, "unlabeled_2": logits.flip(1)})
    assert PseudoLabel(form="hard", passes=1)(fwd).item() == pytest.approx(math.log(1 + math.exp(-4)) / 2, rel=1e-6)
    assert PseudoLabel(form="hard", passes=2)(fwd).item() == pytest.approx(math.log(1 + math.exp(4)) / 2, rel=1e-6)
    assert PseudoLabel(form="soft", passes=1)(fwd).item() == pytest.approx(0.0089160709, rel=1e-7)


def test_a_row_at_the_threshold_is_not_confident():
    told = PseudoLabel(0.5, passes=1).diagnose(forward({"unlabeled": torch.zeros(3, 2)}))
    assert told["confident"] == 0


def test_what_it_tells():
    logits = {"unlabeled": torch.tensor([[9.0, 0.0], [0.0, 9.0], [9.0, 0.0], [0.1, 0.0]])}
    told = PseudoLabel(passes=1).diagnose(forward(logits, truth={"unlabeled": torch.tensor([0, 0, -1, 1])}))
    assert {name: number.item() for name, number in told.items()} == {"confident": 0.75, "wrong": 0.5}
    assert set(PseudoLabel(passes=1).diagnose(forward(logits))) == {"confident"}
    unknown = forward(logits, truth={"unlabeled": torch.tensor([-1, -1, -1, 1])})
    assert PseudoLabel(passes=1).diagnose(unknown)["wrong"].isnan()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threshold": 1.0}, "between 0 and 1, got 1.0"),
        ({"threshold": "0.9"}, "between 0 and 1, got '0.9'"),
        ({"passes": True}, "passes 1 or 2, got 'soft' and True"),
        ({"form": "firm"}, "form is 'soft' or 'hard'.* got 'firm'"),
        ({"passes": 3}, "passes 1 or 2, got 'soft' and 3"),
    ],
)
def test_bad_settings(options, message):
    with pytest.raises(ValueError, match=message):
        PseudoLabel(**options)
