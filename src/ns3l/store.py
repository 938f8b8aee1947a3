"""Where the rows of a data set are kept while training: on the device, or on the host and staged ahead of the step."""

import warnings
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from ns3l.data.dataset import Dataset
from ns3l.draw import Draw


class Store(Protocol):
    """Gives rows of a view by index; `stage` is called by the host before each step."""

    def take(self, view: str, index: Tensor) -> Tensor:
        """The rows of a view at an index."""

    def stage(self, step: int) -> None:
        """Make the rows of a step ready."""


def positions(draw: Draw, view: str, members: int, size: int) -> Tensor:
    """Which members of a view a step takes: each independently, any member alike."""
    return draw.stream(f"index/{view}").rows(size).integers(0, members, (size,))


class Resident:
    """All rows on the device, as stored; shared by replicas. On a CPU they stay where they are, mapped or not."""

    def __init__(self, data: Dataset, device: torch.device) -> None:
        parts = [data.x] if data.x_extra is None else [data.x, data.x_extra]
        tensors = [_as_tensor(part).to(device) for part in parts]
        self.rows = torch.cat(tensors) if len(tensors) > 1 else tensors[0]

    def take(self, view: str, index: Tensor) -> Tensor:  # noqa: ARG002
        """The rows at an index."""
        return self.rows[index]

    def stage(self, step: int) -> None:
        """Nothing: every row is there."""


def _as_tensor(rows: np.ndarray) -> Tensor:
    """The same memory as a tensor, even where it may not be written (nobody does); copied if torch cannot step it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
        try:
            return torch.from_numpy(rows)
        except ValueError:  # a negative stride
            return torch.from_numpy(np.array(rows))


class Staged:
    """Rows on the host, memory-mapped perhaps: gathered in a thread for the steps to come, copied in before each.

    The host draws the same indices as the step does, since draws have no state.
    """

    def __init__(
        self, data: Dataset, members: dict[str, np.ndarray], sizes: dict[str, int], draw: Draw, ahead: int = 2
    ) -> None:
        self.parts = [data.x] if data.x_extra is None else [data.x, data.x_extra]
        self.members, self.ahead = members, ahead
        self.device = torch.device(draw.device)
        self.draw = replace(draw, seed=int(draw.seed), device="cpu")
        shape, dtype = data.x.shape[1:], torch.from_numpy(np.empty(0, data.x.dtype)).dtype
        self.rows = {v: torch.empty((n, *shape), dtype=dtype, device=self.device) for v, n in sizes.items() if n}
        self._thread = ThreadPoolExecutor(1, "staging")
        self._coming: dict[int, Future[dict[str, Tensor]]] = {}

    def take(self, view: str, index: Tensor) -> Tensor:  # noqa: ARG002
        """The rows that were staged for this step."""
        return self.rows[view]

    def stage(self, step: int) -> None:
        """Copy the rows of a step to the device and begin to gather the next ones."""
        for coming in range(step, step + self.ahead + 1):
            if coming not in self._coming:
                self._coming[coming] = self._thread.submit(self.gather, coming)
        ready = self._coming.pop(step).result()
        self._coming = {later: rows for later, rows in self._coming.items() if later > step}
        for view, rows in ready.items():
            self.rows[view].copy_(rows, non_blocking=True)

    def gather(self, step: int) -> dict[str, Tensor]:
        """The rows of a step, in pinned memory where there is a GPU."""
        gathered = {}
        for view, buffer in self.rows.items():
            place = positions(self.draw.at(step), view, len(self.members[view]), len(buffer))
            rows = torch.from_numpy(self._read(self.members[view][place.numpy()]))
            gathered[view] = rows.pin_memory() if self.device.type == "cuda" else rows
        return gathered

    def _read(self, index: np.ndarray) -> np.ndarray:
        first = len(self.parts[0])
        rows = np.empty((len(index), *self.parts[0].shape[1:]), self.parts[0].dtype)
        rows[index < first] = self.parts[0][index[index < first]]
        if len(self.parts) > 1:
            rows[index >= first] = self.parts[1][index[index >= first] - first]
        return rows
