"""Entropy minimization (Grandvalet and Bengio 2005)."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from ns3l.divergence import entropy
from ns3l.objective import Forward, Term


@dataclass(frozen=True)
class EntropyMinimization(Term):
    """−Σₖ μₖ log μₖ over the unlabeled rows, on the clean logits or on those that VAT made."""

    on: Literal["unlabeled", "adversarial"] = "unlabeled"

    def __post_init__(self) -> None:
        if self.on not in ("unlabeled", "adversarial"):
            raise ValueError(f"entropy is minimized on 'unlabeled' or 'adversarial' logits, got {self.on!r}")

    @property
    def reads(self) -> tuple[str, ...]:
        """The one view."""
        return (self.on,)

    def __call__(self, fwd: Forward) -> Tensor:
        """The mean entropy."""
        return entropy(fwd.logits[self.on]).mean()
