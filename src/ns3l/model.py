"""A trained model: network, preprocessing, class names; saved as safetensors and JSON, loaded without running code."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ns3l.errors import DataError, RunError
from ns3l.evaluate import logits_of
from ns3l.recipe import Recipe
from ns3l.record import read_json, read_tensors, write_json, write_tensors
from ns3l.structure import plain


@dataclass(frozen=True)
class Model:
    """What maps stored rows (uint8 images [N, H, W, C], float features [N, D]) to class probabilities."""

    network: nn.Module
    preprocess: nn.Module
    recipe: Recipe
    classes: tuple[str, ...]
    shape: tuple[int, ...]
    labels: tuple[int | float | str | bool, ...] = ()  # the classes as the user wrote them, where they were no text

    def logits(self, x: np.ndarray | Tensor, batch: int = 500) -> Tensor:
        """Logits of stored rows, on the CPU, a batch at a time."""
        if tuple(x.shape[1:]) != self.shape:
            raise ValueError(f"the model takes rows of shape {self.shape}, got {tuple(x.shape[1:])}")
        found = logits_of(self.network, self.preprocess, x, batch)
        if bad := int((~found.isfinite()).any(1).sum()):
            raise DataError(
                f"for {bad} of {len(found)} rows the model puts out NaN or infinity: its weights are damaged, "
                "or the rows hold far larger numbers than those that it was trained on"
            )
        return found

    def probabilities(self, x: np.ndarray | Tensor, batch: int = 500) -> np.ndarray:
        """Class probabilities of stored rows."""
        return self.logits(x, batch).softmax(1).numpy()

    def predict(self, x: np.ndarray | Tensor, batch: int = 500) -> np.ndarray:
        """The most probable class of each stored row."""
        return np.array(self.labels or self.classes)[self.logits(x, batch).argmax(1).numpy()]

    def state(self) -> dict[str, Tensor]:
        """The tensors of network and preprocessing."""
        held = {f"network.{name}": value for name, value in self.network.state_dict().items()}
        return held | {f"preprocess.{name}": value for name, value in self.preprocess.state_dict().items()}

    def description(self) -> dict[str, Any]:
        """How to build the model again, as JSON-ready values."""
        return {
            "format": 1,
            "network": plain(self.recipe.network),
            "classes": list(self.classes),
            "labels": list(self.labels),
            "shape": list(self.shape),
            "preprocessing": plain(self.recipe.preprocessing),
            "recipe": self.recipe.to_dict(),
        }

    def save(self, path: Path | str) -> None:
        """Write `model.safetensors` and `model.json` into a folder."""
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        write_tensors(folder / "model.safetensors", self.state(), self.description())
        write_json(folder / "model.json", self.description())

    def module(self) -> nn.Module:
        """Stored rows to logits as one module, in eval mode: what is exported."""
        return nn.Sequential(self.preprocess, self.network).eval()


def load_model(path: Path | str, device: torch.device | str = "cpu", network: nn.Module | None = None) -> Model:
    """The model of a run folder or of the `model.safetensors` in it; nothing in it is executed.

    A network of your own class cannot be built from its name: pass it as `network`, its weights are filled in.
    """
    folder = Path(path)
    folder = folder.parent if folder.suffix == ".safetensors" else folder
    if not (folder / "model.safetensors").exists():
        raise RunError(
            f"there is no model in {folder}: expected model.safetensors and model.json, as a run writes them"
        )
    told = read_json(folder / "model.json")
    try:
        recipe, shape = Recipe.from_dict(told["recipe"]), tuple(int(side) for side in told["shape"])
        classes, labels = _names(told["classes"], told.get("labels", ()))
    except (KeyError, TypeError, ValueError, OverflowError) as problem:
        reason = f"it has no {problem}" if isinstance(problem, KeyError) else problem
        raise RunError(
            f"{folder / 'model.json'} does not describe a model: {reason}; name a folder that a run or model.save wrote"
        ) from problem
    if recipe.network.name == "own" and network is None:
        raise RunError(f"{folder} holds weights of a network of your own class; pass load_model(…, network=…)")
    tensors = read_tensors(folder / "model.safetensors")[0]
    try:
        _fits(recipe, shape, classes, tensors, own=network is not None)
        network = recipe.network_for(shape) if network is None else network
    except (TypeError, ValueError, RuntimeError, OverflowError) as problem:
        raise RunError(f"{folder / 'model.json'} does not describe the model beside it: {problem}") from problem
    model = Model(network, recipe.preprocessing.empty(shape), recipe, classes, shape, labels)
    _fill(model, tensors, folder)
    for part in (model.network, model.preprocess):
        part.to(device).eval()
    return model


def _names(classes: Any, labels: Any) -> tuple[tuple[str, ...], tuple[int | float | str | bool, ...]]:
    """Class names and labels of a description, which may be anybody's."""
    if not all(isinstance(name, str) for name in classes) or len(set(classes)) != len(classes):
        raise ValueError("classes must be names that differ")
    if not all(isinstance(label, (int, float, str)) for label in labels):
        raise ValueError("labels must be numbers or text")
    if labels and len(labels) != len(classes):
        raise ValueError(f"{len(labels)} labels for {len(classes)} classes")
    return tuple(classes), tuple(labels)


def _fits(
    recipe: Recipe, shape: tuple[int, ...], classes: tuple[str, ...], tensors: dict[str, Tensor], own: bool
) -> None:
    """Refuse what the weights do not fill, before memory or time is taken for it: the description may be anybody's."""
    numbers = sum(value.numel() for value in tensors.values())
    options = [value if isinstance(value, list) else [int(value)] for value in recipe.network.options.values()]
    layers = max([int(recipe.network.options.get("depth", 0)), *map(len, options)])  # type: ignore[arg-type]
    if len(classes) != recipe.classes or not (shape and min(shape) > 0):
        raise ValueError(f"{len(classes)} class names, {recipe.classes} classes, rows of shape {shape}")
    if max(recipe.classes, shape[-1], *(max(asked, default=0) for asked in options)) > numbers or layers > len(tensors):
        raise ValueError(f"it asks for a larger network than the {numbers:,} numbers in {len(tensors)} tensors fill")
    if recipe.preprocessing.name == "gcn-zca" and math.prod(shape) ** 2 > numbers:
        raise ValueError(f"whitening of rows of shape {shape} takes more than the {numbers:,} numbers there are")
    if not own:
        with torch.device("meta"):
            expected = recipe.network_for(shape).state_dict()
        for name, value in expected.items():
            if (found := tensors.get(f"network.{name}")) is None or found.shape != value.shape:
                raise ValueError(f"{name} should have the shape {list(value.shape)}")


def _fill(model: Model, tensors: dict[str, Tensor], folder: Path) -> None:
    for prefix, part in (("network.", model.network), ("preprocess.", model.preprocess)):
        state = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
        try:
            part.load_state_dict(state)
        except RuntimeError as problem:
            first = str(problem).splitlines()[-1].strip()[:300]
            raise RunError(f"the weights in {folder} do not fit the network that it describes: {first}") from problem
