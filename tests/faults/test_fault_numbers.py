"""Numbers that no one wants: each ends in a correct run, or in a clear error or warning."""

import json
import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from tests.faults.campaign import QUIET, blobs, many, refused, row, tiny

from ns3l.batch import BatchSize
from ns3l.data.arrays import from_arrays
from ns3l.data.dataset import Dataset
from ns3l.errors import DataError, RecipeError, UserError
from ns3l.networks import MLP
from ns3l.optimize import Adam
from ns3l.recipe import Network
from ns3l.recipes.own import own
from ns3l.split import Split, make_split
from ns3l.train import fit

METHODS = ("supervised", "ns3l", "pl", "vat+ns3l", "pi", "mixmatch+ns3l", "mean-teacher")


def trained(data: Dataset, method: str = "ns3l", labels: int | None = 12, steps: int = 20, **changes) -> dict:
    """The result of a short run."""
    recipe = replace(tiny(method, data, labels, steps), **changes)
    return fit(recipe, data, how=QUIET).runs[0].result


def fine(result: dict) -> None:
    """A run that ended with numbers."""
    assert result["status"] == "complete"
    assert result["test_error"]["last"] is None or 0 <= result["test_error"]["last"] <= 100


def with_x(data: Dataset, value: float) -> Dataset:
    x = data.x.copy()
    x[7, 2] = value
    return replace(data, x=x)


def test_not_finite_data_and_labels():
    x, y = blobs().x.astype(float), blobs().y.astype(float)
    with row("numbers", "NaN and infinity in data and labels") as told:
        for value in (math.nan, math.inf, -math.inf):
            with told.trying(f"x {value}"):
                refused(lambda value=value: with_x(blobs(), value), (DataError,), "row 7")
                bad = x.copy()
                bad[7, 2] = value
                refused(lambda bad=bad: from_arrays(bad, y), (DataError,), "NaN or infinit")
            with told.trying(f"y {value}"):
                labels = y.copy()
                labels[3] = value
                if math.isnan(value):  # a missing label
                    assert from_arrays(x, labels).y[3] == -1
                else:
                    refused(lambda labels=labels: from_arrays(x, labels), (DataError,))
        with told.trying("too large for float32"):
            refused(lambda: from_arrays(np.where(x == x[0, 0], 1e300, x), y), (DataError,))


def test_not_finite_weights_and_divergence(tmp_path):
    """The run fails with step and reason, keeps its finite weights, and fails alike when it is started again."""

    def network() -> torch.nn.Module:
        made = MLP(classes=3, features=4, hidden=(8,))
        with torch.no_grad():
            made.head.bias[0] = math.nan
        return torch.nn.Sequential(made)  # the library fills its own networks anew

    with row("numbers", "weights that are NaN, learning rates that diverge") as told:
        with told.trying("NaN in the first weights"):
            recipe = replace(tiny(), network=Network("own"))
            result = fit(recipe, blobs(), how=replace(QUIET, network=network)).runs[0].result
            assert result["status"] == "failed"
        for method in METHODS if many(0, 1) else ("ns3l",):
            with told.trying(f"learning rate, {method}"):
                recipe = replace(tiny(method), optimizer=Adam(1e30))
                for _ in range(2):
                    run = fit(recipe, blobs(), out=tmp_path / method, how=QUIET).runs[0]
                    stored = json.loads((tmp_path / method / "seed-0" / "result.json").read_text())
                    assert run.model is None and stored["status"] == "failed"
                    assert "not finite at step" in stored["reason"]


def test_few_of_something():
    data = blobs()
    with row("numbers", "batches of one class, classes with one label, one row a batch") as told:
        for method in METHODS:
            with told.trying(f"batch of one class, {method}"):
                split = make_split(data, tiny(method, data).split, 0)
                first = split.labeled[data.y[split.labeled] == 0]
                one = Split(
                    first, split.unlabeled, split.validation, 0, split.data_hash, split.generator, split.request
                )
                recipe = tiny(method, data, steps=10)
                fine(fit(recipe, data, splits=[one], how=QUIET).runs[0].result)
            with told.trying(f"one label a class, {method}"):
                fine(trained(data, method, labels=3, steps=10))
        with told.trying("one row a batch"):
            refused(lambda: trained(data, "supervised", batch=BatchSize(1, 0), steps=5), (RecipeError,), "batch norm")
            fine(trained(data, "ns3l", batch=BatchSize(1, 1), steps=5))


def test_many_and_few_classes():
    with row("numbers", "2 and 1,000 classes") as told:
        for classes, rows in ((2, 40), (1000, 3000)):
            for method in METHODS if many(0, 1) else ("ns3l",):
                with told.trying(f"K = {classes}, {method}"):
                    data = blobs(rows, classes)
                    fine(trained(data, method, labels=classes, steps=5))
        with told.trying("K = 1"):
            refused(lambda: from_arrays(np.ones((4, 2)), ["a"] * 4), (DataError,), "2 classes")


