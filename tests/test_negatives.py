"""Selectors: counts, frequencies, what is never marked, and words for what is missing."""

import itertools
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ns3l.draw import Draw
from ns3l.negatives import SELECTORS, NearestNeighbor, Oracle, Selector, Threshold, Uniform, diagnose

ROWS, CLASSES = 40, 10


def flat(rows: int = ROWS, classes: int = CLASSES) -> torch.Tensor:
    return torch.full((rows, classes), 1 / classes)


def ranks(rows: int = ROWS, classes: int = CLASSES, seed: int = 0) -> torch.Tensor:
    return torch.rand(rows, classes, generator=torch.Generator().manual_seed(seed)).argsort(1).argsort(1).short()


def frequency(selector: Selector, **given) -> np.ndarray:
    """How often each class of each row is marked: 4,000 copies of the rows over 5 steps."""
    copies = {name: tensor.repeat(4000, *[1] * (tensor.dim() - 1)) for name, tensor in given.items()}
    marked = [selector(draw=Draw(0, step), **copies).double().unflatten(0, (4000, -1)).mean(0) for step in range(5)]
    return torch.stack(marked).mean(0).numpy()


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**20), st.floats(1e-6, 0.999))
def test_threshold(seed, threshold):
    p = np.random.default_rng(seed).dirichlet([0.3] * CLASSES, ROWS)
    marked = Threshold(threshold)(torch.from_numpy(p))
    assert marked.dtype == torch.bool
    assert marked.tolist() == [[bool(value < threshold) for value in row] for row in p]


def test_threshold_is_strict_and_golden():
    p = torch.tensor([[0.90, 0.06, 0.04], [0.03, 0.95, 0.02]])
    assert Threshold(0.05)(p).tolist() == [[False, False, True], [True, False, True]]
    assert not Threshold(0.25)(flat(2, 4)).any()


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 30), st.data())
def test_counts(classes, data):
    """Exactly n marks a row, whatever the draw; the truth and the near classes never."""
    n, step = data.draw(st.integers(1, classes - 1)), data.draw(st.integers(0, 10**6))
    draw, truth, near = Draw(1, step), torch.arange(ROWS) % classes, ranks(ROWS, classes, step)
    p = flat(ROWS, classes)
    assert (Uniform(n)(p, draw=draw).sum(1) == n).all()
    told = Oracle(n)(p, draw=draw, truth=truth)
    assert (told.sum(1) == n).all()
    assert not told[torch.arange(ROWS), truth].any()
    excluded = NearestNeighbor("exclude-nearest", n)(p, draw=draw, neighbors=near)
    assert (excluded.sum(1) == n).all()
    assert not excluded[near == 0].any()
    furthest = NearestNeighbor("furthest", n)(p, neighbors=near)
    assert torch.equal(furthest, near >= classes - n)
    if classes > 4 + n:
        four = NearestNeighbor("exclude-four", n)(p, draw=draw, neighbors=near)
        assert (four.sum(1) == n).all()
        assert not four[near < 4].any()


def test_frequencies():
    """Every allowed class is marked equally often: within five standard errors of the exact probability."""
    error = 5 * 0.5 / 20_000**0.5
    p, near, truth = flat(2, 6), ranks(2, 6), torch.tensor([3, -1])
    assert np.allclose(frequency(Uniform(2), probability=p), 2 / 6, atol=error)
    known = np.where(np.arange(6) == 3, 0, 2 / 5)
    assert np.allclose(frequency(Oracle(2), probability=p, truth=truth), [known, np.zeros(6)], atol=error)
    four = np.where(near.numpy() >= 4, 1 / 2, 0)
    assert np.allclose(frequency(NearestNeighbor("exclude-four"), probability=p, neighbors=near), four, atol=error)


def test_pairs_are_drawn_without_preference():
    """Uniform(2) of 4 classes: each of the six pairs one time in six."""
    marked = Uniform(2)(flat(6000, 4), draw=Draw(5, 1))
    shares = [(marked[:, a] & marked[:, b]).float().mean().item() for a, b in itertools.combinations(range(4), 2)]
    assert shares == pytest.approx([1 / 6] * 6, abs=0.03)


def test_drawn_afresh_and_repeatable(untouched_random_state):
    p = flat()
    first, again, later = (Uniform(3)(p, draw=Draw(0, step)) for step in (7, 7, 8))
    assert torch.equal(first, again)
    assert not torch.equal(first, later)
    assert torch.equal(first, Uniform(3)(p, draw=Draw(torch.tensor(0), torch.tensor(7))))


def test_golden_draw():
    """Pinned: stored runs depend on these bits."""
    draw = Draw(0, 0).stream("ns3l")
    assert [row.nonzero().flatten().tolist() for row in Uniform(3)(flat(2), draw=draw)] == [[0, 7, 9], [3, 5, 7]]


def test_needs_are_what_calls_ask_for():
    given_all = {"draw": Draw(0, 0), "truth": torch.zeros(ROWS, dtype=torch.int64), "neighbors": ranks()}
    every = [Threshold(0.04), Uniform(2), Oracle(2), NearestNeighbor("furthest"), NearestNeighbor("exclude-four", 2)]
    assert {type(selector) for selector in every} == set(SELECTORS.values())
    for selector in every:
        assert eval(repr(selector)) == selector
        only = {name: given_all[name] for name in selector.needs}
        assert torch.equal(selector(flat(), **only), selector(flat(), **given_all))
        for name in selector.needs:
            with pytest.raises(ValueError, match=f"without `{name}`; pass {name}="):
                selector(flat(), **{key: value for key, value in only.items() if key != name})


