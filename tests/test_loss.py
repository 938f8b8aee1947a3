"""The NS3L loss against Algorithm 1 in plain Python, at the edges of every precision, and under every transform."""

import math
import re
from decimal import Decimal, localcontext

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from ns3l.loss import NegativeSamplingLoss, negative_sampling_loss


def algorithm_1(logits: torch.Tensor, negative: torch.Tensor) -> list[float]:
    """The paper's loop, row by row, with fsum and log1p: -log(1 - share) = log1p(marked / rest)."""
    costs = []
    for row, marks in zip(logits.tolist(), negative.tolist(), strict=True):
        top = max(row)
        marked = math.fsum(math.exp(z - top) for z, m in zip(row, marks, strict=True) if m)
        rest = math.fsum(math.exp(z - top) for z, m in zip(row, marks, strict=True) if not m)
        costs.append(0.0 if all(marks) else math.log1p(marked / rest))
    return costs


def example(rows: int, classes: int, seed: int = 0, dtype: torch.dtype = torch.float64, share: float = 0.4):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, classes, generator=generator, dtype=torch.float64) * 3
    return logits.to(dtype), torch.rand(rows, classes, generator=generator) < share


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 8), st.integers(2, 40), st.integers(0, 2**20), st.floats(0, 1))
def test_equals_algorithm_1(rows, classes, seed, share):
    logits, negative = example(rows, classes, seed, share=share)
    expected = algorithm_1(logits, negative)
    each = negative_sampling_loss(logits, negative, reduction="none")
    assert each.tolist() == pytest.approx(expected, rel=1e-12, abs=1e-300)
    assert negative_sampling_loss(logits, negative, reduction="sum").item() == pytest.approx(math.fsum(expected))
    assert negative_sampling_loss(logits, negative).item() == pytest.approx(math.fsum(expected) / rows)


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 12), st.integers(0, 2**20), st.floats(-50, 50))
def test_shift_order_and_growth(classes, seed, shift):
    """Logits count up to a constant; classes have no order; one more negative (not the last class left) costs more."""
    logits, negative = example(4, classes, seed)
    each = negative_sampling_loss(logits, negative, reduction="none")
    assert torch.allclose(each, negative_sampling_loss(logits + shift, negative, reduction="none"), rtol=1e-9, atol=0)
    order = torch.randperm(classes, generator=torch.Generator().manual_seed(seed))
    assert torch.allclose(each, negative_sampling_loss(logits[:, order], negative[:, order], reduction="none"))
    more = negative.clone()
    more[:, 0] = True
    grown = negative_sampling_loss(logits, more, reduction="none")
    assert ((grown > each) | negative[:, 0] | more.all(1)).all()


def test_golden_value():
    """p = (0.7, 0.2, 0.1), negatives 1 and 2: -log(0.7)."""
    logits = torch.tensor([[0.7, 0.2, 0.1]], dtype=torch.float64).log()
    negative = torch.tensor([[False, True, True]])
    assert negative_sampling_loss(logits, negative).item() == pytest.approx(0.35667494393873245, rel=1e-14)


def test_gradient():
    """Against finite differences, and the formula: p_k for negatives, p_k - p_k / (1 - share) for the others."""
    logits, negative = example(6, 7)
    negative[0], negative[1] = False, True
    logits.requires_grad_()
    assert torch.autograd.gradcheck(lambda z: negative_sampling_loss(z, negative, reduction="none"), logits)
    negative_sampling_loss(logits, negative, reduction="sum").backward()
    p = logits.detach().softmax(1)
    rest = (p * ~negative).sum(1, keepdim=True)
    expected = torch.where(negative, p, p - p / rest)
    expected[:2] = 0
    assert torch.allclose(logits.grad, expected, atol=1e-12)
    assert (logits.grad[:2] == 0).all()


@pytest.mark.parametrize(
    ("dtype", "size"),
    [(torch.float64, 1e4), (torch.float32, 1e4), (torch.float32, 1.5e38), (torch.bfloat16, 1e4), (torch.float16, 6e4)],
)
def test_finite_at_extremes(dtype, size):
    row = torch.tensor([size, -size, 0.0, size, -size], dtype=torch.float64)
    logits = torch.stack([row, -row, row * 0, row]).to(dtype).requires_grad_()
    marks = [[1, 0, 0, 0, 0], [1, 1, 1, 1, 1], [0, 0, 0, 0, 0], [1, 0, 1, 1, 1]]
    each = negative_sampling_loss(logits, torch.tensor(marks, dtype=torch.bool), reduction="none")
    each.sum().backward()
    assert each.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert logits.grad.dtype == dtype
    assert logits.grad.isfinite().all()
    assert each[:3].tolist() == pytest.approx([math.log(2), 0, 0])
    assert each[3].item() == pytest.approx(2 * logits.max().item() + math.log(2))
    assert (logits.grad[1:3] == 0).all()


