"""Cross-entropy with known targets: the supervised term, and the labeled part of mixing methods."""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from ns3l.objective import Forward, Term


@dataclass(frozen=True)
class CrossEntropy(Term):
    """−Σₖ yₖ log μₖ over the rows of a view; targets are classes or distributions (Section 3.1, supervised part)."""

    view: str = "labeled"

    @property
    def reads(self) -> tuple[str, ...]:
        """The view whose targets it fits."""
        return (self.view,)

    def __call__(self, fwd: Forward) -> Tensor:
        """The mean over the rows of the view."""
        return F.cross_entropy(fwd.logits[self.view], fwd.batch.y[self.view])
