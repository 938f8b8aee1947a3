"""The NS3L loss: what it costs to give probability to classes that an example surely is not."""

from typing import Literal

import torch
from torch import Tensor, nn

from ns3l.negatives import Threshold
from ns3l.precision import widest

Reduction = Literal["none", "sum", "mean"]


def negative_sampling_loss(logits: Tensor, negative: Tensor, reduction: Reduction = "mean") -> Tensor:
    """NS3L (Algorithm 1, line 5): -log(1 - sum of the negatives' probability), per row of `logits` [N, K].

    `negative` [N, K] is True at the classes that a row is not. With A the sum of exp(logit) over the negatives and B
    that over the others, the loss is log(1 + A / B), computed as softplus(log A - log B): never as a difference of two
    nearly equal numbers. What is of size [N, K] and the result are float32 (for float64 logits: float64); only the N
    sums and the differences of their logarithms are kept in float64, where the device has it: at a loss of 1e-7 the gap
    is 16, and 16 rounds to 1e-6 in float32.

    A row without negatives costs 0, and so does a row where every class is negative. The mean of no rows is 0.
    """
    _check(logits, negative, reduction)
    scores = logits if logits.dtype == torch.float64 else logits.float()
    top, mass = _mass(scores, negative)
    top_rest, mass_rest = _mass(scores, ~negative)
    said = (mass != 0) & (~negative).any(1)  # NaN stays NaN
    # A row that costs 0 has its masses replaced before the logarithm: its gradient is 0, not 0 times infinity.
    log_ratio = mass.where(said, 1).log() - mass_rest.where(said, 1).log()
    gap = log_ratio + (top.to(mass.dtype) - top_rest)
    # Past its threshold PyTorch's softplus is the identity: at 20, the default, float64 would lose six digits.
    each = nn.functional.softplus(gap, threshold=40).to(scores.dtype).where(said, 0)
    if reduction == "none":
        return each
    return each.sum() if reduction == "sum" else each.sum() / max(len(each), 1)


class NegativeSamplingLoss(nn.Module):
    """NS3L for a plain PyTorch loop: negatives are the classes with probability under `threshold`.

    `loss = cross_entropy(model(x), y) + NegativeSamplingLoss(0.04)(model(x_unlabeled))`

    `probability` [N, K], where given, decides the negatives in place of the logits' own softmax: that of an earlier
    pass, for instance. No gradient flows through the decision.
    """

    def __init__(self, threshold: float = 0.04, reduction: Reduction = "mean") -> None:
        super().__init__()
        self.negatives = Threshold(threshold)
        _check_reduction(reduction)
        self.reduction: Reduction = reduction

    def forward(self, logits: Tensor, probability: Tensor | None = None) -> Tensor:
        """The loss of `logits` [N, K]."""
        _check_logits(logits)
        if probability is None:
            probability = logits.softmax(1, dtype=torch.float64 if logits.dtype == torch.float64 else torch.float32)
        _check_tensor("probability", probability)
        return negative_sampling_loss(logits, self.negatives(probability.detach()), self.reduction)

    def extra_repr(self) -> str:
        """What `print(loss)` shows."""
        return f"threshold={self.negatives.threshold}, reduction={self.reduction!r}"


def _mass(scores: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """(m, s) with s exp(m) the sum of exp(score) over a row's chosen classes; s is 0 where there are none."""
    kept = scores.masked_fill(~chosen, -torch.inf)
    top = kept.detach().amax(1).clamp(min=torch.finfo(scores.dtype).min)
    return top, (kept - top[:, None]).exp().sum(1, dtype=widest(scores.device))


def _check_tensor(name: str, given: object) -> None:
    if not isinstance(given, Tensor):
        raise TypeError(f"{name} must be a tensor, but it is {type(given).__name__}; pass torch.as_tensor({name})")


def _check_logits(logits: Tensor) -> None:
    _check_tensor("logits", logits)
    if not logits.is_floating_point():
        raise TypeError(f"logits must be floating point numbers, but they are {logits.dtype}; pass logits.float()")
    if logits.dim() != 2 or logits.shape[1] < 2:
        expected = "the shape [examples, classes] with 2 classes or more"
        raise ValueError(f"logits must have {expected}, but they have {tuple(logits.shape)}")


def _check(logits: Tensor, negative: Tensor, reduction: Reduction) -> None:
    _check_logits(logits)
    _check_tensor("negative", negative)
    if negative.dtype != torch.bool:
        raise TypeError(f"negative must be a boolean mask (True: surely not this class), but it is {negative.dtype}")
    if negative.shape != logits.shape:
        raise ValueError(
            f"negative must have the shape of logits, {tuple(logits.shape)}, but it has {tuple(negative.shape)}"
        )
    if negative.device != logits.device:
        raise ValueError(f"negative is on {negative.device} and logits on {logits.device}; move one to the other")
    _check_reduction(reduction)


def _check_reduction(reduction: str) -> None:
    if reduction not in ("none", "sum", "mean"):
        raise ValueError(f'reduction must be "none", "sum" or "mean", but got {reduction!r}')
