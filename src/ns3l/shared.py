"""What runs on one device have in common: where and how they are trained, rows, fitted preprocessing."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ns3l.batch import BatchSize, Source
from ns3l.data.dataset import Dataset
from ns3l.distributed import Job
from ns3l.draw import Draw
from ns3l.errors import RecipeError
from ns3l.neighbors import class_ranks
from ns3l.progress import Mode
from ns3l.recipe import Recipe
from ns3l.split import Split
from ns3l.store import Resident, Staged, Store


@dataclass(frozen=True, eq=False)
class Plan:
    """One run: what is trained, on which split, from which seed, recorded where (None: nowhere)."""

    recipe: Recipe
    split: Split
    seed: int
    path: Path | None = None


@dataclass(frozen=True)
class How:
    """What does not change the numbers of a run: where and how visibly it is trained, how often it is saved."""

    device: torch.device | str = "auto"
    progress: Mode = "auto"
    checkpoint_steps: int | None = None  # None: by seconds alone
    checkpoint_seconds: float = 30.0
    replicas: int | None = None  # side by side; None: as many as fit, one after the other on a CPU
    tensorboard: bool = False
    resident: bool | None = None  # data on the device, or staged from the host; None: by size
    network: Callable[[], nn.Module] | None = None  # one's own instead of the recipe's
    watch: Callable[[Plan, dict[str, Any]], bool] | None = None  # told of each evaluation; True ends the run early

    def where(self) -> torch.device:
        """The device, the best there is for "auto"."""
        if self.device != "auto":
            return _present(self.device)
        if torch.cuda.is_available():
            return torch.device("cuda", torch.cuda.current_device())
        return torch.device("cpu")


def _present(device: torch.device | str) -> torch.device:
    """A device that is there."""
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError):
        raise RecipeError(f'device must be "auto", "cpu", "cuda", "cuda:1" ..., got {device!r}') from None
    if found.type == "cuda" and (found.index or 0) >= torch.cuda.device_count():
        raise RecipeError(f"there is no device {device}: this machine has {torch.cuda.device_count()} CUDA devices")
    return found


class Shared:
    """What runs have in common: device, rows and fitted preprocessing."""

    def __init__(self, data: Dataset, how: How, place: Job) -> None:
        self.data, self.how, self.place, self.device = data, how, place, how.where()
        self._resident: Resident | None = None
        self._fitted: dict[object, nn.Module] = {}

    def preprocess(self, recipe: Recipe) -> nn.Module:
        """The recipe's preprocessing, fitted on the training rows, once."""
        spec = recipe.preprocessing
        if spec not in self._fitted:
            self._fitted[spec] = spec.fit(self.data.x).to(self.device).eval()
        return self._fitted[spec]

    def source(self, plan: Plan) -> Source:
        """The batches of a run."""
        recipe, place = plan.recipe, self.place
        sizes = BatchSize(
            place.share(recipe.batch.labeled, "labeled"), place.share(recipe.batch.unlabeled, "unlabeled")
        )
        neighbors = self._neighbors(plan) if "neighbors" in recipe.objective().needs else None
        preprocess = self.preprocess(recipe)
        return Source(
            self._store(plan, sizes),
            self.data,
            plan.split,
            sizes,
            preprocess,
            recipe.augmentation,
            self.device,
            neighbors,
        )

    def _store(self, plan: Plan, sizes: BatchSize) -> Store:
        if self.how.resident is False or (self.how.resident is None and not self._fits()):
            members = {"labeled": plan.split.labeled, "unlabeled": plan.split.unlabeled}
            rows = {"labeled": sizes.labeled, "unlabeled": sizes.unlabeled if len(plan.split.unlabeled) else 0}
            shard = (self.place.rank, self.place.world)
            return Staged(self.data, members, rows, Draw(plan.seed, 0, self.device, shard=shard))
        self._resident = self._resident or Resident(self.data, self.device)
        return self._resident

    def _fits(self) -> bool:
        """Whether all rows can lie on the device: a quarter of its free memory; on a CPU they lie where they are."""
        if self.device.type != "cuda":
            return self.data.x_extra is None
        size = self.data.x.nbytes + (0 if self.data.x_extra is None else self.data.x_extra.nbytes)
        return size < torch.cuda.mem_get_info(self.device)[0] / 4

    def _neighbors(self, plan: Plan) -> Tensor:
        data, split = self.data, plan.split
        pool = data.x if data.x_extra is None else np.concatenate([data.x, data.x_extra])
        ranks = class_ranks(
            data.x[split.labeled], data.y[split.labeled], pool[split.unlabeled], plan.recipe.classes, device=self.device
        )
        return ranks.to(self.device)
