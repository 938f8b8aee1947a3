"""Schedules against their formulas in NumPy, for whole numbers and for tensors alike."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ns3l.schedule import SCHEDULES, Constant, Cosine, LinearRamp, Ramp, StepDecay, at

EVERY = [Constant(0.3), LinearRamp(2.0, 40), Ramp(1.5, 50), StepDecay(3e-3, 30, 0.2), Cosine(0.03, 60, 0.001)]


def formula(schedule, t: np.ndarray) -> np.ndarray:
    match schedule:
        case Constant(v):
            return np.full(t.shape, v)
        case LinearRamp(v, steps):
            return np.interp(t, [0, steps], [0, v])
        case Ramp(v, steps):
            return v * np.exp(-5 * np.square(1 - np.minimum(t, steps) / steps))
        case StepDecay(v, late, factor):
            return np.where(t < late, v, v * factor)
        case Cosine(v, steps, final):
            return np.where(t < steps, final + (v - final) * np.cos(np.pi * t / (2 * steps)) ** 2, final)


def test_every_schedule_is_tested():
    assert {type(schedule) for schedule in EVERY} == set(SCHEDULES.values())


@pytest.mark.parametrize("schedule", EVERY, ids=repr)
def test_equals_its_formula(schedule):
    t = np.arange(120)
    assert [schedule(int(step)) for step in t] == pytest.approx(formula(schedule, t).tolist(), rel=1e-12, abs=1e-15)
    assert isinstance(schedule(3), float)


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(EVERY), st.integers(0, 10**7))
def test_tensor_and_number_agree(schedule, step):
    shown = schedule(torch.tensor(step))
    assert shown.shape == ()
    assert shown.dtype == torch.float32
    assert shown.item() == pytest.approx(schedule(step), rel=1e-7)


def test_golden_values():
    assert Ramp(1.0, 50_000)(0) == pytest.approx(0.006737946999085467, rel=1e-14)
    assert Ramp(1.0, 50_000)(25_000) == pytest.approx(0.2865047968601901, rel=1e-14)
    assert Ramp(0.3, 50_000)(50_000) == 0.3
    assert LinearRamp(75.0, 16_384)(8_192) == 37.5
    assert [StepDecay(1.0, 130_000, 0.25)(step) for step in (129_999, 130_000)] == [1.0, 0.25]
    assert [round(Cosine(2.0, 4)(step), 6) for step in range(6)] == [2.0, 1.707107, 1.0, 0.292893, 0.0, 0.0]


def test_scaled():
    assert Ramp(1.0, 50_000).scaled(0.25) == Ramp(1.0, 12_500)
    assert StepDecay(3e-3, 130_000, 0.2).scaled(0.15) == StepDecay(3e-3, 19_500, 0.2)
    assert LinearRamp(1.0, 10).scaled(1e-6) == LinearRamp(1.0, 1)
    assert Cosine(1.0, 3).scaled(0.5) == Cosine(1.0, 2)
    assert Constant(1.0).scaled(0.5) == Constant(1.0)
    for wrong in (0, -1, math.nan, math.inf, "2"):
        for schedule in EVERY:
            with pytest.raises(ValueError, match="factor above 0"):
                schedule.scaled(wrong)


def test_at_takes_numbers_and_schedules():
    assert at(2, 10) == 2.0
    assert at(LinearRamp(2.0, 40), 10) == 0.5
    assert at(LinearRamp(2.0, 40), torch.tensor(10)).item() == 0.5


@pytest.mark.parametrize("schedule", EVERY, ids=repr)
def test_repr_round_trips(schedule):
    assert eval(repr(schedule)) == schedule


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Constant(-1.0), "value of a schedule must be a finite number of at least 0, but got -1.0"),
        (lambda: LinearRamp(math.nan, 10), "value .* but got nan"),
        (lambda: Ramp(1.0, 0), "steps of a schedule must be a whole number of at least 1, but got 0"),
        (lambda: Ramp(1.0, 2.5), "steps .* but got 2.5"),
        (lambda: StepDecay(1.0, 0, 0.5), "at of a schedule must be a whole number"),
        (lambda: StepDecay(1.0, 5, math.inf), "factor .* but got inf"),
        (lambda: Cosine(1.0, 5, -0.1), "final .* but got -0.1"),
        (lambda: Ramp(True, 10), "value .* but got True"),
        (lambda: Ramp(1.0, True), "steps .* but got True"),
        (lambda: Constant("1"), "value .* but got '1'"),
    ],
)
def test_bad_numbers(make, told):
    with pytest.raises(ValueError, match=told):
        make()


@pytest.mark.slow
def test_compiles_whole():
    def sweep(step):
        return torch.stack([schedule(step) for schedule in EVERY])

    compiled = torch.compile(sweep, fullgraph=True)
    for step in (0, 17, 45, 1000):
        assert torch.allclose(compiled(torch.tensor(step)), sweep(torch.tensor(step)), rtol=1e-6)
