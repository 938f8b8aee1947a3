"""What the tests of terms and objectives share: a small active network, a batch, a forward pass made by hand."""

import copy
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ns3l.batch import Batch
from ns3l.draw import Draw
from ns3l.networks import MLP, Average, build
from ns3l.objective import Forward

CLASSES, FEATURES, LABELED, UNLABELED = 4, 6, 8, 12


def noise(x: Tensor, draw: Draw) -> Tensor:
    """An augmentation that no two renderings share."""
    return x + (0.2 * draw.normal(x.shape)).to(x.dtype)


def network(seed: int = 0) -> nn.Module:
    """A network with batch norm whose logits are spread wide enough for every threshold to split the rows."""
    net = build(lambda: MLP(CLASSES, FEATURES, hidden=(16, 16)), Draw(seed).stream("network"))
    with torch.no_grad():
        net.head.weight *= 3
    return net


def teacher(net: nn.Module) -> nn.Module:
    """An averaged network that differs from its student."""
    average = Average(network(1).to(next(net.parameters()).dtype), decay=0.5)
    average.update(net)
    return average.network


def batch(dtype: torch.dtype = torch.float32, augment=noise) -> Batch:
    """Labeled and unlabeled rows with all that a selector may ask for."""
    draw = Draw(0).stream("batch")
    x = draw.normal((LABELED + UNLABELED, FEATURES)).to(dtype)
    y = draw.stream("y").integers(0, CLASSES, LABELED + UNLABELED)
    return Batch(
        {"labeled": x[:LABELED], "unlabeled": x[LABELED:]},
        {"labeled": y[:LABELED]},
        augment,
        {"unlabeled": y[LABELED:]},
        {"unlabeled": draw.stream("ranks").shuffles(UNLABELED, CLASSES).to(torch.int16)},
    )


def forward(logits: Mapping[str, Tensor], y: Mapping[str, Tensor] | None = None, **known) -> Forward:
    """A forward pass with these logits, for a term that is called by itself."""
    return Forward(Batch({}, dict(y or {}), **known), dict(logits), Draw(5, 3))


def some_logits(*names: str, rows: int = 9, classes: int = CLASSES, seed: int = 0, scale: float = 3.0) -> dict:
    """Random float64 logits for some views."""
    return {name: scale * Draw(seed).stream(name).normal((rows, classes)).double() for name in names}


class Counted(nn.Module):
    """A network that counts its passes and keeps what it was given and whether running statistics moved."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.seen: list[tuple[Tensor, bool]] = []

    def forward(self, x: Tensor) -> Tensor:
        tracking = [m.track_running_stats for m in self.modules() if isinstance(m, nn.BatchNorm1d)]
        assert len(set(tracking)) == 1
        self.seen.append((x.detach(), tracking[0]))
        return self.inner(x)


def buffers(net: nn.Module) -> dict[str, Tensor]:
    """A copy of a network's running statistics."""
    return {name: buffer.clone() for name, buffer in net.named_buffers()}


def moved_by(net: nn.Module, x: Tensor) -> dict[str, Tensor]:
    """The running statistics that one plain pass over x would leave."""
    other = copy.deepcopy(net).train()
    with torch.no_grad():
        other(x)
    return buffers(other)


def same(left: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> bool:
    """Whether two dicts of tensors are equal bit for bit."""
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)
