"""Virtual adversarial training (Miyato et al. 2017)."""

import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from ns3l.divergence import kl
from ns3l.draw import Draw
from ns3l.errors import is_number, is_whole
from ns3l.objective import Forward, Term
from ns3l.passes import Passes
from ns3l.precision import rounding

XI, XI_HALF = 1e-3, 0.01
"""The norm of the probe by that of the example, found by measurement: for float32 or better, for half precision."""


@dataclass(frozen=True)
class VirtualAdversarial(Term):
    """The divergence between the predictions at x and at x + r_adv; r_adv = ε g/‖g‖, g = ∇_r d(f(x), f(x + r)).

    The probe r has norm `xi` per example. None takes a share of the norm of the example: 1/1000, or 1/100 where passes
    run in half precision. Labeled rows are perturbed too, so that batch statistics are comparable; the unlabeled are
    scored. `augmentation` says whether probe and adversarial pass are rendered as the first or afresh. Under the same
    rendering (or none) the divergence near r = 0 is of second order, which neither half precision nor TF32 resolves:
    then, unless `xi` is given, clean target and probe are computed in whole float32, at the cost of one more pass.
    """

    eps: float = 6.0
    xi: float | None = None
    iterations: int = 1
    divergence: Literal["adversarial||clean", "clean||adversarial"] = "adversarial||clean"
    augmentation: Literal["fresh", "same"] = "fresh"

    def __post_init__(self) -> None:
        norms = [self.eps] if self.xi is None else [self.eps, self.xi]
        whole = is_whole(self.iterations) and self.iterations >= 1
        if not whole or not all(is_number(norm) and norm > 0 for norm in norms):
            raise ValueError(f"VAT needs eps > 0, xi > 0 or None, at least one iteration (a whole number), got {self}")
        if self.divergence not in ("adversarial||clean", "clean||adversarial"):
            raise ValueError(f"divergence is 'adversarial||clean' or 'clean||adversarial', got {self.divergence!r}")
        if self.augmentation not in ("fresh", "same"):
            raise ValueError(f"augmentation is 'fresh' or 'same', got {self.augmentation!r}")

    @property
    def reads(self) -> tuple[str, ...]:
        """The clean and the adversarial logits."""
        return ("unlabeled", "adversarial")

    @property
    def makes(self) -> str:
        """The view of adversarial examples."""
        return "adversarial"

    def __call__(self, fwd: Forward) -> Tensor:
        """The mean over the unlabeled rows; the clean prediction is the target."""
        clean, adversarial = fwd.logits["unlabeled"].detach(), fwd.logits["adversarial"]
        if self.divergence == "adversarial||clean":
            return kl(adversarial, clean).mean()
        return kl(clean, adversarial).mean()

    def make(self, passes: Passes, fwd: Forward) -> Tensor:
        """Joint logits at x + r_adv."""
        stream = "first" if self.augmentation == "same" else "adversarial"
        return passes.run(passes.render(stream, passes.clean + self.eps * self.direction(passes, fwd)))

    def direction(self, passes: Passes, fwd: Forward) -> Tensor:
        """The unit vector, per example, along which the prediction changes most."""
        clean = torch.cat([fwd.logits[view] for view in passes.sizes]).detach()
        alike = self.augmentation == "same" or not passes.augments
        exact = alike and self.xi is None and (passes.precision is not None or clean.is_cuda)
        if exact:
            passes = replace(passes, precision=None)
            with torch.no_grad(), rounding("ieee", "ieee"):
                clean = passes.run(passes.render("first"))
        direction = passes.compile(_random)(fwd.draw.rows(*passes.sizes.values()), passes.clean)
        xi = self._xi(passes)
        for i in range(self.iterations):
            stream = "first" if self.augmentation == "same" else f"probe_{i}"
            r = (xi * direction).requires_grad_()
            with constant_weights(passes.student), rounding("ieee", "ieee") if exact else nullcontext():
                probe = passes.run(passes.render(stream, passes.clean + r))
                divergence = passes.compile(_total)(clean, probe)
                gradient = torch.autograd.grad(divergence, r)[0]
            direction = passes.compile(unit)(gradient)
        return direction

    def _xi(self, passes: Passes) -> float | Tensor:
        """The norm of the probe: given, or by the norm of each example."""
        if self.xi is not None:
            return self.xi
        norm = passes.clean.flatten(1).norm(dim=1).view(-1, *[1] * (passes.clean.dim() - 1))
        return norm * (XI if passes.precision is None else XI_HALF)


@contextmanager
def constant_weights(network: nn.Module) -> Iterator[None]:
    """Within it, nothing is computed towards the gradient of the weights."""
    learning = [weight for weight in network.parameters() if weight.requires_grad]
    for weight in learning:
        weight.requires_grad_(False)
    try:
        yield
    finally:
        for weight in learning:
            weight.requires_grad_(True)


def _random(draw: Draw, like: Tensor) -> Tensor:
    """A random direction for every example."""
    return unit(draw.normal(like.shape).to(like.dtype))


def _total(clean: Tensor, probe: Tensor) -> Tensor:
    return kl(clean, probe).sum()


def unit(x: Tensor) -> Tensor:
    """Every example scaled to norm 1, without under- or overflow; zero stays zero."""
    flat = x.flatten(1)
    flat = flat / (flat.abs().amax(1, keepdim=True) + torch.finfo(x.dtype).tiny)
    return (flat / (flat.norm(dim=1, keepdim=True) + 1 / math.sqrt(torch.finfo(x.dtype).max))).view_as(x)
