"""Optimizers against torch.optim, the flat vector, what is refused."""

import pytest
import torch
from torch import nn

from ns3l.flat import Flat
from ns3l.optimize import SGD, Adam, clipped
from ns3l.schedule import StepDecay


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(48, 4)).double()


def loss_of(net, step):
    x = torch.sin(torch.arange(2.0 * 5 * 36, dtype=torch.float64) + step).view(5, 2, 6, 6)
    return (net(x) ** 2).mean() + net(x).sum() * 0.1


def kernels_first(net):
    return [
        {"params": [p for p in net.parameters() if p.dim() > 1]},
        {"params": [p for p in net.parameters() if p.dim() == 1], "weight_decay": 0.0},
    ]


OURS_AND_TORCHS = {
    "adam": (Adam(1e-2), lambda net: torch.optim.Adam(net.parameters(), 1e-2)),
    "adam betas": (
        Adam(1e-2, (0.8, 0.95), 1e-6),
        lambda net: torch.optim.Adam(net.parameters(), 1e-2, (0.8, 0.95), 1e-6),
    ),
    "adamw kernels": (
        Adam(1e-2, weight_decay=0.3),
        lambda net: torch.optim.AdamW(kernels_first(net), 1e-2, weight_decay=0.3),
    ),
    "adamw all": (
        Adam(1e-2, weight_decay=0.3, decays="all"),
        lambda net: torch.optim.AdamW(net.parameters(), 1e-2, weight_decay=0.3),
    ),
    "sgd": (SGD(1e-2, 0.0), lambda net: torch.optim.SGD(net.parameters(), 1e-2)),
    "momentum": (
        SGD(1e-2, 0.9, weight_decay=0.1),
        lambda net: torch.optim.SGD(kernels_first(net), 1e-2, 0.9, weight_decay=0.1),
    ),
    "nesterov": (
        SGD(1e-2, 0.9, nesterov=True),
        lambda net: torch.optim.SGD(net.parameters(), 1e-2, 0.9, nesterov=True),
    ),
}


@pytest.mark.parametrize("onboard", [False, True])
@pytest.mark.parametrize("clip", [None, 0.5])
@pytest.mark.parametrize("name", OURS_AND_TORCHS)
def test_steps_are_those_of_torch(name, clip, onboard):
    ours, theirs = OURS_AND_TORCHS[name]
    ours = type(ours)(**{**ours.__dict__, "clip": clip})
    mine, other = network(), network()
    flat, optimizer = Flat(mine), theirs(other)
    moments, decayed = ours.start(flat.vector), flat.decayed(ours.decays)
    for step in range(6):
        gradient = flat.gradient(loss_of(mine, step))
        count = torch.tensor(step) if onboard else step
        weights, moments = ours.update(flat.vector, gradient, moments, count, decayed)
        flat.vector.copy_(weights)
        optimizer.zero_grad()
        loss_of(other, step).backward()
        if clip:
            nn.utils.clip_grad_norm_(other.parameters(), clip)
        optimizer.step()
    for p, q in zip(mine.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-7)


def test_a_scheduled_learning_rate_is_that_of_the_step():
    weights, gradient = torch.ones(2), torch.ones(2)
    made = SGD(StepDecay(0.5, 3, 0.1), 0.0)
    for step, expected in ((0, 0.5), (2, 0.5), (3, 0.95)):
        after, _ = made.update(weights, gradient, made.start(weights), torch.tensor(step), torch.ones(2))
        torch.testing.assert_close(after, torch.full((2,), expected))


def test_a_short_gradient_is_not_clipped():
    assert torch.equal(clipped(torch.tensor([0.3, 0.4]), 1.0), torch.tensor([0.3, 0.4]))
    torch.testing.assert_close(clipped(torch.tensor([3.0, 4.0]), 1.0), torch.tensor([0.6, 0.8]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Adam(-1.0), "learning rate is a finite number of at least 0"),
        (lambda: Adam(float("nan")), "learning rate"),
        (lambda: Adam(betas=(1.0, 0.9)), r"betas in \[0, 1\)"),
        (lambda: Adam(decays="some"), "decays 'kernels' or 'all'"),
        (lambda: SGD(momentum=1.0), r"momentum in \[0, 1\), got 1.0"),
        (lambda: SGD(clip=0.0), "clip positive or None"),
    ],
)
def test_what_cannot_be_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
