"""The paper's experiments by name: every row as a recipe, every table and figure as an item of `ns3l reproduce`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from ns3l.recipe import Recipe, Rule
from ns3l.recipes.fashion import fashion
from ns3l.recipes.mixing import mixing
from ns3l.recipes.realistic import realistic

Rows = tuple[tuple[str, Recipe], ...]
Made = Callable[[], Recipe]
FURTHER = " (further row)"
"""The end of the label of a row that the paper does not have."""


@dataclass(frozen=True)
class Item:
    """A table or figure: rows of (label, recipe), each at every point of the grid, with so many seeds."""

    title: str
    data: str
    rows: Rows
    grid: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    seeds: int = 5
    rule: Rule = "best_validation"


TABLE_1: Mapping[str, str] = {
    "supervised": "Supervised",
    "pl-one-pass": "PL",
    "ns3l": "NS3L",
    "vat": "VAT",
    "vat+entmin": "VAT + EntMin",
    "pi": "Π model",
    "pi+ns3l": "Π + NS3L",
    "vat+ns3l": "VAT + NS3L",
    "pl": f"PL two passes{FURTHER}",
    "ns3l-one-pass": f"NS3L one pass{FURTHER}",
    "vat+ns3l-one-pass": f"VAT + NS3L one pass{FURTHER}",
    "mean-teacher": f"Mean teacher{FURTHER}",
}
"""Methods and labels; the realistic evaluation's pseudo-labels and their score come from one pass."""
TABLE_2: Mapping[str, str] = {
    "vat": "VAT",
    "vat+entmin": "VAT + EntMin",
    "vat+pl-one-pass": "VAT + PL",
    "vat+ns3l": "VAT + NS3L",
    "vat+pl": f"VAT + PL two passes{FURTHER}",
    "supervised": f"Supervised{FURTHER}",
}
MIXMATCH: Mapping[str, str] = {
    "mixmatch": "MixMatch",
    "mixmatch+ns3l": "MixMatch + NS3L",
    "mixup": f"Mixup{FURTHER}",
    "ict": f"ICT{FURTHER}",
    "supervised": f"Supervised{FURTHER}",
}
MIXMATCH_LABELS = (("cifar10", 250), ("cifar10", 4_000), ("svhn", 250), ("svhn", 1_000), ("stl10", 1_000))
FASHION: Mapping[str, tuple[str, str, float | None]] = {
    "supervised": ("Supervised", "supervised", None),
    "ns3l-uniform-1": ("Uniform - 1", "ns3l-uniform-1", None),
    "ns3l-uniform-3": ("Uniform - 3", "ns3l-uniform-3", None),
    "ns3l-nn-exclude": ("Exclude class of NN - 1", "ns3l-nn-exclude", None),
    "ns3l-nn-exclude-4": ("Exclude 4 nearest classes with NN - 1", "ns3l-nn-exclude-4", None),
    "ns3l-nn-furthest": ("Furthest class with NN - 1", "ns3l-nn-furthest", None),
    "ns3l-0.03": ("Threshold T = 0.03", "ns3l", 0.03),
    "ns3l-0.05": ("Threshold T = 0.05", "ns3l", 0.05),
    "ns3l-oracle-1": ("Oracle - 1", "ns3l-oracle-1", None),
    "ns3l-oracle-3": ("Oracle - 3", "ns3l-oracle-3", None),
    "ns3l-one-pass-0.03": (f"Threshold T = 0.03 one pass{FURTHER}", "ns3l-one-pass", 0.03),
    "ns3l-one-pass-0.05": (f"Threshold T = 0.05 one pass{FURTHER}", "ns3l-one-pass", 0.05),
}
"""Label, method and threshold of every row; the released module's two passes stand for the paper's threshold rows."""
THRESHOLDS = (0.02, 0.04, 0.06, 0.1)
"""The sensitivity figure's four thresholds and, below, three weights for each panel: ours, the paper gives none."""
SENSITIVITY: Mapping[str, tuple[Made, tuple[float, ...], str]] = {
    "ns3l": (partial(realistic, "ns3l"), (0.3, 1.0, 3.0), "NS3L on CIFAR-10, 4,000 labels"),
    "vat+ns3l": (partial(realistic, "vat+ns3l"), (0.1, 0.3, 1.0), "VAT + NS3L on CIFAR-10, 4,000 labels"),
    "mixmatch+ns3l": (
        partial(mixing, "mixmatch+ns3l", "svhn", 250),
        (1.0, 2.0, 5.0),
        "MixMatch + NS3L on SVHN, 250 labels",
    ),
}
NAMES: Mapping[str, str] = {"cifar10": "CIFAR-10", "svhn": "SVHN", "cifar100": "CIFAR-100", "stl10": "STL-10"}


