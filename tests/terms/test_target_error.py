"""Squared error to generated targets."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax
from tests.terms.scene import forward, some_logits

from ns3l.terms.target_error import TargetError

VIEW = "mixed_unlabeled"


@given(seed=st.integers(0, 1000))
def test_reference(seed):
    logits = some_logits(VIEW, "y", seed=seed)
    y = logits.pop("y").softmax(1)
    expected = np.mean((y.numpy() - softmax(logits[VIEW].numpy(), axis=1)) ** 2)
    value = TargetError()(forward(logits, {VIEW: y})).item()
    assert value == pytest.approx(expected, rel=1e-12)
    assert value >= 0


@given(order=st.permutations(range(4)))
def test_order_of_classes_does_not_matter(order):
    logits, y = some_logits(VIEW), some_logits("y")["y"].softmax(1)
    renamed = TargetError()(forward({VIEW: logits[VIEW][:, order]}, {VIEW: y[:, order]}))
    assert TargetError()(forward(logits, {VIEW: y})).item() == pytest.approx(renamed.item(), rel=1e-12)


def test_golden_value():
    logits, y = torch.tensor([[0.0, 0.0], [1000.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.5, 0.5]])
    assert TargetError("labeled")(forward({"labeled": logits}, {"labeled": y})).item() == 0.25


def test_class_numbers_are_no_targets():
    square = forward({"labeled": torch.zeros(4, 4)}, {"labeled": torch.arange(4)})
    with pytest.raises(ValueError, match="must have one shape"):
        TargetError("labeled")(square)
