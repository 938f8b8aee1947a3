"""The weights as one vector: views, gradients in its order, passes that read them rounded in one piece."""

import pytest
import torch
from torch import nn

from ns3l.flat import Flat, FromVector
from ns3l.networks import SmallConvNet, frozen_statistics
from ns3l.passes import as_written
from ns3l.terms.vat import constant_weights


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(48, 4)).double()


@pytest.mark.parametrize("channels_last", [False, True])
def test_parameters_are_views_of_the_vector_and_gradients_in_its_order(channels_last):
    net = SmallConvNet(3, width=4)
    if channels_last:
        net = net.to(memory_format=torch.channels_last)
    before = [p.detach().clone() for p in net.parameters()]
    flat = Flat(net)
    assert all(torch.equal(p, b) for p, b in zip(net.parameters(), before, strict=True))
    kernel = next(p for p in net.parameters() if p.dim() == 4 and p.shape[1] > 1)
    assert kernel.is_contiguous(memory_format=torch.channels_last) == channels_last
    x = torch.randn(4, 1, 8, 8)
    expected = torch.autograd.grad(net(x).square().sum(), list(net.parameters()))
    gradient = flat.gradient(net(x).square().sum())
    flat.vector.sub_(gradient)
    for p, b, g in zip(net.parameters(), before, expected, strict=True):
        torch.testing.assert_close(p, b - g)


def test_kernels_may_be_wider_than_high():
    net, x = nn.Conv2d(2, 3, (1, 3)).to(memory_format=torch.channels_last), torch.randn(1, 2, 4, 4)
    before = net(x)
    assert Flat(net).nhwc == [True, False]
    assert torch.equal(net(x), before)


def test_weights_that_a_loss_does_not_read_have_gradient_zero_and_frozen_ones_none():
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2))
    net[2].requires_grad_(False)
    flat = Flat(net)
    assert len(flat.vector) == 12
    gradient = flat.gradient(net[0](torch.ones(1, 2)).sum())
    assert gradient[:6].all() and not gradient[6:].any()
    assert torch.equal(flat.gradient(torch.ones((), requires_grad=True) * 2), torch.zeros(12))


def test_decay_spares_biases_and_batch_norm():
    net = network()
    flat = Flat(net)
    parts = flat.decayed("kernels").split([p.numel() for p in flat.parameters])
    marked = dict(zip(flat.names, parts, strict=True))
    assert {name for name, mark in marked.items() if mark.all()} == {"0.weight", "3.weight"}
    assert {name for name, mark in marked.items() if not mark.any()} == {"0.bias", "1.weight", "1.bias", "3.bias"}
    assert flat.decayed("all").all()


@pytest.mark.parametrize(
    ("net", "message"),
    [
        (nn.ReLU(), "needs parameters"),
        (nn.ModuleList([nn.Linear(1, 1), nn.Linear(1, 1).double()]), "all of one dtype"),
        (nn.ModuleList([nn.Linear(1, 1), nn.Linear(1, 1, device="meta")]), "on one device"),
    ],
)
def test_what_cannot_be_trained_is_refused(net, message):
    with pytest.raises(ValueError, match=message):
        Flat(net)


def half(x, network):
    with torch.autocast("cpu", torch.bfloat16):
        return network(x).float()


@pytest.mark.parametrize("channels_last", [False, True])
def test_rounding_in_one_piece_is_what_autocast_does_one_by_one(channels_last):
    net, x = SmallConvNet(3, width=4), torch.randn(6, 1, 8, 8)
    if channels_last:
        net = net.to(memory_format=torch.channels_last)
    flat = Flat(net, rounds=True)
    with frozen_statistics(net):
        one_by_one = half(x, net)
        expected = flat.gradient(one_by_one.square().sum())
        whole = FromVector(net, flat, as_written)
        assert torch.equal(half(x, whole), one_by_one)
        torch.testing.assert_close(flat.gradient(half(x, whole).square().sum()), expected, rtol=0, atol=0)
        torch.testing.assert_close(whole(x), net(x), rtol=0, atol=0)


def test_what_autocast_rounds_is_rounded_to_its_precision_and_nothing_else():
    normed = nn.utils.parametrizations.weight_norm(nn.Linear(3, 3, bias=False))
    net = nn.Sequential(nn.Linear(2, 2), nn.Conv1d(2, 3, 1), nn.BatchNorm1d(3), normed)
    net[0].requires_grad_(False)
    seen = []
    whole = FromVector(net, Flat(net, rounds=True), lambda run: lambda weights, x: seen.append(weights))
    for precision in (torch.bfloat16, torch.float16, None):
        with torch.autocast("cpu", precision, enabled=precision is not None):
            whole(torch.ones(1))
        kinds = {name: weight.dtype for name, weight in seen.pop().items()}
        assert {kinds.pop("1.weight"), kinds.pop("1.bias")} == {precision or torch.float32}
        assert set(kinds.values()) == {torch.float32}


def test_gradients_of_two_passes_are_summed_in_full_precision():
    net, x = nn.Sequential(nn.Linear(5, 3)), torch.randn(2, 4, 5)
    flat = Flat(net, rounds=True)
    whole = FromVector(net, flat, as_written)
    each = [flat.gradient(half(rows, whole).square().sum()) for rows in x]
    both = flat.gradient(half(x[0], whole).square().sum() + half(x[1], whole).square().sum())
    assert torch.equal(both, each[0] + each[1])


def test_a_pass_reads_the_vector_as_it_is_now_and_constant_weights_learn_nothing():
    net, x = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)), torch.randn(4, 3)
    flat = Flat(net, rounds=True)
    whole = FromVector(net, flat, as_written).eval()
    before = whole(x)
    flat.vector.mul_(2)
    assert not torch.equal(whole(x), before) and torch.equal(whole(x), net.eval()(x))
    assert whole(x).requires_grad
    with constant_weights(whole):
        assert not whole(x).requires_grad
        assert whole(x.requires_grad_()).requires_grad


def test_layers_that_share_weights_with_others_are_not_rounded():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.head, self.words = nn.Linear(4, 7, bias=False), nn.Embedding(7, 4)
            self.words.weight = self.head.weight
            self.body = nn.Linear(4, 4)

        def forward(self, x):
            return self.head(self.body(self.words(x)))

    net, x = Tied(), torch.tensor([1, 5])
    flat = Flat(net, rounds=True)
    assert flat.names == ["body.weight", "body.bias", "head.weight"] and flat.rounded == 2
    expected = half(x, net)
    assert torch.equal(half(x, FromVector(net, flat, as_written)), expected)


@pytest.mark.filterwarnings("ignore:The .grad attribute")
@pytest.mark.parametrize("compile", [as_written, torch.compile])
def test_a_weight_that_is_read_past_its_name_learns_too(compile):
    class Aside(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 2)
            self.kept = [self.layer.weight]  # no name: functional calls do not see it

        def forward(self, x):
            return self.layer(x) + x.square() @ self.kept[0].T

    net, x = Aside(), torch.randn(4, 3)
    flat = Flat(net, rounds=True)
    expected = flat.gradient(net(x).square().sum())
    found = flat.gradient(FromVector(net, flat, compile)(x).square().sum())
    torch.testing.assert_close(found, expected)
    only = flat.gradient((x.square() @ net.kept[0].T).sum())
    assert only.any() and not only[-2:].any()
