"""Divergences against SciPy and NumPy on probabilities, where the library works on logits."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from ns3l import divergence

PAIRS = [divergence.kl, divergence.squared_error, divergence.squared_error_to, divergence.soft_cross_entropy]


def example(seed: int, rows: int = 5, classes: int = 7):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(2, rows, classes)) * 2
    return a, b, special.softmax(a, 1), special.softmax(b, 1)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**20), st.integers(2, 20))
def test_against_scipy(seed, classes):
    a, b, p, q = example(seed, classes=classes)
    za, zb, tq = torch.from_numpy(a), torch.from_numpy(b), torch.from_numpy(q)
    np.testing.assert_allclose(divergence.kl(za, zb), stats.entropy(p, q, axis=1), rtol=1e-9, atol=1e-13)
    np.testing.assert_allclose(divergence.entropy(za), stats.entropy(p, axis=1), rtol=1e-10)
    np.testing.assert_allclose(divergence.squared_error(za, zb), ((p - q) ** 2).sum(1) / classes, rtol=1e-10)
    np.testing.assert_allclose(divergence.squared_error_to(za, tq), ((p - q) ** 2).sum(1) / classes, rtol=1e-10)
    np.testing.assert_allclose(divergence.soft_cross_entropy(za, tq), -(q * np.log(p)).sum(1), rtol=1e-10)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**20))
def test_properties(seed):
    """KL is 0 only between equals; cross-entropy = entropy + KL; a shift of the logits changes nothing."""
    a, b, p, _ = example(seed)
    za, zb, tp = torch.from_numpy(a), torch.from_numpy(b), torch.from_numpy(p)
    assert (divergence.kl(za, zb) > 0).all()
    assert (divergence.kl(za, za + 3).abs() < 1e-12).all()
    assert (divergence.squared_error(za, za - 5) < 1e-24).all()
    gap = divergence.soft_cross_entropy(zb, tp) - divergence.entropy(za) - divergence.kl(za, zb)
    assert (gap.abs() < 1e-11).all()


def test_golden_values_and_direction():
    """p = (3/4, 1/4), q = (1/2, 1/2)."""
    p, q = torch.tensor([[0.75, 0.25]]).double(), torch.tensor([[0.5, 0.5]]).double()
    assert divergence.kl(p.log(), q.log()).item() == pytest.approx(0.13081203594113697, rel=1e-12)
    assert divergence.kl(q.log(), p.log()).item() == pytest.approx(0.14384103622589042, rel=1e-12)
    assert divergence.squared_error(p.log(), q.log()).item() == pytest.approx(0.0625, rel=1e-12)
    assert divergence.soft_cross_entropy(p.log(), q).item() == pytest.approx(0.8369882167858358, rel=1e-12)
    assert divergence.entropy(p.log()).item() == pytest.approx(0.5623351446188083, rel=1e-12)


@pytest.mark.parametrize("function", [*PAIRS, divergence.entropy])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_precision_and_gradient(function, dtype):
    """Half types come out as float32 and extreme logits stay finite, gradient included."""
    z = (torch.tensor([[1.0, -1.0, 0.5], [0.0, 1.0, -1.0]]) * 1e4).to(dtype).requires_grad_()
    other = (z.detach().flip(1) / 1e4).to(dtype)
    takes_target = function in (divergence.squared_error_to, divergence.soft_cross_entropy)
    each = function(z) if function is divergence.entropy else function(z, other.softmax(1) if takes_target else other)
    each.sum().backward()
    assert each.shape == (2,)
    assert each.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert each.isfinite().all()
    assert z.grad.isfinite().all()


@pytest.mark.parametrize("function", PAIRS)
def test_gradients_by_finite_differences(function):
    a, b, _, q = example(1, rows=2, classes=4)
    second = q if function in (divergence.squared_error_to, divergence.soft_cross_entropy) else b
    assert torch.autograd.gradcheck(
        function, (torch.tensor(a, requires_grad=True), torch.tensor(second, requires_grad=True))
    )


def test_entropy_gradient_by_finite_differences():
    a = torch.tensor(example(1)[0], requires_grad=True)
    assert torch.autograd.gradcheck(divergence.entropy, (a,))


@pytest.mark.parametrize("function", PAIRS)
def test_bad_arguments(function):
    with pytest.raises(ValueError, match=r"one shape.*\(2, 3\) and \(2, 1\)"):
        function(torch.zeros(2, 3), torch.zeros(2, 1))
    with pytest.raises(ValueError, match="examples, classes"):
        function(torch.zeros(3), torch.zeros(3))
    with pytest.raises(ValueError, match="int64"):
        divergence.entropy(torch.zeros(2, 3, dtype=torch.int64))
