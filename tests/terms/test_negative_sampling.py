"""NS3L as a term: what chooses, what is scored, one pass, two passes, mixed rows."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax
from tests.terms.scene import forward, some_logits

from ns3l.draw import Draw
from ns3l.negatives import NearestNeighbor, Oracle, Threshold, Uniform
from ns3l.terms.negative_sampling import MIXED, NegativeSampling


def by_hand(probability, scored, threshold):
    """Algorithm 1 row by row: −log(1 − Σ of the negatives' probability), 0 where none or all are negative."""
    costs = []
    for p, mu in zip(probability, softmax(scored.numpy(), axis=1), strict=True):
        negative = p.numpy() < threshold
        none = not negative.any() or negative.all()
        costs.append(0.0 if none else -math.log(1 - math.fsum(mu[negative])))
    return np.mean(costs)


@pytest.mark.parametrize("passes", [1, 2])
@given(seed=st.integers(0, 1000), threshold=st.floats(0.01, 0.6))
def test_threshold(passes, seed, threshold):
    logits = some_logits("unlabeled", "unlabeled_2", seed=seed, scale=2)
    expected = by_hand(logits["unlabeled"].softmax(1), logits["unlabeled_2" if passes == 2 else "unlabeled"], threshold)
    value = NegativeSampling(Threshold(threshold), passes)(forward(logits)).item()
    assert value == pytest.approx(expected, rel=1e-8, abs=1e-12)
    assert value >= 0


@given(seed=st.integers(0, 1000))
def test_mixed_rows_are_judged_by_their_generated_labels(seed):
    logits = some_logits(*MIXED, seed=seed)
    y = {name: target.softmax(1) for name, target in some_logits(*MIXED, seed=seed + 5000).items()}
    probability, scored = torch.cat([y[v] for v in MIXED]), torch.cat([logits[v] for v in MIXED])
    value = NegativeSampling(Threshold(0.05), on="mixed")(forward(logits, y)).item()
    assert value == pytest.approx(by_hand(probability, scored, 0.05), rel=1e-8, abs=1e-12)


@pytest.mark.parametrize("passes", [1, 2])
def test_the_choice_takes_no_gradient(passes):
    logits = {name: z.requires_grad_() for name, z in some_logits("unlabeled", "unlabeled_2").items()}
    term = NegativeSampling(Threshold(0.1), passes)
    fwd = forward(logits)
    term(fwd).backward()
    chosen = term.chosen(fwd)
    pushed = logits[term.reads[-1]].grad
    assert torch.equal(pushed > 0, chosen & ~chosen.all(1, keepdim=True))
    if passes == 2:
        assert logits["unlabeled"].grad is None


@given(order=st.permutations(range(4)))
def test_order_of_classes_does_not_matter(order):
    logits = some_logits("unlabeled", "unlabeled_2")
    renamed = {name: z[:, order] for name, z in logits.items()}
    values = [NegativeSampling(Threshold(0.1))(forward(given)).item() for given in (logits, renamed)]
    assert values[0] == pytest.approx(values[1], rel=1e-10)


@pytest.mark.parametrize("selector", [Uniform(2), NearestNeighbor(), NearestNeighbor("furthest"), Oracle()])
def test_other_selectors_get_what_they_need(selector):
    rows, classes = 9, 4
    known = {
        "truth": {"unlabeled": torch.arange(rows) % classes},
        "neighbors": {"unlabeled": Draw(0).shuffles(rows, classes)},
    }
    term, fwd = NegativeSampling(selector, passes=1), forward(some_logits("unlabeled"), **known)
    assert term.needs == selector.needs - {"draw"}
    chosen = term.chosen(fwd)
    assert torch.equal(chosen.sum(1), torch.full((rows,), getattr(selector, "n", 1)))
    mu = softmax(fwd.logits["unlabeled"].numpy(), axis=1)
    expected = np.mean(-np.log(1 - np.sum(mu * chosen.numpy(), axis=1)))
    assert term(fwd).item() == pytest.approx(expected, rel=1e-8)


def test_negatives_are_drawn_afresh_in_every_step():
    fwd, term = forward(some_logits("unlabeled", rows=50)), NegativeSampling(Uniform(1), passes=1)
    later = replace(fwd, draw=fwd.draw.at(4))
    assert torch.equal(term.chosen(fwd), term.chosen(fwd))
    assert not torch.equal(term.chosen(fwd), term.chosen(later))


def test_golden_draw():
    """Pinned: stored runs depend on the name of the stream."""
    chosen = NegativeSampling(Uniform(2), passes=1).chosen(forward(some_logits("unlabeled", rows=3)))
    assert [row.nonzero().flatten().tolist() for row in chosen] == [[0, 3], [1, 2], [1, 2]]


def test_processes_draw_together_what_one_draws():
    term, fwd = NegativeSampling(Uniform(2), passes=1), forward(some_logits("unlabeled", rows=8))
    halves = [
        replace(fwd, logits={"unlabeled": part}, draw=replace(fwd.draw, shard=(rank, 2)))
        for rank, part in enumerate(fwd.logits["unlabeled"].split(4))
    ]
    assert torch.equal(torch.cat([term.chosen(half) for half in halves]), term.chosen(fwd))


def test_golden_value():
    logits = torch.tensor([[math.log(98.0), 0.0, 0.0], [0.0, 0.0, 0.0]])
    fwd = forward({"unlabeled": logits, "unlabeled_2": torch.zeros(2, 3)})
    assert NegativeSampling(Threshold(0.02), passes=1)(fwd).item() == pytest.approx(-math.log(0.98) / 2, rel=1e-6)
    assert NegativeSampling(Threshold(0.02), passes=2)(fwd).item() == pytest.approx(math.log(3) / 2, rel=1e-6)


def test_what_it_tells():
    logits = {"unlabeled": torch.tensor([[9.0, 0.0], [0.0, 9.0], [0.0, 0.0], [9.0, 0.0]])}
    fwd = forward(logits, truth={"unlabeled": torch.tensor([0, 0, 0, -1])})
    told = {name: number.item() for name, number in NegativeSampling(passes=1).diagnose(fwd).items()}
    assert told == {"marked": 0.375, "rows_without": 0.25, "true_marked": pytest.approx(1 / 3)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"passes": 0}, "passes is 1 or 2"),
        ({"passes": 1.0}, "passes is 1 or 2.*got 1.0"),
        ({"on": "labeled"}, "on 'unlabeled' or 'mixed', got 2 and 'labeled'"),
        ({"on": "mixed", "negatives": Oracle()}, "no single truth or neighbor, Oracle"),
    ],
)
def test_bad_settings(options, message):
    with pytest.raises(ValueError, match=message):
        NegativeSampling(**options)


def test_a_threshold_is_not_a_selector():
    with pytest.raises(TypeError, match=r"a selector such as Threshold\(0\.04\), got 0\.04"):
        NegativeSampling(0.04)