def test_all_and_none_unlabeled():
    data = blobs()
    with row("numbers", "all unlabeled, none unlabeled") as told:
        with told.trying("all"):
            refused(lambda: trained(replace(data, y=np.full(120, -1))), (UserError,))
        for method in METHODS:
            with told.trying(f"none, {method}"):
                fine(trained(data, method, labels=None, steps=5))


def test_rows_that_say_nothing():
    data = blobs()
    variants = {
        "duplicate rows": replace(data, x=np.repeat(data.x[:3], 40, axis=0), y=np.repeat(data.y[:3], 40)),
        "constant features": replace(data, x=np.ones_like(data.x)),
        "one constant feature": replace(data, x=np.concatenate([data.x[:, :3], np.full((120, 1), 1e6, np.float32)], 1)),
        "huge values": replace(data, x=data.x * np.float32(1e30), x_test=data.x_test * np.float32(1e30)),
        "tiny values": replace(data, x=data.x * np.float32(1e-30), x_test=data.x_test * np.float32(1e-30)),
        "black images": Dataset("black", np.zeros((60, 8, 8, 1), np.uint8), np.arange(60) % 3, ("a", "b", "c")),
    }
    with row("numbers", "duplicate rows, constant features, huge and tiny values") as told:
        for name, variant in variants.items():
            for method in ("ns3l", "vat+ns3l", "mixmatch+ns3l"):
                with told.trying(f"{name}, {method}"):
                    fine(trained(variant, method, steps=10))


def digits() -> tuple[np.ndarray, np.ndarray]:
    images, y = load_digits(return_X_y=True)
    return np.rint(images * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8, 1), y.astype(np.int64)


def accuracy(data: Dataset, method: str, split: Split, steps: int) -> float:
    """Test accuracy in per cent after so many steps."""
    recipe = own(method, data.name, len(data.classes), data.x.shape[1:], len(split.labeled), 0, steps)
    error = fit(recipe, data, splits=[split], how=QUIET).errors(rule="last")[0]
    assert error is not None
    return 100 - error


def chosen(data: Dataset, labeled: np.ndarray) -> Split:
    """A split with these labels; every row is in the pool."""
    made = make_split(data, tiny("ns3l", data, labels=None).split, 0)
    request = replace(made.request, labels=None, validation=0)
    pool = np.arange(len(data.x))
    return Split(np.sort(labeled), pool, pool[:0], 0, data.hash, made.generator, request)


def test_unlabeled_rows_of_other_classes():
    """Six digits are classes, the other four come in the unlabeled pool in a growing share."""
    x, y = digits()
    draw = np.random.default_rng(0)
    order = draw.permutation(len(y))
    known, other = order[y[order] < 6], order[y[order] >= 6]
    test, train = known[:400], known[400:]
    told_all: list[str] = []
    with row("numbers", "unlabeled rows of other classes, 0/25/50/75 %") as told:
        for share in (0.0, 0.25, 0.5, 0.75) if many(0, 1) else (0.5,):
            with told.trying(f"{share:.0%}"):
                strange = int(share * 480)
                pool = np.concatenate([train[: 480 - strange], other[:strange]])
                labels = np.where(y[pool] < 6, y[pool], -1)
                labeled = np.concatenate([np.flatnonzero(labels == k)[:5] for k in range(6)])
                data = Dataset("digits-0-5", x[pool], labels, tuple("012345"), x[test], y[test])
                split = chosen(data, labeled)
                found = [accuracy(data, method, split, many(10, 150)) for method in ("supervised", "ns3l", "vat+ns3l")]
                assert min(found) > 100 / 6
                told_all.append(f"{share:.0%}: " + ", ".join(f"{value:.1f}" for value in found))
        told.note = f"test accuracy of supervised, ns3l, vat+ns3l by share: {'; '.join(told_all)}"


def test_imbalance():
    x, y = digits()
    order = np.random.default_rng(0).permutation(len(y))
    test, train = order[:500], order[500:]
    with row("numbers", "imbalance of 100:1") as told, told.trying():
        counts = np.geomspace(100, 1, 10).round().astype(int)
        pool = np.concatenate([train[y[train] == k][: counts[k]] for k in range(10)])
        data = Dataset("digits-imbalanced", x[pool], y[pool], tuple("0123456789"), x[test], y[test])
        labeled = np.concatenate([np.flatnonzero(data.y == k)[:3] for k in range(10)])
        split = chosen(data, labeled)
        found = [accuracy(data, method, split, many(10, 150)) for method in ("supervised", "ns3l", "vat+ns3l")]
        told.note = f"test accuracy of supervised, ns3l, vat+ns3l: {', '.join(f'{value:.1f}' for value in found)}"


def test_thresholds_that_mark_every_class_warn():
    with row("numbers", "a threshold of 1/K or more") as told, told.trying():
        from ns3l.negatives import Threshold

        made = tiny()
        entry = made.terms["ns3l"]
        with warnings.catch_warnings(), pytest.raises(UserWarning, match="at least 1/K"):
            warnings.simplefilter("error")
            replace(
                made, terms=made.terms | {"ns3l": replace(entry, term=replace(entry.term, negatives=Threshold(0.5)))}
            )
        refused(lambda: replace(made, classes=1), (RecipeError,))
