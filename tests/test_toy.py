"""The toy example: an independent NumPy run with the section's formulas, and what its docstring says."""

import numpy as np
import pytest

from ns3l.toy import UPDATES, picture, toy


def by_hand(found, update: str, threshold: float, steps: int) -> float:
    """Gradient descent with mu = sigmoid(a x + b) = P(class 1) and the gradients of Section 3.2, sign by class."""
    labeled, unlabeled = found.labeled.numpy(), found.unlabeled.numpy()
    truth = np.repeat([1, 0], 10)
    a, b = -1.0, 0.0
    for step in range(2 * steps):
        slack = 1 / (1 + np.exp(-(a * labeled + b))) - truth
        grad_a, grad_b = (slack * labeled).mean(), slack.mean()
        mu = 1 / (1 + np.exp(-(a * unlabeled + b)))
        sign = np.where(mu > 0.5, 1, -1)  # towards which class the point is predicted
        predicted = np.maximum(mu, 1 - mu)
        certain = predicted > 1 - threshold
        force = predicted * sign if update == "ns3l, as displayed" else -(1 - predicted) * sign  # mu x or -(1 - mu) x
        if step >= steps and update != "supervised":
            grad_a += (force * certain * unlabeled).mean()
            grad_b += (force * certain).mean()
        a, b = a - grad_a, b - grad_b
    return -b / a


@pytest.mark.parametrize("seed", [0, 1])
def test_equals_the_formulas_of_the_section(seed, untouched_random_state):
    found = toy(seed, steps=100)
    for update in UPDATES:
        assert found.separating[update] == pytest.approx(by_hand(found, update, 0.1, 100), rel=1e-6), update


def test_with_two_classes_the_loss_as_written_is_the_inductive_one():
    found = toy(2, steps=100)
    assert found.path["ns3l, as written"] == pytest.approx(found.path["inductive"], rel=1e-9)
    assert found.path["ns3l, as displayed"][-1] != pytest.approx(found.path["inductive"][-1], abs=1e-3)


def test_what_the_docstring_tells():
    """Biased labels put the point left of the truth; the displayed formula moves it back and flattens the line."""
    for seed in range(3):
        found = toy(seed, steps=200)
        start = found.path["supervised"][found.begun - 1]
        assert start < -0.1
        assert start < found.separating["ns3l, as displayed"] < 0
        assert found.slope["ns3l, as displayed"] < found.slope["supervised"] / 2


def test_the_points_lie_where_the_section_puts_them():
    """Labels from two intervals that are not symmetric about w* = 0, unlabeled points from all of [-1, 1]."""
    found = toy(0, steps=1)
    left, right, points = found.labeled[:10], found.labeled[10:], found.unlabeled
    for x, low, high in ((left, -1, -0.6), (right, 0, 0.4), (points, -1, 1)):
        assert low < x.min() < x.max() < high
        assert x.max() - x.min() > 0.7 * (high - low)
    assert abs(points.mean()) < 5 * (1 / 3 / len(points)) ** 0.5


def test_golden_value():
    assert toy(0, steps=100).separating["supervised"] == pytest.approx(-0.30910706525166187, rel=1e-9)


def test_repeats():
    assert toy(1, steps=20).path == toy(1, steps=20).path
    assert toy(1, steps=20).path != toy(2, steps=20).path


@pytest.mark.parametrize("steps", [0, 1.5])
def test_it_takes_steps(steps):
    with pytest.raises(ValueError, match=f"whole number of steps, at least 1, but got {steps}"):
        toy(steps=steps)


def test_picture(tmp_path):
    found = picture(tmp_path / "toy.png")
    assert found.begun == 500
    assert (tmp_path / "toy.png").read_bytes()[:4] == b"\x89PNG"
