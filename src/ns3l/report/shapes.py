"""What a report is made of: tables of cells, line charts and heat maps, without any rendering."""

from dataclasses import dataclass, replace

_CONDITIONS = ("Data", "Labels", "Settings", "Schedule", "Rule", "Evaluated every", "Missing seeds", "Hardware")


@dataclass(frozen=True)
class Cell:
    """One entry of a table: what is shown, the number to sort by, and whether it speaks well or ill."""

    text: str
    value: float | None = None
    tone: str = ""


@dataclass(frozen=True)
class Column:
    """A column's name; numbers are aligned right, code is set in a fixed width."""

    name: str
    kind: str = "text"


@dataclass(frozen=True)
class Table:
    """A titled table; the caption says how its numbers were made."""

    key: str
    title: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]


def compact(table: Table) -> Table:
    """The table without the columns of its conditions that say the same in every row: the caption says it once."""
    shared = {
        index: column.name
        for index, column in enumerate(table.columns)
        if column.name in _CONDITIONS and len({row[index].text for row in table.rows}) == 1
    }
    if not shared:
        return table
    first = table.rows[0]
    said = ", ".join(f"{name[0].lower()}{name[1:]} {first[index].text}" for index, name in shared.items())
    kept = [index for index in range(len(table.columns)) if index not in shared]
    return replace(
        table,
        caption=f"{table.caption} In every row: {said}.",
        columns=tuple(table.columns[index] for index in kept),
        rows=tuple(tuple(row[index] for index in kept) for row in table.rows),
    )


@dataclass(frozen=True)
class Curve:
    """A line with its band: mean and sample standard deviation over n runs (0 where n is 1).

    `look` numbers its color, marker and dashes: the same for one method in every chart of a report.
    """

    name: str
    x: tuple[float, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    n: int
    look: int = 0


@dataclass(frozen=True)
class LineChart:
    """Curves over one axis; `diagonal` adds the line where x = y, `range_of` says what the y axis spans.

    That is everything (`all`), everything from zero on (`zero`), or the curves without the first third (`late`).
    """

    key: str
    section: str
    title: str
    caption: str
    x_label: str
    y_label: str
    curves: tuple[Curve, ...]
    diagonal: bool = False
    range_of: str = "all"


@dataclass(frozen=True)
class HeatMap:
    """Values over two named axes, None where unknown; `marked` is the row and column of the optimum."""

    key: str
    section: str
    title: str
    caption: str
    x_label: str
    y_label: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]
    marked: tuple[int, int] | None = None


Figure = LineChart | HeatMap


@dataclass(frozen=True)
class Report:
    """Everything a report says: statements that hold for all of it, findings, tables and figures."""

    title: str
    rule: str
    statements: tuple[str, ...]
    findings: tuple[Cell, ...]
    tables: tuple[Table, ...]
    figures: tuple[Figure, ...]

    def table(self, key: str) -> Table:
        """The table of a key."""
        found = next((table for table in self.tables if table.key == key), None)
        if found is None:
            known = ", ".join(table.key for table in self.tables)
            raise KeyError(f"expected the key of a table of this report ({known}), got {key!r}")
        return found
