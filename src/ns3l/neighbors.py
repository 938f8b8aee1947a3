"""How near each class is to each example, by the nearest labeled example of that class: once per split, in blocks."""

import numpy as np
import torch
from torch import Tensor

from ns3l.errors import is_whole
from ns3l.precision import widest

_BUDGET = 2**27
"""Bytes that the float64 copies of one block of either side, their squares and the distances between them may take."""


def class_ranks(
    labeled_x: np.ndarray | Tensor,
    labeled_y: np.ndarray | Tensor,
    pool_x: np.ndarray | Tensor,
    classes: int,
    block: int | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    """Rank of each class for every pool row, int16 [len(pool_x), classes]: 0 is the class of the nearest neighbor.

    Classes are ordered by the Euclidean distance to their nearest labeled example; ties go to the lower class, classes
    without labeled examples come last. `block` is the number of rows handled at once (by default what fits in 128 MB);
    neither side is ever converted whole. Distances are taken in float64 where the device has it: for uint8 rows they
    are exact then, and the ranks alike on every such device.
    """
    device = device or (pool_x.device if isinstance(pool_x, Tensor) else "cpu")
    labels = torch.as_tensor(labeled_y, device=device)
    _check(labeled_x, labels, pool_x, classes)
    labels = labels.long()
    features = int(np.prod(pool_x.shape[1:]))
    block = max(1, min(2048, _BUDGET // (8 * (3 * features + 2048)))) if block is None else block
    if not is_whole(block) or block < 1:
        raise ValueError(f"block is a number of rows, at least 1, or None, but got {block!r}")
    ranks = torch.empty(len(pool_x), classes, dtype=torch.int16)
    for start in range(0, len(pool_x), block):
        rows, _ = _rows("pool", pool_x, start, block, device)
        nearest = torch.full((len(rows), classes), torch.inf, dtype=rows.dtype, device=device)
        for begin in range(0, len(labeled_x), block):
            others, norms = _rows("labeled", labeled_x, begin, block, device)
            distance = torch.addmm(norms, rows, others.T, alpha=-2)  # squared, up to a constant for each pool row
            nearest.scatter_reduce_(1, labels[begin : begin + block].expand(len(rows), -1), distance, "amin")
        order = nearest.argsort(dim=1, stable=True)
        ranks[start : start + block] = order.argsort(1).to(torch.int16)
    return ranks.to(device)


def _rows(
    side: str, x: np.ndarray | Tensor, start: int, count: int, device: torch.device | str
) -> tuple[Tensor, Tensor]:
    """Rows of a block, flat, and their squared norms."""
    part = x[start : start + count]
    rows = part if isinstance(part, Tensor) else torch.from_numpy(np.array(part))
    rows = rows.to(device).flatten(1)
    rows = rows.to(widest(rows.device))
    norms = rows.square().sum(1)
    sound = norms.isfinite()
    if not sound.all():
        place = start + int(sound.int().argmin())
        raise ValueError(f"{side} row {place} has a number that is not finite, or whose square is not; clean it first")
    return rows, norms


def _check(labeled_x: np.ndarray | Tensor, labels: Tensor, pool_x: np.ndarray | Tensor, classes: int) -> None:
    if not is_whole(classes) or not 2 <= classes <= 2**15:
        raise ValueError(f"ranks need 2 to 32,768 classes, but got {classes!r}")
    if labeled_x.shape[1:] != pool_x.shape[1:]:
        shapes = f"{tuple(labeled_x.shape[1:])} and {tuple(pool_x.shape[1:])}"
        raise ValueError(f"labeled and pool rows must be of one shape, but have {shapes}")
    if labels.shape != (len(labeled_x),) or len(labels) == 0:
        raise ValueError(f"expected one label for each of {len(labeled_x)} labeled rows, 1 or more; got {len(labels)}")
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise TypeError(f"labels must be whole numbers, but they are {labels.dtype}; pass labeled_y.astype(int)")
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= classes:
        raise ValueError(
            f"labels must lie in 0 .. {classes - 1}, but go from {low} to {high}; leave unlabeled rows out"
        )