def _published() -> dict[str, Made]:
    """Every row by "table/column/method"."""
    made: dict[str, Made] = {}
    for data in ("cifar10", "svhn", "cifar100"):
        made |= {f"table1/{data}/{method}": partial(realistic, method, data) for method in TABLE_1}
    for data in ("cifar10", "cifar100"):
        made |= {f"table2/{data}/{method}": partial(realistic, method, data) for method in TABLE_2}
    for data, labels in MIXMATCH_LABELS:
        made |= {f"mixmatch/{data}-{labels}/{method}": partial(mixing, method, data, labels) for method in MIXMATCH}
    made |= {f"sensitivity/{method}": base for method, (base, _, _) in SENSITIVITY.items()}
    for row, (_, method, threshold) in FASHION.items():
        made[f"fashion-mnist/{row}"] = partial(fashion, method, threshold=threshold)
    return made


PUBLISHED: dict[str, Made] = _published()
"""The paper's rows and ours beside them, by name: each a function that makes the recipe."""


def _rows(prefix: str, labels: Mapping[str, str]) -> Rows:
    return tuple((label, PUBLISHED[f"{prefix}/{method}"]()) for method, label in labels.items())


def _tables() -> dict[str, Item]:
    """Tables 1 and 2, an item for each data set."""
    return {
        f"{table}-{data}": Item(f"{title}: {NAMES[data]}", data, _rows(f"{table}/{data}", labels))
        for table, title, labels, sets in (
            ("table1", "Table 1", TABLE_1, ("cifar10", "svhn", "cifar100")),
            ("table2", "Table 2, on top of VAT", TABLE_2, ("cifar10", "cifar100")),
        )
        for data in sets
    }


def _mixmatch() -> dict[str, Item]:
    """The MixMatch tables, an item for each column."""
    return {
        f"mixmatch-{data}-{labels}": Item(
            f"MixMatch on {NAMES[data]}, {labels:,} labels",
            data,
            _rows(f"mixmatch/{data}-{labels}", MIXMATCH),
            rule="median_20",
        )
        for data, labels in MIXMATCH_LABELS
    }


def _sensitivity() -> dict[str, Item]:
    """The panels of the sensitivity figure: four thresholds by three weights."""
    items = {}
    for method, (base, weights, title) in SENSITIVITY.items():
        made = base()
        grid = {"ns3l.negatives.threshold": THRESHOLDS, "ns3l.weight": weights}
        rule = made.evaluation.rule
        items[f"sensitivity-{method}"] = Item(f"Sensitivity: {title}", made.data, ((method, made),), grid, rule=rule)
    return items


def _searches() -> dict[str, Item]:
    """What the paper tuned without saying how, to be chosen on validation."""
    grid = {"pl.weight": (0.1, 0.3, 1.0), "optimizer.lr": (3e-4, 6e-4, 3e-3)}
    rows = _rows("table2/cifar10", {"vat+pl-one-pass": "VAT + PL"})
    return {"search-vat+pl": Item("VAT + PL: weight and learning rate by validation", "cifar10", rows, grid, seeds=1)}


def _appendix() -> dict[str, Item]:
    """The Fashion-MNIST table and the toy example, which has no recipe: it is `ns3l.toy`."""
    rows = tuple((label, PUBLISHED[f"fashion-mnist/{row}"]()) for row, (label, _, _) in FASHION.items())
    return {
        "fashion-mnist": Item("Appendix B: ways to choose negatives", "fashion-mnist", rows, rule="last"),
        "toy": Item("Figure 1: the toy example in one dimension", "toy", (), seeds=1, rule="last"),
    }


ITEMS: dict[str, Item] = _tables() | _mixmatch() | _sensitivity() | _searches() | _appendix()
"""Everything that `ns3l reproduce` knows, by name."""
