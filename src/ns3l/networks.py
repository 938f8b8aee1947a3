"""Networks that map a batch to logits, their initialisation, their average, and batch norm that stands still.

Any `torch.nn.Module` from x to logits can take the place of these.
"""

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ns3l.draw import Draw
from ns3l.errors import is_number, is_whole

SLOPE = 0.1
"""Slope of the leaky ReLU left of zero, in every network here."""


def _require_whole(least: int, **sizes: Any) -> None:
    for name, size in sizes.items():
        _require(is_whole(size) and size >= least, f"{name}: a whole number of at least {least}", size)


def _require(holds: bool, what: str, came: object) -> None:
    if not holds:
        raise ValueError(f"a network needs {what}, but got {came!r}; change that argument")


class _Conv(nn.Conv2d):
    """A convolution with outputs of size ceil(size / stride): stride 2 pads even sides at the bottom and right only."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, bias: bool) -> None:
        super().__init__(inputs, outputs, kernel, stride, padding=kernel // 2 if stride == 1 else 0, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        if self.stride[0] == 2 and self.kernel_size[0] == 3:
            x = F.pad(x, (x.shape[3] % 2, 1, x.shape[2] % 2, 1))
        return super().forward(x)


class _Uncounted:
    """Batch norm that does not count its batches: with a fixed momentum nobody reads the count."""

    def forward(self: _BatchNorm, x: Tensor) -> Tensor:  # type: ignore[misc]
        kept = not self.training or self.track_running_stats
        mean, variance = (self.running_mean, self.running_var) if kept else (None, None)
        return F.batch_norm(x, mean, variance, self.weight, self.bias, self.training, self.momentum or 0.0, self.eps)


class _Norm1d(_Uncounted, nn.BatchNorm1d):
    pass


class _Norm2d(_Uncounted, nn.BatchNorm2d):
    pass


class _Unit(nn.Module):
    """A residual unit; in the first one of the network batch norm and activation come before the branches part."""

    def __init__(self, inputs: int, outputs: int, stride: int, bias: bool, first: bool) -> None:
        super().__init__()
        self.first = first
        self.norm_1 = _Norm2d(inputs, eps=1e-3, momentum=1e-3)
        self.conv_1 = _Conv(inputs, outputs, 3, stride, bias)
        self.norm_2 = _Norm2d(outputs, eps=1e-3, momentum=1e-3)
        self.conv_2 = _Conv(outputs, outputs, 3, 1, bias)
        self.shortcut = _Conv(inputs, outputs, 1, stride, bias) if inputs != outputs else nn.Identity()
        self.act = nn.LeakyReLU(SLOPE)

    def forward(self, x: Tensor) -> Tensor:
        active = self.act(self.norm_1(x))
        inner = self.conv_2(self.act(self.norm_2(self.conv_1(active))))
        skipped: Tensor = self.shortcut(active if self.first else x)
        return skipped + inner


class WideResNet(nn.Module):
    """Wide residual network of the realistic evaluation (Oliver et al. 2018): WRN-28-2 with 1,467,610 parameters.

    `bias=True` gives every convolution a bias, as MixMatch's code does (1,469,642); `groups=4` adds a group twice as
    wide, as its STL-10 network has (5,933,770). Weights come from N(0, sqrt(2 / (k^2 outputs))).
    """

    def __init__(
        self, classes: int, depth: int = 28, width: int = 2, channels: int = 3, bias: bool = False, groups: int = 3
    ) -> None:
        super().__init__()
        _require_whole(2, classes=classes)
        _require(
            is_whole(depth) and depth >= 10 and (depth - 4) % 6 == 0, "a depth of 10, 16, 22, 28, ... (6 n + 4)", depth
        )
        _require_whole(1, width=width, channels=channels, groups=groups)
        self.stem = _Conv(channels, 16, 3, 1, bias)
        units: list[nn.Module] = []
        before = 16
        for group in range(groups):
            after = 16 * width * 2**group
            for place in range((depth - 4) // 6):
                stride = 2 if group > 0 and place == 0 else 1
                units.append(_Unit(before, after, stride, bias, first=not units))
                before = after
        self.units = nn.Sequential(*units)
        self.norm = _Norm2d(before, eps=1e-3, momentum=1e-3)
        self.act = nn.LeakyReLU(SLOPE)
        self.head = nn.Linear(before, classes)
        initialize(self)

    def forward(self, x: Tensor) -> Tensor:
        """Logits [N, classes] of images [N, channels, height, width]."""
        logits: Tensor = self.head(self.act(self.norm(self.units(self.stem(x)))).mean((2, 3)))
        return logits


class _Halve(nn.Module):
    """The greatest of every 2 x 2 values; a last odd row or column is left out, sides of 1 stay."""

    def forward(self, x: Tensor) -> Tensor:
        for side in (2, 3):
            half = x.shape[side] // 2
            if half:
                x = torch.maximum(*x.narrow(side, 0, 2 * half).unflatten(side, (half, 2)).unbind(side + 1))
        return x


class SmallConvNet(nn.Module):
    """Three convolutions with batch norm and a global average: for small gray images.

    The last two have stride 2, or with `pool=True` follow a maximum over 2 x 2 values, which is better with few labels.
    """

    def __init__(self, classes: int, channels: int = 1, width: int = 32, pool: bool = False) -> None:
        super().__init__()
        _require_whole(2, classes=classes)
        _require_whole(1, width=width, channels=channels)
        sizes = (channels, width, 2 * width, 4 * width)
        layers: list[nn.Module] = []
        for place in range(3):
            layers += [_Halve()] if pool and place else []
            layers.append(_Conv(sizes[place], sizes[place + 1], 3, 1 if place == 0 or pool else 2, bias=False))
            layers += [_Norm2d(sizes[place + 1]), nn.LeakyReLU(SLOPE)]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(sizes[-1], classes)
        initialize(self)

    def forward(self, x: Tensor) -> Tensor:
        """Logits [N, classes] of images [N, channels, height, width]."""
        logits: Tensor = self.head(self.body(x).mean((2, 3)))
        return logits


class MLP(nn.Module):
    """Dense layers with batch norm and leaky ReLU for feature vectors; inputs of more dimensions are flattened."""

    def __init__(self, classes: int, features: int, hidden: tuple[int, ...] = (256, 256)) -> None:
        super().__init__()
        _require(isinstance(hidden, tuple | list), "hidden sizes such as (256, 256)", hidden)
        _require_whole(2, classes=classes)
        _require_whole(1, features=features, **{f"hidden[{i}]": size for i, size in enumerate(hidden)})
        layers: list[nn.Module] = []
        before = features
        for size in hidden:
            layers += [nn.Linear(before, size, bias=False), _Norm1d(size), nn.LeakyReLU(SLOPE)]
            before = size
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(before, classes)
        initialize(self)

    def forward(self, x: Tensor) -> Tensor:
        """Logits [N, classes] of features [N, features]."""
        logits: Tensor = self.head(self.body(x.flatten(1)))
        return logits


NETWORKS: dict[str, type[nn.Module]] = {"wide-resnet": WideResNet, "small-conv-net": SmallConvNet, "mlp": MLP}
"""Networks by name, for recipes and the command line."""


def _deviation(network: nn.Module, weight: Tensor) -> float:
    """Standard deviation of a fresh weight: the reference's for a WideResNet, He's (2 / fan-in) elsewhere."""
    outputs, inputs = weight.shape[:2]
    kernel = weight[0, 0].numel()
    if not isinstance(network, WideResNet):
        return math.sqrt(2 / (kernel * inputs))
    return math.sqrt(2 / (kernel * outputs)) if weight.dim() == 4 else math.sqrt(2 / (inputs + outputs))


@torch.no_grad()
def initialize(network: nn.Module, draw: Draw | None = None) -> None:
    """Fill one of this module's networks with fresh weights, in place.

    With `draw`, each weight is a function of it and of the weight's name; without, PyTorch's global generator is used,
    as in every other module's constructor. Biases become 0, batch norm the identity.
    """
    for layer in network.modules():
        if isinstance(layer, _BatchNorm):
            layer.reset_parameters()
    for name, weight in network.named_parameters():
        if weight.dim() >= 2:
            normal = torch.randn_like(weight) if draw is None else draw.stream(name).normal(tuple(weight.shape))
            weight.copy_(normal * _deviation(network, weight))
        elif name.endswith("bias"):
            weight.zero_()


def build(factory: Callable[[], nn.Module], draw: Draw) -> nn.Module:
    """Call `factory` and return its network with weights that depend on `draw` alone.

    The library's networks are filled from `draw` by name. Any other module initialises itself on the CPU under a
    generator seeded from `draw`; the global random state is put back either way.
    """
    seed = int(draw.stream("seed").integers(0, 2**31 - 1, (1,)))
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        network = factory()
    if isinstance(network, tuple(NETWORKS.values())):
        initialize(network, draw)
    return network


_NORMS: WeakKeyDictionary[nn.Module, list[_BatchNorm]] = WeakKeyDictionary()


def _norms(network: nn.Module) -> list[_BatchNorm]:
    """The batch norm layers of a network, looked for once: a small network takes as long to search as to run."""
    found = None if torch.compiler.is_compiling() else _NORMS.get(network)
    if found is None:
        found = [layer for layer in network.modules() if isinstance(layer, _BatchNorm)]
        if not torch.compiler.is_compiling():
            _NORMS[network] = found
    return found


@contextmanager
def frozen_statistics(network: nn.Module) -> Iterator[None]:
    """Within it, batch norm in training mode uses the batch's statistics but moves no running ones."""
    tracking = [layer for layer in _norms(network) if layer.track_running_stats]
    for layer in tracking:
        layer.track_running_stats = False
    try:
        yield
    finally:
        for layer in tracking:
            layer.track_running_stats = True