def test_impossible_and_undefined_logits():
    """A negative of probability zero costs nothing; what cannot be said is not hidden."""
    logits = torch.tensor([[0.0, 1.0, -math.inf], [0.0, 1.0, math.nan]], requires_grad=True)
    each = negative_sampling_loss(logits, torch.tensor([[False, False, True]] * 2), reduction="none")
    assert each[0] == 0
    assert each[1].isnan()
    each[0].backward()
    assert (logits.grad[0] == 0).all()


@pytest.mark.parametrize("classes", [2, 10, 1000])
def test_keeps_its_digits_in_float32(classes):
    logits, negative = example(64, classes)
    negative[:, 0], negative[:, 1] = False, True
    smallest = 1.0
    for gap in (0.0, 6.0, 14.0, 16.0, 30.0):
        single = (logits + torch.eye(1, classes, dtype=torch.float64) * gap).float()
        exact = negative_sampling_loss(single.double(), negative, reduction="none")
        error = (negative_sampling_loss(single, negative, reduction="none") - exact) / exact
        assert error.abs().max() < 3e-7
        smallest = min(smallest, exact.min().item())
    assert smallest < 1e-7


def test_to_the_last_digits_in_float64():
    """From a loss of 1e-300 to one of 700, value and gradient: log(1 + e^gap) in 40 decimals, and 1 / (1 + e^-gap)."""
    gaps = [-690.0, -100.0, -37.0, -1.0, -1e-3, 0.0, 1.0, 19.9, 20.1, 21.0, 25.0, 36.0, 39.9, 40.1, 100.0, 700.0]
    logits = torch.tensor([[gap, 0.0] for gap in gaps], dtype=torch.float64, requires_grad=True)
    each = negative_sampling_loss(logits, torch.tensor([[True, False]] * len(gaps)), reduction="none")
    with localcontext(prec=350):
        exact = [float((1 + Decimal(gap).exp()).ln()) for gap in gaps]
    assert each.tolist() == pytest.approx(exact, rel=1e-15, abs=0)
    each.sum().backward()
    assert logits.grad[:, 0].tolist() == pytest.approx([1 / (1 + math.exp(-gap)) for gap in gaps], rel=1e-15, abs=0)


def test_many_classes_without_a_quadratic_buffer():
    logits, negative = example(2, 100_000, dtype=torch.float32)
    assert negative_sampling_loss(logits.requires_grad_(), negative).item() == pytest.approx(
        math.fsum(algorithm_1(logits, negative)) / 2, rel=1e-6
    )


def test_no_rows_cost_nothing():
    logits = torch.zeros(0, 3, requires_grad=True)
    assert negative_sampling_loss(logits, torch.zeros(0, 3, dtype=torch.bool)).item() == 0
    assert negative_sampling_loss(logits, torch.zeros(0, 3, dtype=torch.bool), reduction="none").shape == (0,)


def test_vmap():
    logits, negative = example(12, 5)
    stacked = torch.func.vmap(negative_sampling_loss)(logits.view(3, 4, 5), negative.view(3, 4, 5))
    alone = [negative_sampling_loss(z, m) for z, m in zip(logits.view(3, 4, 5), negative.view(3, 4, 5), strict=True)]
    assert torch.equal(stacked, torch.stack(alone))
    grad = torch.func.vmap(torch.func.grad(negative_sampling_loss))(logits.view(3, 4, 5), negative.view(3, 4, 5))
    assert grad.isfinite().all()


@pytest.mark.slow
def test_compiles_whole():
    compiled = torch.compile(negative_sampling_loss, fullgraph=True)
    for dtype in (torch.float32, torch.bfloat16):
        logits, negative = example(64, 10, dtype=dtype)
        negative[0], negative[1] = False, True
        first, second = logits.clone().requires_grad_(), logits.clone().requires_grad_()
        compiled(first, negative).backward()
        negative_sampling_loss(second, negative).backward()
        assert torch.allclose(compiled(logits, negative), negative_sampling_loss(logits, negative), rtol=3e-7)
        assert torch.allclose(first.grad, second.grad, rtol=1e-5, atol=1e-8)


