"""Squared error to generated targets: MixMatch's unlabeled part."""

from dataclasses import dataclass

from torch import Tensor

from ns3l.divergence import squared_error_to
from ns3l.objective import Forward, Term


@dataclass(frozen=True)
class TargetError(Term):
    """(1/K) Σₖ (yₖ − μₖ)² to the generated label y of a mixed example (the paper's L_unsupervised of MixMatch)."""

    view: str = "mixed_unlabeled"

    @property
    def reads(self) -> tuple[str, ...]:
        """The view whose generated targets it fits."""
        return (self.view,)

    def __call__(self, fwd: Forward) -> Tensor:
        """The mean over rows and classes."""
        return squared_error_to(fwd.logits[self.view], fwd.batch.y[self.view]).mean()
