"""The numbers that the paper published, as data: every cell of its tables, to be put beside ours."""

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["CELLS", "TABLES", "PaperCell", "PaperTable", "canonical", "published"]


@dataclass(frozen=True)
class PaperCell:
    """One published number: a test error in per cent, mean and standard deviation over the paper's splits.

    `settings` are the recipe fields that tell rows of one method apart; `wording` is the row as the paper names it.
    `n` is None where the paper does not say over how many splits it averaged.
    """

    table: str
    data: str
    labels: int
    method: str
    mean: float
    std: float
    n: int | None
    wording: str
    settings: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class PaperTable:
    """One table of the paper: our key, what it shows, the label in its source, and its cells in reading order."""

    key: str
    title: str
    source: str
    cells: tuple[PaperCell, ...]


@dataclass(frozen=True)
class _Row:
    """One data set of a table: its columns' numbers, each as mean and standard deviation."""

    data: str
    labels: int
    numbers: tuple[tuple[float, float], ...]


_TABLE_1_METHODS = (
    ("supervised", "Supervised"),
    ("pl", "PL"),
    ("ns3l", "NS3L"),
    ("vat", "VAT"),
    ("vat+entmin", "VAT + EntMin"),
    ("pi", "Π model"),
    ("pi+ns3l", "Π + NS3L"),
    ("vat+ns3l", "VAT + NS3L"),
)
_TABLE_2_METHODS = (
    ("vat", "VAT"),
    ("vat+entmin", "VAT + EntMin"),
    ("vat+pl", "VAT + PL"),
    ("vat+ns3l", "VAT + NS3L"),
)
_MIXMATCH_METHODS = (("mixmatch", "MixMatch"), ("mixmatch+ns3l", "MixMatch + NS3L"))
_VAT_CIFAR_10 = ((14.72, 0.23), (14.34, 0.18))
_VAT_CIFAR_100 = ((44.38, 0.56), (43.92, 0.44))

_TABLE_1_ROWS = (
    _Row(
        "cifar10",
        4_000,
        ((20.76, 0.28), (17.56, 0.29), (16.03, 0.05), *_VAT_CIFAR_10, (17.12, 0.19), (16.06, 0.21), (13.94, 0.10)),
    ),
    _Row(
        "svhn",
        1_000,
        (
            (12.39, 0.53),
            (7.70, 0.22),
            (6.52, 0.22),
            (6.20, 0.11),
            (6.10, 0.02),
            (8.48, 0.15),
            (7.98, 0.18),
            (5.51, 0.14),
        ),
    ),
    _Row(
        "cifar100",
        10_000,
        ((48.26, 0.25), (46.91, 0.31), (46.34, 0.37), *_VAT_CIFAR_100, (47.87, 0.34), (46.98, 0.41), (43.70, 0.19)),
    ),
)
_TABLE_2_ROWS = (
    _Row("cifar10", 4_000, (*_VAT_CIFAR_10, (14.15, 0.14), (13.94, 0.10))),
    _Row("cifar100", 10_000, (*_VAT_CIFAR_100, (43.93, 0.33), (43.70, 0.19))),
)
_MIXMATCH_CIFAR_10 = (
    _Row("cifar10", 250, ((14.49, 1.60), (12.48, 1.21))),
    _Row("cifar10", 4_000, ((7.05, 0.10), (6.92, 0.12))),
)
_MIXMATCH_SVHN = (
    _Row("svhn", 250, ((3.75, 0.09), (3.38, 0.08))),
    _Row("svhn", 1_000, ((3.28, 0.11), (3.14, 0.11))),
)
_MIXMATCH_STL_10 = (_Row("stl10", 1_000, ((22.20, 0.89), (21.74, 0.33))),)