class Average:
    """Exponential moving average of a network's weights, held in `network`, a copy that takes no gradient.

    `buffers` says what becomes of batch norm's running statistics: "copy" takes the student's as they are, "average"
    averages them like weights. Integer buffers are always copied.
    """

    def __init__(self, network: nn.Module, decay: float, buffers: Literal["copy", "average"] = "copy") -> None:
        if not is_number(decay) or not 0 <= decay < 1:
            raise ValueError(f"the decay of an average must be in [0, 1), but got {decay!r}; 0.999 is usual")
        if buffers not in ("copy", "average"):
            raise ValueError(f'buffers must be "copy" or "average", but got {buffers!r}')
        self.decay = decay
        self.buffers = buffers
        self.network = copy.deepcopy(network).requires_grad_(False)

    @torch.no_grad()
    def update(self, network: nn.Module, share: float | Tensor | None = None) -> None:
        """Move the average a step towards `network`: average <- decay average + (1 - decay) weights.

        `share` takes the place of 1 - decay; 0, of a number or of a 0-d tensor, leaves the weights as they are.
        """
        averaged: list[Tensor] = list(self.network.parameters())
        current: list[Tensor] = list(network.parameters())
        copied: list[Tensor] = []
        source: list[Tensor] = []
        for mine, theirs in zip(self.network.buffers(), network.buffers(), strict=True):
            if self.buffers == "average" and mine.is_floating_point():
                averaged.append(mine)
                current.append(theirs)
            else:
                copied.append(mine)
                source.append(theirs)
        if averaged and isinstance(share, Tensor):
            moves = torch._foreach_sub(current, averaged)
            torch._foreach_mul_(moves, share)
            torch._foreach_add_(averaged, moves)
        elif averaged:
            torch._foreach_lerp_(averaged, current, 1 - self.decay if share is None else float(share))
        if copied:
            torch._foreach_copy_(copied, source)
