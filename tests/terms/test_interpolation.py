"""Interpolation consistency, recomputed with the drawn shares and partners."""

import math

import numpy as np
import pytest
import torch
from scipy.special import softmax
from tests.terms import scene

from ns3l.draw import Draw
from ns3l.objective import Objective
from ns3l.terms.interpolation import InterpolationConsistency


def test_reference():
    net, draw = scene.network().double(), Draw(3, 10)
    average, batch = scene.teacher(net), scene.batch(torch.float64)
    value = Objective(ict=(1.0, InterpolationConsistency(0.5)))(net, batch, draw, average).parts["ict"].item()
    joint = batch.augment(torch.cat(list(batch.x.values())), draw.stream("augment/teacher")).numpy()
    mixed, shares, partners = [], {}, {}
    for view, rows in (("labeled", joint[: scene.LABELED]), ("unlabeled", joint[scene.LABELED :])):
        own = draw.stream(f"term/ict/{view}")
        shares[view] = own.stream("share").beta(0.5, len(rows)).double().numpy()[:, None]
        partners[view] = own.stream("partner").permutation(len(rows)).numpy()
        mixed.append(shares[view] * rows + (1 - shares[view]) * rows[partners[view]])
    with torch.no_grad():
        student, teacher = (
            softmax(network(torch.from_numpy(rows))[scene.LABELED :].numpy(), axis=1)
            for network, rows in ((net, np.concatenate(mixed)), (average, joint))
        )
    share = shares["unlabeled"]
    target = share * teacher + (1 - share) * teacher[partners["unlabeled"]]
    assert value == pytest.approx(np.mean((student - target) ** 2), rel=1e-9)


def test_every_row_has_its_own_share():
    share, partner = InterpolationConsistency()._mixing(Draw(0), 100)
    assert len(share.unique()) > 95 and sorted(partner.tolist()) == list(range(100))


def test_golden_value():
    net = scene.network().double()
    losses = Objective(ict=(1.0, InterpolationConsistency()))(
        net, scene.batch(torch.float64), Draw(3, 10), scene.teacher(net)
    )
    assert losses.parts["ict"].item() == pytest.approx(0.09880610610620529, rel=1e-6)


@pytest.mark.parametrize("wrong", [-1.0, 0.0, math.inf, math.nan, "1", True])
def test_bad_settings(wrong):
    with pytest.raises(ValueError, match=f"is positive and finite, got {wrong!r}"):
        InterpolationConsistency(wrong)