_THRESHOLD = "ns3l.negatives.threshold"
_FASHION_MNIST: tuple[tuple[str, str, float, float, tuple[tuple[str, float], ...]], ...] = (
    ("supervised", "Supervised", 17.25, 0.22, ()),
    ("ns3l-uniform-1", "Uniform - 1", 18.64, 0.38, ()),
    ("ns3l-uniform-3", "Uniform - 3", 19.35, 0.33, ()),
    ("ns3l-nn-exclude", "Exclude class of NN - 1", 17.12, 0.15, ()),
    ("ns3l-nn-exclude-4", "Exclude 4 nearest classes with NN - 1", 17.13, 0.21, ()),
    ("ns3l-nn-furthest", "Furthest class with NN - 1", 16.76, 0.15, ()),
    ("ns3l", "Threshold T = 0.03", 16.47, 0.18, ((_THRESHOLD, 0.03),)),
    ("ns3l", "Threshold T = 0.05", 16.59, 0.19, ((_THRESHOLD, 0.05),)),
    ("ns3l-oracle-1", "Oracle - 1", 16.37, 0.12, ()),
    ("ns3l-oracle-3", "Oracle - 3", 15.20, 0.66, ()),
)


def _cells(table: str, methods: tuple[tuple[str, str], ...], rows: tuple[_Row, ...]) -> tuple[PaperCell, ...]:
    """The cells of a table of methods by data sets, each averaged over the paper's 5 splits."""
    return tuple(
        PaperCell(table, row.data, row.labels, method, mean, std, 5, wording)
        for row in rows
        for (method, wording), (mean, std) in zip(methods, row.numbers, strict=True)
    )


def _fashion_mnist() -> tuple[PaperCell, ...]:
    """The appendix's table; the paper does not say over how many splits."""
    return tuple(
        PaperCell("fashion-mnist", "fashion-mnist", 2_000, method, mean, std, None, wording, settings)
        for method, wording, mean, std, settings in _FASHION_MNIST
    )


TABLES: tuple[PaperTable, ...] = (
    PaperTable("table1", "Standard benchmarks", "tableResults", _cells("table1", _TABLE_1_METHODS, _TABLE_1_ROWS)),
    PaperTable("table2", "On top of VAT", "tableResultsVAT", _cells("table2", _TABLE_2_METHODS, _TABLE_2_ROWS)),
    PaperTable(
        "mixmatch-cifar10",
        "MixMatch on CIFAR-10",
        "tableMixmatchCifar10Results",
        _cells("mixmatch-cifar10", _MIXMATCH_METHODS, _MIXMATCH_CIFAR_10),
    ),
    PaperTable(
        "mixmatch-svhn",
        "MixMatch on SVHN",
        "tableMixmatchSVHNResults",
        _cells("mixmatch-svhn", _MIXMATCH_METHODS, _MIXMATCH_SVHN),
    ),
    PaperTable(
        "mixmatch-stl10",
        "MixMatch on STL-10",
        "tableMixmatchSTL10Results",
        _cells("mixmatch-stl10", _MIXMATCH_METHODS, _MIXMATCH_STL_10),
    ),
    PaperTable("fashion-mnist", "Ways to choose negatives", "tableNS3LResults", _fashion_mnist()),
)
"""The paper's tables in its order."""

CELLS: tuple[PaperCell, ...] = tuple(cell for table in TABLES for cell in table.cells)
"""Every published cell, in the paper's order; a number that stands in two tables stands here twice."""


def canonical(method: str) -> str:
    """The method under which the paper lists it: the paper does not tell one pass from two."""
    return "+".join(part.removesuffix("-one-pass") for part in method.split("+"))


def published(
    data: str, labels: int | None, method: str, settings: Mapping[str, object] | None = None
) -> PaperCell | None:
    """The paper's number for these runs, or None where it has none.

    `settings` are recipe fields by path; they decide between rows of one method (the threshold on Fashion-MNIST).
    """
    wanted = (data, labels, canonical(method))
    found = [cell for cell in CELLS if (cell.data, cell.labels, cell.method) == wanted]
    return next((cell for cell in found if _agrees(cell, settings or {})), None)


def _agrees(cell: PaperCell, settings: Mapping[str, object]) -> bool:
    """Whether every field that singles out this row has the row's value."""
    return all(settings.get(path) == value for path, value in cell.settings)
