"""The paper's numbers beside ours, each with a verdict and with what is not as in the paper."""

from collections.abc import Sequence

from ns3l import paper
from ns3l.report.cells import SETTING, columns, real, setting, spread, whole
from ns3l.report.command import departures
from ns3l.report.group import Group, headline
from ns3l.report.shapes import Cell, Table
from ns3l.statistics import Comparison, compare


def beside_paper(groups: Sequence[Group], rule: str | None) -> Table:
    """The paper's numbers beside ours, with a verdict."""
    main = headline(groups, rule)
    found = [(one, cell) for one in groups if (cell := _published(one)) and one.errors(rule, "test")]
    rows = [_beside(one, cell, rule) for one, cell in found if one in main or _is_row(one, cell)]
    names = columns("#n", "#Ours", "#Paper", "Paper's row", "#Difference", "#Pooled std", "Verdict")
    caption = (
        "Within means: the means differ by at most 2 standard deviations pooled over ours and the paper's. "
        "The paper does not tell one pass from two: both stand beside the same number."
    )
    return Table("paper", "Beside the paper", caption, SETTING + names, tuple(rows))


def _published(one: Group) -> paper.PaperCell | None:
    labels = one.bench.labels
    return paper.published(one.bench.data, int(labels) if labels else None, one.method, one.runs[0].fields)


def _is_row(one: Group, cell: paper.PaperCell) -> bool:
    """Whether the paper's row fixes every field in which the grid's points differ."""
    return {path for path, _ in one.grid} <= {path for path, _ in cell.settings}


def _beside(one: Group, cell: paper.PaperCell, rule: str | None) -> tuple[Cell, ...]:
    ours = one.summary(rule)
    verdict = compare(ours, cell.mean, cell.std, cell.n)
    published = Cell(f"{cell.mean:.2f} ± {cell.std:.2f}", cell.mean)
    row = Cell(f"{cell.wording} ({cell.table})")
    judged = _verdict(verdict, _caveats(one, cell))
    return (
        *setting(one),
        whole(ours.n),
        spread(ours),
        published,
        row,
        real(verdict.difference, sign=True),
        real(verdict.pooled),
        judged,
    )


def _caveats(one: Group, cell: paper.PaperCell) -> str:
    """In which respects the runs are not those of the paper's row."""
    found = {path for run in one.runs for path in departures(run)} - {path for path, _ in cell.settings}
    other = "under another protocol" if "protocol" in found else "with other settings" if found else ""
    scale = "" if one.bench.schedule == 1 else f"at schedule {one.bench.schedule:g}"
    precision = "" if one.bench.precision == "float32" else f"in {one.bench.precision}"
    return "".join(f", {words}" for words in (scale, precision, other) if words)


def _verdict(verdict: Comparison, caveats: str) -> Cell:
    if verdict.within is None:
        return Cell(f"not judged: needs 2 seeds{caveats}")
    if verdict.within:
        return Cell(f"within 2 pooled std{caveats}", None, "good")
    return Cell(f"{'higher' if verdict.difference > 0 else 'lower'} by more than 2 pooled std{caveats}", None, "bad")
