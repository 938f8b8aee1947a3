"""What the published recipes make of data: the sizes of their splits, and a step of each kind."""

import numpy as np
import pytest

from ns3l.data import Dataset
from ns3l.recipes import PUBLISHED, override
from ns3l.shared import How
from ns3l.split import make_split
from ns3l.train import fit

NAMES = tuple("abcdefghij")
STEPPED = {
    "table1/cifar10/supervised": 32,
    "table1/svhn/vat+ns3l": 32,
    "table1/svhn/mean-teacher": 32,
    "table1/svhn/pi+ns3l": 32,
    "table2/cifar10/vat+pl-one-pass": 32,
    "mixmatch/svhn-250/mixmatch+ns3l": 32,
    "mixmatch/svhn-250/ict": 32,
    "mixmatch/svhn-250/mixup": 32,
    "mixmatch/stl10-1000/mixmatch+ns3l": 48,
    "fashion-mnist/ns3l-nn-exclude-4": 28,
}


def rows(name: str, count: int, size: int = 1, extra: int = 0, folds: int = 0, test: int = 0) -> Dataset:
    x = np.random.default_rng(0).integers(0, 256, (count, size, size, 3), dtype=np.uint8)
    y = np.arange(count, dtype=np.int64) % 10
    return Dataset(
        name,
        x,
        y,
        NAMES,
        x_test=x[:test] if test else None,
        y_test=y[:test] if test else None,
        x_extra=np.zeros((extra, size, size, 3), np.uint8) if extra else None,
        folds=tuple(np.arange(k, k + count // 5) for k in range(folds)),
    )


@pytest.mark.parametrize(
    ("name", "data", "labeled", "pool", "validation"),
    [
        ("table1/cifar10/ns3l", rows("cifar10", 50_000), 4_000, 45_000, 5_000),
        ("table1/svhn/ns3l", rows("svhn", 73_257), 1_000, 65_932, 7_325),
        ("mixmatch/cifar10-250/mixmatch", rows("cifar10", 50_000), 250, 44_750, 5_000),
        ("mixmatch/stl10-1000/mixmatch", rows("stl10", 5_000, extra=100_000, folds=10), 1_000, 104_000, 0),
        ("fashion-mnist/ns3l-0.03", rows("fashion-mnist", 60_000), 2_000, 58_000, 0),
    ],
    ids=str,
)
def test_splits_have_the_sizes_of_the_papers(name, data, labeled, pool, validation):
    split = make_split(data, PUBLISHED[name]().split, seed=0)
    assert (len(split.labeled), len(split.unlabeled), len(split.validation)) == (labeled, pool, validation)
    per_class = np.bincount(data.y[split.labeled])
    assert per_class.max() - per_class.min() <= (1 if "balanced" in split.request.balance else 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", STEPPED)
def test_every_kind_of_recipe_takes_a_step(name):
    made = PUBLISHED[name]()
    changes = {"steps": 1, "batch.labeled": 8, "split.validation": 20, "network.options.width": 1}
    changes |= {"network.options.depth": 10} if made.network.name == "wide-resnet" else {}
    changes |= {"batch.unlabeled": 8} if made.batch.unlabeled else {}
    changes |= {"split.labels": 100} if made.split.fold is None else {"split.labels": None}
    changes |= {"preprocessing": "scale"} if made.data == "cifar10" else {}
    folded = {"extra": 30, "folds": 3} if made.split.fold else {}
    data = rows(made.data, 200, STEPPED[name], test=20, **folded)
    (run,) = fit(override(made, changes), data, seeds=[1], how=How(progress="quiet")).runs
    assert (run.result["status"], run.result["step"], run.result["method"]) == ("complete", 1, made.method)
