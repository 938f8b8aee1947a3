"""MixMatch and mixup against NumPy, given the same draws; guesses, shares, targets."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax
from tests.terms import scene

from ns3l.draw import Draw
from ns3l.mixmatch import BUILDERS, MixMatch, Mixup, guessed, mix, shares, sharpen
from ns3l.passes import Passes

BUILD = pytest.mark.parametrize("build", [MixMatch(), Mixup()], ids=list(reversed(BUILDERS)))


def passes(net=None):
    return Passes(net or scene.network().double(), None, scene.batch(torch.float64), Draw(3, 10))


def predict(net, x):
    with torch.no_grad():
        return softmax(net(torch.from_numpy(x)).numpy(), axis=1)


def mixed(x, y, draw, alpha):
    """Mixing row by row with the draws of a stream."""
    share = draw.stream("share").beta(alpha, len(x)).numpy()
    partner = draw.stream("partner").permutation(len(x)).tolist()
    pairs = []
    for i, j in enumerate(partner):
        most = float(max(share[i], np.float32(1) - share[i]))
        pairs.append((most * x[i] + (1 - most) * x[j], most * y[i] + (1 - most) * y[j]))
    return (np.stack(part) for part in zip(*pairs, strict=True))


@pytest.mark.parametrize(("augmentations", "temperature"), [(1, 1.0), (2, 0.5), (3, 0.25)])
def test_mixmatch_is_its_paper(augmentations, temperature):
    step, net = passes(), scene.network().double()
    views = MixMatch(augmentations, temperature, alpha=0.5)(step)
    clean = torch.cat(list(step.batch.x.values()))
    renders = [step.batch.augment(clean, step.draw.stream(f"augment/guess_{a}")).numpy() for a in range(augmentations)]
    unlabeled = [render[scene.LABELED :] for render in renders]
    mean = sum(predict(net, x) for x in unlabeled) / augmentations
    guess = mean ** (1 / temperature) / np.sum(mean ** (1 / temperature), axis=1, keepdims=True)
    known = np.eye(scene.CLASSES)[step.batch.y["labeled"].numpy()]
    x, y = np.concatenate([renders[0][: scene.LABELED], *unlabeled]), np.concatenate([known] + [guess] * augmentations)
    x, y = mixed(x, y, step.draw.stream("mixmatch"), 0.5)
    for part, expected in ((views.x, x), (views.y, y)):
        np.testing.assert_allclose(part["mixed_labeled"], expected[: scene.LABELED], rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(part["mixed_unlabeled"], expected[scene.LABELED :], rtol=1e-9, atol=1e-12)


def test_mixup_mixes_each_part_within_itself():
    step, net = passes(), scene.network().double()
    views = Mixup(alpha=0.5)(step)
    clean = torch.cat(list(step.batch.x.values()))
    render = step.batch.augment(clean, step.draw.stream("augment/first")).numpy()
    labeled, unlabeled = render[: scene.LABELED], render[scene.LABELED :]
    known = np.eye(scene.CLASSES)[step.batch.y["labeled"].numpy()]
    guess = predict(net, render)[scene.LABELED :]  # by a joint pass, as all passes are
    for view, x, y in (("mixed_labeled", labeled, known), ("mixed_unlabeled", unlabeled, guess)):
        x, y = mixed(x, y, step.draw.stream(f"mixup/{view}"), 0.5)
        np.testing.assert_allclose(views.x[view], x, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(views.y[view], y, rtol=1e-9, atol=1e-12)


@BUILD
def test_targets_are_distributions_and_take_no_gradient(build):
    views = build(passes())
    assert tuple(views.x) == tuple(views.y) == build.makes
    for y in views.y.values():
        assert not y.requires_grad and (y >= 0).all()
        torch.testing.assert_close(y.sum(1), torch.ones(len(y), dtype=y.dtype))


@BUILD
def test_guess_passes_move_nothing(build):
    net = scene.Counted(scene.network())
    before = scene.buffers(net)
    build(Passes(net, None, scene.batch(), Draw(0)))
    assert net.seen and not any(moved for _, moved in net.seen)
    assert scene.same(before, scene.buffers(net))
    rows = scene.UNLABELED if isinstance(build, MixMatch) else scene.LABELED + scene.UNLABELED
    assert all(len(x) == rows for x, _ in net.seen)  # MixMatch guesses on the unlabeled alone, as its paper does


@given(alpha=st.floats(0.1, 4), seed=st.integers(0, 100))
def test_shares_favor_the_row_itself_and_differ_by_row(alpha, seed):
    share = shares(Draw(seed), alpha, 64)
    assert (share >= 0.5).all() and (share <= 1).all()
    assert len(share.unique()) > 32


@given(seed=st.integers(0, 100), temperature=st.floats(0.1, 1))
def test_sharpening_keeps_the_order_and_lowers_entropy(seed, temperature):
    p = scene.some_logits("p", seed=seed)["p"].softmax(1)
    sharp = sharpen(p, temperature)
    torch.testing.assert_close(sharp.sum(1), torch.ones(len(p), dtype=p.dtype))
    assert torch.equal(sharp.argmax(1), p.argmax(1))
    assert (sharp.amax(1) >= p.amax(1) - 1e-12).all()


def test_sharpening_golden_values():
    p = torch.tensor([[0.6, 0.3, 0.1], [1.0, 0.0, 0.0]], dtype=torch.float64)
    expected = [[0.36 / 0.46, 0.09 / 0.46, 0.01 / 0.46], [1.0, 0.0, 0.0]]
    torch.testing.assert_close(sharpen(p, 0.5), torch.tensor(expected, dtype=torch.float64))


def test_mix_golden_values():
    x, y = torch.tensor([[0.0, 8.0], [4.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    mixed_x, mixed_y = mix(x, y, torch.tensor([0.75, 1.0]), torch.tensor([1, 0]))
    assert mixed_x.tolist() == [[1.0, 6.0], [4.0, 0.0]] and mixed_y.tolist() == [[0.75, 0.25], [0.0, 1.0]]


def test_images_mix_whole():
    x, y = torch.stack([torch.zeros(3, 2, 2), torch.ones(3, 2, 2)]), torch.eye(2)
    mixed_x, _ = mix(x, y, torch.tensor([0.75, 0.5]), torch.tensor([1, 0]))
    assert mixed_x.flatten(1).tolist() == [[0.25] * 12, [0.5] * 12]


def test_a_guess_is_the_mean_over_renderings():
    step = passes()
    views = [step.unlabeled(step.render(name)) for name in ("a", "b")]
    each = [guessed(step, [view], 1.0) for view in views]
    torch.testing.assert_close(guessed(step, views, 1.0), (each[0] + each[1]) / 2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MixMatch(augmentations=0), "augmentations >= 1, temperature > 0 and alpha > 0"),
        (lambda: MixMatch(temperature=0.0), "temperature=0.0"),
        (lambda: MixMatch(alpha=-1.0), "alpha=-1.0"),
        (lambda: MixMatch(augmentations=1.5), "whole augmentations >= 1.*augmentations=1.5"),
        (lambda: MixMatch(temperature="1"), "temperature='1'"),
        (lambda: MixMatch(alpha=math.inf), "alpha=inf"),
        (lambda: Mixup(alpha=0.0), "alpha > 0, got 0.0"),
        (lambda: Mixup(alpha=math.nan), "alpha > 0, got nan"),
    ],
)
def test_bad_settings(make, message):
    with pytest.raises(ValueError, match=message):
        make()
