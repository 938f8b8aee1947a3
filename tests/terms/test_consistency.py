"""Π model and mean teacher: squared error between softmaxes, mean over rows and classes."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax
from tests.terms.scene import forward, some_logits

from ns3l.terms.consistency import MeanTeacher, Pi

TERMS = pytest.mark.parametrize(("term", "target"), [(Pi(), "unlabeled_2"), (MeanTeacher(), "unlabeled_teacher")])


@TERMS
@given(seed=st.integers(0, 1000))
def test_reference(term, target, seed):
    logits = some_logits("unlabeled", target, seed=seed)
    p, q = (softmax(logits[view].numpy(), axis=1) for view in ("unlabeled", target))
    expected = np.sum((p - q) ** 2) / p.size
    value = term(forward(logits)).item()
    assert value == pytest.approx(expected, rel=1e-12)
    assert 0 <= value <= 2 / p.shape[1]


@TERMS
def test_the_first_pass_learns_and_the_target_stands_still(term, target):
    logits = {name: z.requires_grad_() for name, z in some_logits("unlabeled", target).items()}
    term(forward(logits)).backward()
    assert logits["unlabeled"].grad.abs().sum() > 0 and logits[target].grad is None


@TERMS
def test_equal_predictions_cost_nothing(term, target):
    z = some_logits("unlabeled")["unlabeled"]
    assert term(forward({"unlabeled": z, target: z + 5})).item() == pytest.approx(0, abs=1e-30)


@TERMS
@given(order=st.permutations(range(4)))
def test_order_of_classes_does_not_matter(term, target, order):
    logits = some_logits("unlabeled", target)
    renamed = {name: z[:, order] for name, z in logits.items()}
    assert term(forward(logits)).item() == pytest.approx(term(forward(renamed)).item(), rel=1e-12)


@TERMS
def test_golden_value(term, target):
    z = {"unlabeled": torch.tensor([[1000.0, 0.0], [0.0, 0.0]]), target: torch.zeros(2, 2)}
    assert term(forward(z)).item() == 0.125
