"""Networks: the reference's counts and wiring, stateless initialisation, averages, and statistics that stand still."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from ns3l.draw import Draw
from ns3l.networks import MLP, NETWORKS, Average, SmallConvNet, WideResNet, build, frozen_statistics, initialize

FACTORIES = {
    "wide-resnet": lambda: WideResNet(10, depth=10, width=1),
    "small-conv-net": lambda: SmallConvNet(10, width=4),
    "mlp": lambda: MLP(10, features=12, hidden=(16, 8)),
}
INPUTS = {"wide-resnet": (6, 3, 16, 16), "small-conv-net": (6, 1, 8, 8), "mlp": (6, 12)}


def inputs(name: str, seed: int = 0) -> torch.Tensor:
    return torch.randn(INPUTS[name], generator=torch.Generator().manual_seed(seed))


def test_every_network_is_tested():
    assert set(FACTORIES) == set(NETWORKS)
    assert all(type(make()) is NETWORKS[name] for name, make in FACTORIES.items())


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({"classes": 10}, 1_467_610),
        ({"classes": 100}, 1_479_220),
        ({"classes": 10, "bias": True}, 1_469_642),
        ({"classes": 10, "bias": True, "groups": 4}, 5_933_770),
    ],
)
def test_parameter_counts_of_the_reference(options, count):
    assert sum(p.numel() for p in WideResNet(**options).parameters()) == count


def plain_wide_resnet(state: dict[str, torch.Tensor], x: torch.Tensor, groups: int) -> torch.Tensor:
    """The reference's forward pass written as a function of its weights; TensorFlow's SAME padding spelled out."""

    def conv(x, name, stride=1):
        weight, size = state[f"{name}.weight"], x.shape[2]
        total = max((math.ceil(size / stride) - 1) * stride + weight.shape[2] - size, 0)
        before, after = total // 2, total - total // 2
        return F.conv2d(F.pad(x, (before, after) * 2), weight, state.get(f"{name}.bias"), stride)

    def active(x, name):
        mean, var = x.mean((0, 2, 3), keepdim=True), x.var((0, 2, 3), keepdim=True, correction=0)
        scale, shift = state[f"{name}.weight"].view(1, -1, 1, 1), state[f"{name}.bias"].view(1, -1, 1, 1)
        x = (x - mean) / (var + 0.001).sqrt() * scale + shift
        return torch.maximum(x, 0.1 * x)

    x = conv(x, "stem")
    per_group = sum(name.endswith("conv_1.weight") for name in state) // groups
    for i in range(groups * per_group):
        stride = 2 if i >= per_group and i % per_group == 0 else 1
        inner = active(x, f"units.{i}.norm_1")
        skipped = inner if i == 0 else x
        inner = conv(active(conv(inner, f"units.{i}.conv_1", stride), f"units.{i}.norm_2"), f"units.{i}.conv_2")
        if f"units.{i}.shortcut.weight" in state:
            skipped = conv(skipped, f"units.{i}.shortcut", stride)
        x = inner + skipped
    return F.linear(active(x, "norm").mean((2, 3)), state["head.weight"], state["head.bias"])


@pytest.mark.parametrize(("size", "groups", "bias"), [(16, 3, False), (24, 4, True), (15, 3, True)])
def test_forward_pass_of_the_reference(size, groups, bias):
    network = WideResNet(5, depth=16, width=1, bias=bias, groups=groups).double()
    for p in network.parameters():
        nn.init.normal_(p, std=0.3)
    x = torch.randn(3, 3, size, size, dtype=torch.float64)
    assert torch.allclose(network(x), plain_wide_resnet(network.state_dict(), x, groups), rtol=1e-9)


@pytest.mark.parametrize(
    ("network", "shape"),
    [
        (WideResNet(10, depth=10), (2, 3, 32, 32)),
        (WideResNet(10, depth=10, groups=4, bias=True), (2, 3, 96, 96)),
        (WideResNet(10, depth=10, channels=1), (2, 1, 28, 28)),
        (SmallConvNet(7), (2, 1, 8, 8)),
        (SmallConvNet(7, channels=3), (2, 3, 28, 28)),
        (SmallConvNet(7), (2, 1, 5, 3)),
        (SmallConvNet(7, pool=True), (2, 1, 5, 3)),
        (SmallConvNet(7, pool=True), (2, 1, 1, 9)),
        (MLP(3, features=4), (2, 4)),
        (MLP(3, features=4, hidden=()), (2, 2, 2)),
    ],
)
def test_shapes_and_every_parameter_learns(network, shape):
    logits = network(torch.randn(shape))
    assert logits.shape == (2, network.head.out_features)
    logits.logsumexp(1).sum().backward()
    idle = [name for name, p in network.named_parameters() if not p.grad.abs().sum() > 0]
    assert not idle


def test_batch_norm_settings_of_the_reference():
    norms = [m for m in WideResNet(10, depth=10).modules() if isinstance(m, nn.BatchNorm2d)]
    assert len(norms) == 2 * 3 + 1
    assert {(norm.eps, norm.momentum) for norm in norms} == {(1e-3, 1e-3)}


@pytest.mark.parametrize(("name", "momentum"), [("wide-resnet", 1e-3), ("small-conv-net", 0.1), ("mlp", 0.1)])
def test_running_statistics_move_by_the_momentum(name, momentum):
    """Towards mean and unbiased variance of the rows that the first batch norm was given."""
    network, seen = FACTORIES[name](), []
    norm = next(m for m in network.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm))
    norm.register_forward_hook(lambda layer, given, made: seen.append(given[0].detach().transpose(0, 1).flatten(1)))
    network(inputs(name))
    torch.testing.assert_close(norm.running_mean, momentum * seen[0].mean(1))
    torch.testing.assert_close(norm.running_var, 1 - momentum + momentum * seen[0].var(1))
    network.eval()(inputs(name, 1))
    torch.testing.assert_close(norm.running_mean, momentum * seen[0].mean(1))


@pytest.mark.parametrize("name", NETWORKS)
def test_build_is_a_function_of_the_draw(name, untouched_random_state):
    first, again, other = (build(FACTORIES[name], Draw(seed)).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not torch.equal(first["head.weight"], other["head.weight"])


def test_build_of_a_stranger(untouched_random_state):
    first, again, other = (build(lambda: nn.Linear(3, 2), Draw(seed)).weight for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_golden_weights():
    """Pinned: stored runs depend on these bits."""
    weight = build(FACTORIES["mlp"], Draw(0)).head.weight
    assert weight[0, :3].tolist() == pytest.approx(
        [0.3507123589515686, -1.0472707748413086, -0.46094006299972534], rel=1e-6
    )


def test_initial_spread():
    """Over many weights: sqrt(2 / (k^2 outputs)) and Glorot in the WideResNet, sqrt(2 / fan-in) elsewhere."""
    wide, small, mlp = (
        build(make, Draw(3)) for make in (lambda: WideResNet(100), lambda: SmallConvNet(10), FACTORIES["mlp"])
    )
    for weight, expected in [
        (wide.stem.weight, math.sqrt(2 / (9 * 16))),
        (wide.units[4].conv_1.weight, math.sqrt(2 / (9 * 64))),
        (wide.units[4].shortcut.weight, math.sqrt(2 / 64)),
        (wide.head.weight, math.sqrt(2 / (128 + 100))),
        (small.body[3].weight, math.sqrt(2 / (9 * 32))),
        (mlp.body[0].weight, math.sqrt(2 / 12)),
    ]:
        error = 5 * expected / math.sqrt(2 * weight.numel())
        assert weight.std().item() == pytest.approx(expected, abs=error)
        assert abs(weight.mean().item()) < 5 * expected / math.sqrt(weight.numel())
    assert (wide.head.bias == 0).all()
    assert (wide.norm.weight == 1).all()


@pytest.mark.parametrize("name", NETWORKS)
def test_frozen_statistics(name):
    """The very logits of an ordinary pass, and no buffer moves; afterwards all is as before."""
    network = FACTORIES[name]()
    x = inputs(name)
    before = copy.deepcopy(network.state_dict())
    with frozen_statistics(network):
        still = network(x)
    after = network.state_dict()
    assert all(torch.equal(before[key], after[key]) for key in before)
    assert torch.equal(still, network(x))
    moved = [key for key, value in network.state_dict().items() if not torch.equal(before[key], value)]
    assert len(moved) == 2 * sum(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in network.modules())


def test_frozen_statistics_restores_after_an_error_and_leaves_eval_alone():
    network = FACTORIES["mlp"]()
    network.body[1].track_running_stats = False
    with pytest.raises(RuntimeError, match="inside"), frozen_statistics(network):
        raise RuntimeError("inside")
    assert [network.body[i].track_running_stats for i in (1, 4)] == [False, True]
    network = FACTORIES["mlp"]()
    network(inputs("mlp"))
    network.eval()
    with frozen_statistics(network):
        inside = network(inputs("mlp", 1))
    assert torch.equal(inside, network(inputs("mlp", 1)))


@pytest.mark.slow
def test_frozen_statistics_compile_whole():
    network = FACTORIES["mlp"]()

    def two_passes(x):
        first = network(x)
        with frozen_statistics(network):
            return first, network(x)

    compiled = torch.compile(two_passes, fullgraph=True)
    expected = copy.deepcopy(network)
    for count in (1, 2, 3):
        first, second = compiled(inputs("mlp", count))
        assert torch.allclose(first, second)
        expected(inputs("mlp", count))
        torch.testing.assert_close(network.body[1].running_var, expected.body[1].running_var)
        assert network.body[1].track_running_stats


@pytest.mark.parametrize("buffers", ["copy", "average"])
def test_average(buffers):
    """Against the recurrence in plain arithmetic over three updates."""
    network = FACTORIES["small-conv-net"]()
    network.body[1] = torch.nn.BatchNorm2d(network.body[1].num_features)  # which counts its batches, ours do not
    average = Average(network, 0.9, buffers)
    expected = {key: value.clone() for key, value in network.state_dict().items()}
    for step in range(3):
        with torch.no_grad():
            for p in network.parameters():
                p.add_(torch.randn(p.shape, generator=torch.Generator().manual_seed(step)))
        network(inputs("small-conv-net", step))
        average.update(network)
        for key, value in network.state_dict().items():
            averaged = key in dict(network.named_parameters()) or (buffers == "average" and value.is_floating_point())
            expected[key] = 0.9 * expected[key] + 0.1 * value if averaged else value.clone()
    held = average.network.state_dict()
    assert all(torch.allclose(held[key].double(), expected[key].double(), atol=1e-6) for key in expected)
    assert held["body.1.num_batches_tracked"] == 3


def test_average_is_apart_and_without_gradient():
    network = FACTORIES["mlp"]()
    average = Average(network, 0.5)
    assert not any(p.requires_grad for p in average.network.parameters())
    assert all(p.requires_grad for p in network.parameters())
    before = copy.deepcopy(network.state_dict())
    with torch.no_grad():
        average.network.head.weight.zero_()
    average.update(network)
    assert torch.equal(network.head.weight, before["head.weight"])
    assert torch.allclose(average.network.head.weight, 0.5 * before["head.weight"])


def test_bad_arguments():
    for make, told in [
        (lambda: WideResNet(1), "classes: a whole number of at least 2, but got 1"),
        (lambda: WideResNet("10"), "classes: a whole number of at least 2, but got '10'"),
        (lambda: WideResNet(10, depth=28.0), r"10, 16, 22, 28, .* but got 28\.0"),
        (lambda: WideResNet(10, depth=27), r"10, 16, 22, 28, .* but got 27"),
        (lambda: WideResNet(10, width=0), "width: .* at least 1, but got 0"),
        (lambda: WideResNet(10, groups=2.0), r"groups: a whole number of at least 1, but got 2\.0"),
        (lambda: SmallConvNet(0), "classes: .* at least 2, but got 0"),
        (lambda: SmallConvNet(10, channels=0), "channels: .* at least 1"),
        (lambda: MLP(1, 4), "classes: .* at least 2"),
        (lambda: MLP(2, 0), "features: .* at least 1"),
        (lambda: MLP(2, 4, (3, 0)), r"hidden\[1\]: .* at least 1, but got 0"),
        (lambda: MLP(2, 4, 16), r"hidden sizes such as \(256, 256\), but got 16"),
        (lambda: Average(MLP(2, 4), "0.9"), r"\[0, 1\), but got '0.9'"),
        (lambda: Average(MLP(2, 4), 1.0), r"\[0, 1\), but got 1.0"),
        (lambda: Average(MLP(2, 4), 0.9, "own"), '"copy" or "average", but got \'own\''),
    ]:
        with pytest.raises(ValueError, match=told):
            make()


def test_initialize_twice_is_the_same():
    network = FACTORIES["wide-resnet"]()
    initialize(network, Draw(4))
    first = copy.deepcopy(network.state_dict())
    network(inputs("wide-resnet"))
    initialize(network, Draw(4))
    assert all(torch.equal(first[key], value) for key, value in network.state_dict().items())
