"""How two predictions differ, row by row: [N, K] in, [N] out, in float32 or better.

Arguments called logits are logits; those called target are probabilities. Both sides take gradient: detach a target.
"""

import torch
from torch import Tensor


def kl(p_logits: Tensor, q_logits: Tensor) -> Tensor:
    """KL(p || q) = sum_k p_k (log p_k - log q_k), in this order of arguments."""
    p, q = _pair(p_logits, q_logits, "p_logits", "q_logits")
    log_p, log_q = p.log_softmax(1), q.log_softmax(1)
    return (log_p.exp() * (log_p - log_q)).sum(1)


def squared_error(p_logits: Tensor, q_logits: Tensor) -> Tensor:
    """Mean over the classes of (p_k - q_k)^2, p and q being the softmax of the arguments."""
    p, q = _pair(p_logits, q_logits, "p_logits", "q_logits")
    return (p.softmax(1) - q.softmax(1)).square().mean(1)


def squared_error_to(logits: Tensor, target: Tensor) -> Tensor:
    """Mean over the classes of (softmax(logits)_k - target_k)^2 for target probabilities."""
    z, t = _pair(logits, target, "logits", "target")
    return (z.softmax(1) - t).square().mean(1)


def soft_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """-sum_k target_k log softmax(logits)_k for target probabilities."""
    z, t = _pair(logits, target, "logits", "target")
    return -(t * z.log_softmax(1)).sum(1)


def entropy(logits: Tensor) -> Tensor:
    """-sum_k p_k log p_k of p = softmax(logits)."""
    log_p = _wide(logits, "logits").log_softmax(1)
    return -(log_p.exp() * log_p).sum(1)


def _wide(x: Tensor, name: str) -> Tensor:
    if x.dim() != 2 or not x.is_floating_point():
        raise ValueError(
            f"{name} must be floating point numbers [examples, classes], but got {x.dtype} {tuple(x.shape)}"
        )
    return x if x.dtype == torch.float64 else x.float()


def _pair(left: Tensor, right: Tensor, left_name: str, right_name: str) -> tuple[Tensor, Tensor]:
    if left.shape != right.shape:
        shapes = f"{tuple(left.shape)} and {tuple(right.shape)}"
        raise ValueError(f"{left_name} and {right_name} must have one shape [examples, classes], but have {shapes}")
    return _wide(left, left_name), _wide(right, right_name)
