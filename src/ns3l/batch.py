"""The examples of one step, by view, drawn statelessly from a store on the device or staged from the host."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from ns3l.data.dataset import Dataset
from ns3l.draw import Draw
from ns3l.errors import is_whole
from ns3l.split import Split
from ns3l.store import Store, positions

Augment = Callable[[Tensor, Draw], Tensor]


def unchanged(x: Tensor, draw: Draw) -> Tensor:  # noqa: ARG001
    """The augmentation that changes nothing."""
    return x


@dataclass(frozen=True)
class Batch:
    """Examples of one step by view: network inputs, not yet augmented, and what is known of them."""

    x: Mapping[str, Tensor]
    y: Mapping[str, Tensor]
    augment: Augment = unchanged
    truth: Mapping[str, Tensor] = field(default_factory=dict)  # hidden labels, -1 unknown: oracles and diagnostics only
    neighbors: Mapping[str, Tensor] = field(default_factory=dict)  # rank of every class by its nearest labeled example


@dataclass(frozen=True)
class BatchSize:
    """How many examples of each kind a step draws."""

    labeled: int = 50
    unlabeled: int = 50

    def __post_init__(self) -> None:
        whole = is_whole(self.labeled) and is_whole(self.unlabeled)
        if not whole or self.labeled < 1 or self.unlabeled < 0:
            came = f"got {self.labeled!r} and {self.unlabeled!r}"
            raise ValueError(f"a batch needs labeled >= 1 and unlabeled >= 0, {came}; take whole numbers")


class Source:
    """Draws the batches of one run: which examples, and how they are rendered, as functions of seed and step."""

    def __init__(
        self,
        store: Store,
        data: Dataset,
        split: Split,
        sizes: BatchSize,
        preprocess: nn.Module,
        augment: Augment,
        device: torch.device,
        neighbors: Tensor | None = None,
    ) -> None:
        self.store, self.preprocess, self.augment, self.neighbors = store, preprocess, augment, neighbors
        self.sizes = {"labeled": sizes.labeled, "unlabeled": sizes.unlabeled if len(split.unlabeled) else 0}
        extra = 0 if data.x_extra is None else len(data.x_extra)
        self.labels = torch.as_tensor(np.append(data.y, np.full(extra, -1)), device=device)
        self.members = {
            "labeled": torch.as_tensor(split.labeled, device=device),
            "unlabeled": torch.as_tensor(split.unlabeled, device=device),
        }

    def batch(self, draw: Draw) -> Batch:
        """The batch of a step."""
        x, labels, neighbors = {}, {}, {}
        for view, size in self.sizes.items():
            if size:
                place = positions(draw, view, len(self.members[view]), size)
                index = self.members[view][place]
                x[view], labels[view] = self.preprocess(self.store.take(view, index)), self.labels[index]
                if self.neighbors is not None and view == "unlabeled":
                    neighbors[view] = self.neighbors[place]
        truth = {view: label for view, label in labels.items() if view == "unlabeled"}
        return Batch(x, {"labeled": labels["labeled"]}, self.augment, truth, neighbors)
