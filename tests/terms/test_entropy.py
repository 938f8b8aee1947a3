"""Entropy minimization."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.terms.scene import forward, some_logits

from ns3l.terms.entropy import EntropyMinimization


def by_hand(logits):
    """The mean entropy, by probabilities."""
    total = 0.0
    for row in logits.tolist():
        scale = sum(math.exp(z) for z in row)
        total -= sum(math.exp(z) / scale * math.log(math.exp(z) / scale) for z in row)
    return total / len(logits)


@given(st.integers(0, 1000), st.integers(2, 6), st.sampled_from(["unlabeled", "adversarial"]))
def test_reference_and_bounds(seed, classes, view):
    logits = some_logits("unlabeled", "adversarial", classes=classes, seed=seed)
    value = EntropyMinimization(view)(forward(logits)).item()
    assert value == pytest.approx(by_hand(logits[view]), rel=1e-12)
    assert 0 <= value <= math.log(classes)


@given(st.permutations(range(4)))
def test_order_of_classes_does_not_matter(order):
    logits = some_logits("unlabeled")["unlabeled"]
    values = [EntropyMinimization()(forward({"unlabeled": z})).item() for z in (logits, logits[:, order])]
    assert values[0] == pytest.approx(values[1], rel=1e-12)


def test_gradient_goes_to_the_view_that_is_named():
    logits = {name: z.requires_grad_() for name, z in some_logits("unlabeled", "adversarial").items()}
    EntropyMinimization("adversarial")(forward(logits)).backward()
    assert logits["unlabeled"].grad is None and logits["adversarial"].grad.abs().sum() > 0


def test_golden_values():
    even, sure = torch.zeros(1, 4), torch.tensor([[200.0, 0.0, 0.0, 0.0]])
    assert EntropyMinimization()(forward({"unlabeled": even})).item() == pytest.approx(math.log(4), rel=1e-6)
    assert EntropyMinimization()(forward({"unlabeled": sure})).item() == 0
    z = torch.tensor([[0.0, math.log(3.0)]])
    assert EntropyMinimization()(forward({"unlabeled": z})).item() == pytest.approx(0.5623351, rel=1e-6)


def test_other_views_are_refused():
    with pytest.raises(ValueError, match="'unlabeled' or 'adversarial' logits, got 'labeled'"):
        EntropyMinimization("labeled")
