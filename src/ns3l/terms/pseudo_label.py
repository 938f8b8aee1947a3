"""Pseudo-labels (Lee 2013) as the realistic-evaluation protocol has them, and in the hard form."""

from dataclasses import dataclass
from typing import Literal

import torch.nn.functional as F
from torch import Tensor

from ns3l.errors import is_number, is_whole
from ns3l.objective import Forward, Term


@dataclass(frozen=True)
class PseudoLabel(Term):
    """Fit the predicted class where its probability passes a threshold; other rows cost nothing.

    `soft` compares with the distribution of the logits 10·onehot (KL divergence), `hard` with the class itself. With
    two passes the first chooses the label and the second is scored, as in NS3L; with one pass it does both.
    """

    threshold: float = 0.95
    form: Literal["soft", "hard"] = "soft"
    passes: Literal[1, 2] = 2

    def __post_init__(self) -> None:
        if not (is_number(self.threshold) and 0 < self.threshold < 1):
            raise ValueError(f"the threshold of a pseudo-label is between 0 and 1, got {self.threshold!r}")
        if self.form not in ("soft", "hard") or not is_whole(self.passes) or self.passes not in (1, 2):
            raise ValueError(f"form is 'soft' or 'hard', passes 1 or 2, got {self.form!r} and {self.passes!r}")

    @property
    def reads(self) -> tuple[str, ...]:
        """The pass that labels and the pass that is scored."""
        return ("unlabeled", "unlabeled_2")[: self.passes]

    def __call__(self, fwd: Forward) -> Tensor:
        """The mean over all unlabeled rows, confident or not."""
        confident, label = self._labels(fwd)
        scored = fwd.logits[self.reads[-1]].log_softmax(1)
        if self.form == "hard":
            cost = F.nll_loss(scored, label, reduction="none")
        else:
            target = (10.0 * F.one_hot(label, scored.shape[1]).to(scored.dtype)).log_softmax(1)
            cost = F.kl_div(scored, target, reduction="none", log_target=True).sum(1)
        return (confident * cost).mean()

    def diagnose(self, fwd: Forward) -> dict[str, Tensor]:
        """Share of confident rows and, among those whose truth is known, of wrong labels (NaN where there are none)."""
        confident, label = self._labels(fwd)
        truth = fwd.batch.truth.get("unlabeled")
        told = {"confident": confident.float().mean()}
        if truth is not None:
            known = confident & (truth >= 0)
            told["wrong"] = (known & (label != truth)).sum() / known.sum()
        return told

    def _labels(self, fwd: Forward) -> tuple[Tensor, Tensor]:
        top, label = fwd.logits["unlabeled"].detach().softmax(1).max(1)
        return top > self.threshold, label
