"""Cross-entropy with classes and with distributions."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.terms.scene import forward, some_logits

from ns3l.terms.cross_entropy import CrossEntropy


def by_hand(logits, targets):
    """The mean of −Σₖ yₖ log μₖ in plain Python."""
    total = 0.0
    for row, target in zip(logits.tolist(), targets.tolist(), strict=True):
        scale = sum(math.exp(z) for z in row)
        weights = target if isinstance(target, list) else [float(k == target) for k in range(len(row))]
        total -= sum(y * math.log(math.exp(z) / scale) for y, z in zip(weights, row, strict=True))
    return total / len(logits)


@given(st.integers(0, 1000), st.integers(1, 6), st.integers(2, 5))
def test_classes(seed, rows, classes):
    logits = some_logits("labeled", rows=rows, classes=classes, seed=seed)
    y = torch.arange(rows) % classes
    value = CrossEntropy()(forward(logits, {"labeled": y}))
    assert value.item() == pytest.approx(by_hand(logits["labeled"], y), rel=1e-12)


@given(st.integers(0, 1000))
def test_distributions(seed):
    logits = some_logits("mixed_labeled", "y", seed=seed)
    y = logits.pop("y").softmax(1)
    value = CrossEntropy("mixed_labeled")(forward(logits, {"mixed_labeled": y}))
    assert value.item() == pytest.approx(by_hand(logits["mixed_labeled"], y), rel=1e-12)


def test_a_class_is_the_distribution_that_is_sure_of_it():
    logits, y = some_logits("labeled", classes=3), torch.arange(9) % 3
    hard = CrossEntropy()(forward(logits, {"labeled": y}))
    soft = CrossEntropy()(forward(logits, {"labeled": torch.eye(3, dtype=torch.float64)[y]}))
    assert hard.item() == pytest.approx(soft.item(), rel=1e-12)


def test_classes_may_be_renamed():
    logits, y, order = some_logits("labeled"), torch.arange(9) % 4, torch.tensor([2, 0, 3, 1])
    renamed = forward({"labeled": logits["labeled"][:, order]}, {"labeled": order.argsort()[y]})
    assert CrossEntropy()(renamed).item() == pytest.approx(CrossEntropy()(forward(logits, {"labeled": y})).item())


def test_golden_value():
    fwd = forward({"labeled": torch.tensor([[1.0, 2.0, 0.5], [0.0, -1.0, 3.0]])}, {"labeled": torch.tensor([1, 0])})
    assert CrossEntropy()(fwd).item() == pytest.approx(1.7651263, rel=1e-6)
