"""NS3L: push down the classes that an example surely is not (Algorithm 1)."""

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from ns3l.errors import is_whole
from ns3l.loss import negative_sampling_loss
from ns3l.negatives import Selector, Threshold, diagnose
from ns3l.objective import Forward, Term

MIXED = ("mixed_labeled", "mixed_unlabeled")


@dataclass(frozen=True)
class NegativeSampling(Term):
    """−log(1 − Σ of the negatives' probabilities); the selector says which classes are negatives.

    On `unlabeled` rows they are chosen from the first pass and, with two passes, scored on the second, as the authors
    released it (one pass is the paper's text). On `mixed` rows, MixMatch's X′ ∪ U′, they are chosen from the
    generated labels and scored on the network's own output.
    """

    negatives: Selector = field(default_factory=lambda: Threshold(0.04))
    passes: Literal[1, 2] = 2
    on: Literal["unlabeled", "mixed"] = "unlabeled"

    def __post_init__(self) -> None:
        if not is_whole(self.passes) or self.passes not in (1, 2) or self.on not in ("unlabeled", "mixed"):
            raise ValueError(f"passes is 1 or 2 and on 'unlabeled' or 'mixed', got {self.passes!r} and {self.on!r}")
        if not isinstance(self.negatives, Selector):
            raise TypeError(f"negatives must be a selector such as Threshold(0.04), got {self.negatives!r}")
        if self.on == "mixed" and self.negatives.needs - {"draw"}:
            raise ValueError(f"mixed rows have no single truth or neighbor, {self.negatives!r} cannot choose there")

    @property
    def reads(self) -> tuple[str, ...]:
        """The pass that chooses and the pass that is scored, or the mixed views."""
        return MIXED if self.on == "mixed" else ("unlabeled", "unlabeled_2")[: self.passes]

    @property
    def needs(self) -> frozenset[str]:
        """What the selector looks at beside probabilities and draws."""
        return self.negatives.needs - {"draw"}

    def __call__(self, fwd: Forward) -> Tensor:
        """The mean over the rows; a row without negatives costs nothing."""
        scored = torch.cat([fwd.logits[view] for view in MIXED]) if self.on == "mixed" else fwd.logits[self.reads[-1]]
        return negative_sampling_loss(scored, self.chosen(fwd))

    def diagnose(self, fwd: Forward) -> dict[str, Tensor]:
        """Share of classes marked, of rows with none and, where truth is known, of rows whose true class is marked."""
        return diagnose(self.chosen(fwd), None if self.on == "mixed" else fwd.batch.truth.get("unlabeled"))

    def chosen(self, fwd: Forward) -> Tensor:
        """The mask of negatives."""
        if self.on == "mixed":
            probability = torch.cat([fwd.batch.y[view] for view in MIXED])
        else:
            probability = fwd.logits["unlabeled"].detach().softmax(1)
        return self.negatives(
            probability,
            draw=fwd.draw.stream("negatives").rows(len(probability)),
            truth=fwd.batch.truth.get("unlabeled"),
            neighbors=fwd.batch.neighbors.get("unlabeled"),
        )
