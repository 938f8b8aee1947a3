"""What a report is made of: tables of cells, line charts and heat maps, without any rendering."""

from dataclasses import dataclass


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


@dataclass(frozen=True)
class Curve:
    """A line with its band: mean and sample standard deviation over n runs (0 where n is 1)."""

    name: str
    x: tuple[float, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    n: int


@dataclass(frozen=True)
class LineChart:
    """Curves over one axis; `diagonal` adds the line where x = y."""

    key: str
    section: str
    title: str
    caption: str
    x_label: str
    y_label: str
    curves: tuple[Curve, ...]
    diagonal: bool = False


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
