"""The published numbers, spot-checked."""

from ns3l.paper import CELLS, TABLES, published


def test_counts_and_known_cells():
    assert [len(table.cells) for table in TABLES] == [24, 8, 4, 4, 2, 10]
    assert len(CELLS) == 52
    cell = published("cifar100", 10_000, "vat+ns3l")
    assert (cell.mean, cell.std) == (43.70, 0.19)
    assert published("svhn", 250, "mixmatch+ns3l-one-pass").mean == 3.38


def test_the_threshold_decides_between_rows():
    path = "ns3l.negatives.threshold"
    assert published("fashion-mnist", 2_000, "ns3l", {path: 0.05}).mean == 16.59
    assert published("fashion-mnist", 2_000, "ns3l", {path: 0.04}) is None
