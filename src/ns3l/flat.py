"""The weights of a network as one vector: for optimizers, and to be rounded in one piece."""

from collections import Counter
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.conv import _ConvNd

Decayed = Literal["kernels", "all"]
Run = Callable[..., Tensor]


class Flat:
    """The trainable weights of a network as one vector, of which its parameters become views.

    With `rounds`, those that autocast would round in every pass come first, so that they can be rounded in one piece:
    for networks that leave all rounding to autocast.
    """

    def __init__(self, network: nn.Module, rounds: bool = False) -> None:
        named = {name: p for name, p in network.named_parameters() if p.requires_grad}
        if not named or len({(p.dtype, p.device) for p in named.values()}) > 1:
            raise ValueError("a network to train needs parameters, all of one dtype and on one device")
        rounded = _rounded(network) if rounds else set()
        self.names = sorted(named, key=lambda name: name not in rounded)
        self.parameters: list[Tensor] = [named[name] for name in self.names]
        self.rounded = len(rounded)
        self.nhwc = [_channels_last(p) for p in self.parameters]
        self.vector = self.gather([p.detach() for p in self.parameters])
        two = self.vector.tensor_split([sum(p.numel() for p in self.parameters[: self.rounded])])
        for parameter, part in zip(self.parameters, self._shaped(*two), strict=True):
            parameter.data = part
        self.leaves = [leaf.detach().requires_grad_() for leaf in two]

    def gather(self, tensors: list[Tensor]) -> Tensor:
        """Tensors of the parameters' shapes, gradients say, in the order of the vector."""
        parts = [t.permute(0, 2, 3, 1) if nhwc else t for t, nhwc in zip(tensors, self.nhwc, strict=True)]
        return torch.cat([part.reshape(-1) for part in parts])

    def _shaped(self, first: Tensor, rest: Tensor) -> list[Tensor]:
        """Views with the parameters' shapes of the vector in two: what is rounded, and the rest."""
        sizes = [p.numel() for p in self.parameters]
        parts = [*first.split(sizes[: self.rounded]), *rest.split(sizes[self.rounded :])]
        return [_view(part, p.shape, nhwc) for part, p, nhwc in zip(parts, self.parameters, self.nhwc, strict=True)]

    def weights(self, precision: torch.dtype | None) -> dict[str, Tensor]:
        """The weights by name, read from the vector: a gradient to them is one to its leaves."""
        learns = self.parameters[0].requires_grad
        first, rest = (leaf if learns else leaf.detach() for leaf in self.leaves)
        first = first if precision is None else first.to(precision)
        return dict(zip(self.names, self._shaped(first, rest), strict=True))

    def gradient(self, loss: Tensor) -> Tensor:
        """The gradient of a loss, which may read the parameters or the vector; zero where it depends on neither."""
        found = torch.autograd.grad(loss, [*self.leaves, *self.parameters], allow_unused=True)
        ways = [(self.leaves, found[:2], torch.cat), (self.parameters, found[2:], self.gather)]
        read = [
            gather([torch.zeros_like(x) if g is None else g for x, g in zip(weights, gradients, strict=True)])
            for weights, gradients, gather in ways
            if any(g is not None for g in gradients)
        ]
        if not read:
            return torch.zeros_like(self.vector)
        return torch.stack(read).sum(0) if len(read) > 1 else read[0]

    def decayed(self, which: Decayed) -> Tensor:
        """1 where weight decay applies: kernels (matrices and convolutions, not biases and batch norm), or all."""
        return self.gather([torch.full_like(p, which == "all" or p.dim() > 1).detach() for p in self.parameters])


class FromVector(nn.Module):
    """A network that reads its weights from the vector in every pass, rounded in one piece under autocast."""

    def __init__(self, network: nn.Module, flat: Flat, compile: Callable[[Run], Run]) -> None:
        super().__init__()
        self.network, self.flat = network, flat

        def run(weights: dict[str, Tensor], x: Tensor) -> Tensor:
            return functional_call(network, weights, (x,))

        self.call = compile(run)

    def forward(self, x: Tensor) -> Tensor:
        """What the network gives."""
        kind = x.device.type
        precision = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        return self.call(self.flat.weights(precision), x)


def _rounded(network: nn.Module) -> set[str]:
    """The names of the weights of dense and convolutional layers, where no other layer has them too."""
    owners = Counter(id(p) for _, p in network.named_parameters(remove_duplicate=False))
    return {
        f"{path}.{name}".lstrip(".")
        for path, layer in network.named_modules()
        if isinstance(layer, nn.Linear | _ConvNd)
        for name, p in layer.named_parameters(recurse=False)
        if owners[id(p)] == 1 and p.requires_grad
    }


def _channels_last(x: Tensor) -> bool:
    return x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()


def _view(part: Tensor, shape: torch.Size, nhwc: bool) -> Tensor:
    if not nhwc:
        return part.view(shape)
    return part.view(shape[0], shape[2], shape[3], shape[1]).permute(0, 3, 1, 2)
