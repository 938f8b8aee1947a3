"""A small run for the tests of engine, training and processes: features of two clouds a class, an MLP."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from ns3l.augment import Augmentation, Noise
from ns3l.batch import BatchSize
from ns3l.data.dataset import Dataset
from ns3l.methods import terms_of
from ns3l.optimize import Adam
from ns3l.preprocess import Standardize
from ns3l.recipe import Averaging, EvaluationPlan, Network, Recipe, Weighted
from ns3l.record import read_tensors
from ns3l.schedule import Ramp
from ns3l.shared import How
from ns3l.split import SplitRequest
from ns3l.train import fit

QUIET = How(device="cpu", progress="quiet")


def clouds(rows=120, extra=0, seed=0):
    """Three classes of features with a test part."""
    draw = np.random.default_rng(seed)
    y = np.arange(rows) % 3
    x = (draw.normal(size=(rows, 5)) + 2 * np.eye(5)[y]).astype(np.float32)
    further = draw.normal(size=(extra, 5)).astype(np.float32) if extra else None
    return Dataset("clouds", x, y, ("a", "b", "c"), x[:30] + 0.1, y[:30], further)


def recipe(method="ns3l", steps=12, every=4, **changes):
    """A method on the clouds, validated."""
    terms, builder = terms_of(method, 3)
    made = Recipe(
        method=method,
        data="clouds",
        classes=3,
        terms={n: Weighted(1.0 if n == "supervised" else Ramp(1.0, 6), term) for n, term in terms.items()},
        builder=builder,
        network=Network("mlp", {"hidden": [8]}),
        preprocessing=Standardize(),
        augmentation=Augmentation((Noise(0.1),)),
        batch=BatchSize(6, 6 if len(terms) > 1 else 0),
        optimizer=Adam(Ramp(1e-2, 5)),
        steps=steps,
        evaluation=EvaluationPlan(every=every),
        average=Averaging(0.9) if "mean-teacher" in method else None,
        statistics="first_interleaved" if builder else "joint",
        split=SplitRequest(labels=12, validation=30),
    )
    return replace(made, **changes)


def same(one, other, but=()):
    """Whether two states are equal bit for bit, some entries left out."""
    assert one.keys() == other.keys()
    return all(torch.equal(one[name], other[name]) for name in one if name not in but)


def lines(folder):
    """metrics.jsonl without times and memory."""
    told = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    times = ("seconds", "steps_per_second", "memory_mb")
    return [{name: value for name, value in line.items() if name not in times} for line in told]


def ended(folder):
    """result.json without times, and the model's tensors."""
    result = json.loads((folder / "result.json").read_text())
    times = ("seconds", "steps_per_second", "memory_mb", "step_at", "earlier_failures")
    return {name: value for name, value in result.items() if name not in times}, read_tensors(
        folder / "model.safetensors"
    )[0]


if __name__ == "__main__":  # a process that a test may kill
    torch.set_num_threads(1)
    fit(recipe("vat+ns3l", steps=60, every=6), clouds(), out=Path(sys.argv[1]), how=replace(QUIET, checkpoint_steps=3))