@pytest.mark.parametrize("wrong", [-0.1, 0.0, 1.0, 1.5, float("nan"), "0.04", None, True, torch.tensor(0.1)])
def test_bad_thresholds(wrong):
    with pytest.raises(ValueError, match=re.escape(f"between 0 and 1, but got {wrong!r}")):
        Threshold(wrong)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "2"])
@pytest.mark.parametrize("kind", [Uniform, Oracle, lambda n: NearestNeighbor("furthest", n)])
def test_bad_numbers(kind, wrong):
    with pytest.raises(ValueError, match=f"whole number of at least 1, but got {wrong!r}"):
        kind(wrong)


def test_too_many_negatives():
    near, truth, draw = ranks(ROWS, 4), torch.zeros(ROWS, dtype=torch.int64), Draw(0, 0)
    for selector, told in [
        (Uniform(4), "3; lower n"),
        (Oracle(4), "3; lower n"),
        (NearestNeighbor("exclude-nearest", 4), "3; lower n"),
        (NearestNeighbor("furthest", 4), "3; lower n"),
        (NearestNeighbor("exclude-four", 1), "0; choose negatives in another way"),
    ]:
        with pytest.raises(ValueError, match=f"4 classes leave at most {told}"):
            selector(flat(ROWS, 4), draw=draw, neighbors=near, truth=truth)
        with pytest.raises(ValueError, match=f"4 classes leave at most {told}"):
            selector.check(4)
        selector.check(5)
    Threshold(0.1).check(2)


def test_bad_shapes():
    draw = Draw(0, 0)
    with pytest.raises(ValueError, match="form must be one of exclude-nearest, exclude-four, furthest"):
        NearestNeighbor("nearest")
    with pytest.raises(ValueError, match="2 classes or more"):
        Threshold(0.1)(torch.zeros(3))
    with pytest.raises(ValueError, match=r"neighbors must have the shape \(40, 10\), but it has \(39, 10\)"):
        NearestNeighbor()(flat(), draw=draw, neighbors=ranks(39))
    with pytest.raises(ValueError, match=r"truth must have the shape \(40,\)"):
        Oracle()(flat(), draw=draw, truth=torch.zeros(40, 1))


@pytest.mark.parametrize("wrong", [torch.float32, torch.bool])
def test_bad_dtypes(wrong):
    with pytest.raises(TypeError, match=r"truth must be whole numbers, but it is torch\..*pass truth\.long"):
        Oracle()(flat(), draw=Draw(0), truth=torch.zeros(ROWS, dtype=wrong))
    with pytest.raises(TypeError, match="neighbors must be whole numbers"):
        NearestNeighbor("furthest")(flat(), neighbors=ranks().to(wrong))
    with pytest.raises(TypeError, match="truth must be whole numbers"):
        diagnose(flat() < 1, torch.zeros(ROWS, dtype=wrong))


def test_what_is_no_tensor_is_told():
    p, draw = flat(), Draw(0)
    with pytest.raises(ValueError, match=r"floating point numbers .* but got ndarray"):
        Threshold(0.1)(p.numpy())
    with pytest.raises(TypeError, match=r"truth must be a tensor, but it is list; pass torch\.as_tensor"):
        Oracle()(p, draw=draw, truth=[0] * ROWS)
    with pytest.raises(TypeError, match="neighbors must be a tensor, but it is ndarray"):
        NearestNeighbor()(p, draw=draw, neighbors=ranks().numpy())
    with pytest.raises(ValueError, match="without `draw`; pass draw="):
        Uniform()(p, draw=3)
    for wrong, came in ((p, "torch.float32"), (p[0] > 1, r"torch.bool \(10,\)"), (None, "NoneType")):
        with pytest.raises(TypeError, match=rf"a boolean mask \[examples, classes\], but got {came}"):
            diagnose(wrong)


def test_bad_devices():
    with pytest.raises(ValueError, match="neighbors is on meta, but the rows are on cpu; move one to the other"):
        NearestNeighbor("furthest")(flat(), neighbors=ranks().to("meta"))


@pytest.mark.parametrize("selector", [Uniform(2), Oracle(), NearestNeighbor(), NearestNeighbor("furthest")])
def test_negatives_are_where_the_probabilities_are(selector):
    """Whatever device a draw names: the same bits come on every one."""
    known = {"truth": torch.zeros(ROWS, dtype=torch.int64).to("meta"), "neighbors": ranks().to("meta")}
    assert selector(flat().to("meta"), draw=Draw(0), **known).device.type == "meta"


def test_selectors_under_vmap():
    """Replicas side by side draw what each would draw alone."""
    seeds = torch.arange(3)
    together = torch.func.vmap(lambda seed: Uniform(2)(flat(), draw=Draw(seed, 4)))(seeds)
    assert torch.equal(together, torch.stack([Uniform(2)(flat(), draw=Draw(seed, 4)) for seed in range(3)]))


def test_diagnose():
    negative = torch.tensor([[1, 0, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 0, 0], [0, 0, 0, 0]], dtype=torch.bool)
    told = diagnose(negative, torch.tensor([1, 0, 2, -1, -1]))
    assert {name: value.item() for name, value in told.items()} == pytest.approx(
        {"marked": 7 / 20, "rows_without": 2 / 5, "true_marked": 1 / 3}
    )
    assert set(diagnose(negative)) == {"marked", "rows_without"}
    assert diagnose(negative, torch.full((5,), -1))["true_marked"].isnan()