def test_autocast_keeps_float32():
    logits, negative = example(8, 10, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        inside = negative_sampling_loss(logits, negative)
    assert inside.dtype == torch.float32
    assert torch.equal(inside, negative_sampling_loss(logits, negative))


class NoQuestions(TorchDispatchMode):
    """Refuses what would make a device wait for the host."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert not re.search("local_scalar_dense|nonzero|masked_select|unique|is_nonzero", str(func)), func
        return func(*args, **(kwargs or {}))


def test_asks_nothing_of_the_host():
    logits, _ = example(8, 10, dtype=torch.float32)
    with NoQuestions():
        NegativeSamplingLoss(0.04)(logits.requires_grad_()).backward()


def test_module_marks_by_the_threshold():
    logits, _ = example(16, 10, dtype=torch.float32)
    other, _ = example(16, 10, seed=1, dtype=torch.float32)
    own = negative_sampling_loss(logits, logits.softmax(1) < 0.04)
    assert torch.equal(NegativeSamplingLoss(0.04)(logits), own)
    given_probability = negative_sampling_loss(logits, other.softmax(1) < 0.1, reduction="none")
    assert torch.equal(NegativeSamplingLoss(0.1, "none")(logits, other.softmax(1)), given_probability)
    assert repr(NegativeSamplingLoss(0.1)) == "NegativeSamplingLoss(threshold=0.1, reduction='mean')"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_module_chooses_in_float32(dtype):
    """A threshold a millionth above three probabilities: to half precision they are alike."""
    top, other = torch.tensor([1.0, 0.0, 0.0, 0.0]).softmax(0)[:2].tolist()
    logits = torch.tensor([[1.0, 0.0, 0.0, 0.0]], dtype=dtype)
    assert NegativeSamplingLoss(other + 1e-6)(logits).item() == pytest.approx(-math.log(top), rel=1e-6)
    assert NegativeSamplingLoss(other - 1e-6)(logits).item() == 0


def test_module_gives_no_gradient_to_the_choice():
    logits, _ = example(4, 10, dtype=torch.float32)
    chooser = torch.randn(4, 10, generator=torch.Generator().manual_seed(3)).requires_grad_()
    NegativeSamplingLoss()(logits.requires_grad_(), chooser.softmax(1)).backward()
    assert chooser.grad is None
    assert logits.grad.abs().sum() > 0


@pytest.mark.parametrize(
    ("logits", "negative", "error", "told"),
    [
        (torch.zeros(2, 3), torch.zeros(2, 4, dtype=torch.bool), ValueError, r"shape of logits, \(2, 3\).*\(2, 4\)"),
        (torch.zeros(2, 3), torch.zeros(2, 3), TypeError, "boolean mask.*float32"),
        (torch.zeros(3), torch.zeros(3, dtype=torch.bool), ValueError, r"\[examples, classes\].*\(3,\)"),
        (torch.zeros(2, 3, dtype=torch.int64), torch.zeros(2, 3, dtype=torch.bool), TypeError, "floating.*int64"),
        (torch.zeros(2, 3), torch.zeros(2, 3, dtype=torch.bool, device="meta"), ValueError, "meta.*cpu"),
        (torch.zeros(2, 0), torch.zeros(2, 0, dtype=torch.bool), ValueError, "examples, classes"),
        (torch.zeros(2, 1), torch.zeros(2, 1, dtype=torch.bool), ValueError, r"2 classes or more.*\(2, 1\)"),
        ([[0.0, 1.0]], torch.zeros(1, 2, dtype=torch.bool), TypeError, r"logits must be a tensor.* list; pass torch"),
        (torch.zeros(1, 2), [[True, False]], TypeError, r"negative must be a tensor.*pass torch.as_tensor\(negative\)"),
    ],
)
def test_bad_arguments(logits, negative, error, told):
    with pytest.raises(error, match=told):
        negative_sampling_loss(logits, negative)


@pytest.mark.parametrize(
    ("logits", "error", "told"),
    [
        (torch.zeros(3), ValueError, r"logits must have the shape \[examples, classes\].*\(3,\)"),
        (torch.zeros(2, 3, 4), ValueError, r"logits must have the shape \[examples, classes\].*\(2, 3, 4\)"),
        (torch.zeros(2, 3, dtype=torch.int64), TypeError, "logits must be floating point.*int64"),
    ],
)
def test_module_speaks_of_logits(logits, error, told):
    with pytest.raises(error, match=told):
        NegativeSamplingLoss()(logits)


def test_module_speaks_of_probability():
    with pytest.raises(TypeError, match="probability must be a tensor, but it is list"):
        NegativeSamplingLoss()(torch.zeros(1, 2), [[0.5, 0.5]])


def test_bad_reduction_and_threshold():
    with pytest.raises(ValueError, match="\"mean\", but got 'avg'"):
        negative_sampling_loss(torch.zeros(2, 3), torch.zeros(2, 3, dtype=torch.bool), reduction="avg")
    with pytest.raises(ValueError, match="reduction"):
        NegativeSamplingLoss(reduction="avg")
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        NegativeSamplingLoss(1.0)
