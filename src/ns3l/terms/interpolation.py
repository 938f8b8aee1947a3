"""Interpolation consistency training (Verma et al. 2019)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ns3l.divergence import squared_error_to
from ns3l.draw import Draw
from ns3l.errors import is_number
from ns3l.objective import Forward, Term
from ns3l.passes import Passes


@dataclass(frozen=True)
class InterpolationConsistency(Term):
    """d(f_θ(Mix(xᵢ, xⱼ)), Mix(f_θ'(xᵢ), f_θ'(xⱼ))) over unlabeled pairs, θ' the moving average; λ ~ Beta(α, α) by pair.

    The joint batch is mixed, each part within itself, so that the pass has the batch statistics of the others; partner
    and λ are those of the row. The averaged network sees the same rendering unmixed.
    """

    alpha: float = 0.75

    def __post_init__(self) -> None:
        if not is_number(self.alpha) or self.alpha <= 0:
            raise ValueError(f"alpha of Beta(alpha, alpha) is positive and finite, got {self.alpha!r}")

    @property
    def reads(self) -> tuple[str, ...]:
        """The averaged network's view and the mixed one."""
        return ("unlabeled_teacher", "interpolated")

    @property
    def makes(self) -> str:
        """The view of mixed examples."""
        return "interpolated"

    def __call__(self, fwd: Forward) -> Tensor:
        """The mean squared error over the unlabeled rows and classes."""
        teacher = fwd.logits["unlabeled_teacher"].detach().softmax(1)
        share, partner = self._mixing(fwd.draw.stream("unlabeled"), len(teacher))
        target = torch.lerp(teacher[partner], teacher, share.to(teacher.dtype)[:, None])
        return squared_error_to(fwd.logits["interpolated"], target).mean()

    def make(self, passes: Passes, fwd: Forward) -> Tensor:
        """Joint logits on mixed inputs."""
        parts = passes.render("teacher").split(list(passes.sizes.values()))
        mixed = passes.compile(self._mixed)
        pairs = zip(passes.sizes, parts, strict=True)
        return passes.run(torch.cat([mixed(fwd.draw.stream(view), part) for view, part in pairs]))

    def _mixed(self, draw: Draw, part: Tensor) -> Tensor:
        share, partner = self._mixing(draw, len(part))
        return torch.lerp(part[partner], part, share.to(part.dtype).reshape(-1, *[1] * (part.dim() - 1)))

    def _mixing(self, draw: Draw, rows: int) -> tuple[Tensor, Tensor]:
        share = draw.stream("share").rows(rows).beta(self.alpha, rows)
        return share, draw.stream("partner").alone().permutation(rows)
