"""Numbers as cells of a table: rounded for the eye, with the number itself to sort by."""

import math

from ns3l.report.group import Group
from ns3l.report.run import number
from ns3l.report.shapes import Cell, Column
from ns3l.statistics import Summary

NONE = Cell("–")
SETTING = (
    Column("Data"),
    Column("Labels", "number"),
    Column("Method"),
    Column("Settings"),
    Column("Schedule", "number"),
)
"""The columns that name a group, in the order of `setting`."""


def columns(*names: str) -> tuple[Column, ...]:
    """Columns by name; a leading # makes one of numbers, a leading $ one of code."""
    kinds = {"#": "number", "$": "code"}
    return tuple(Column(name.lstrip("#$"), kinds.get(name[0], "text")) for name in names)


def real(value: object, digits: int = 2, sign: bool = False) -> Cell:
    """A number as a cell, or a dash."""
    known = number(value)
    return NONE if known is None else Cell(f"{known:{'+' if sign else ''},.{digits}f}", known)


def whole(value: int | None) -> Cell:
    """A count as a cell, or a dash."""
    return NONE if value is None else Cell(f"{value:,}", value)


def spread(summary: Summary, sign: bool = False) -> Cell:
    """Mean ± standard deviation as a cell; the mean alone where there is one value."""
    if not summary.n:
        return NONE
    mean = f"{summary.mean:{'+' if sign else ''}.2f}"
    return Cell(mean if summary.n < 2 else f"{mean} ± {summary.std:.2f}", summary.mean)


def interval(summary: Summary, sign: bool = False) -> Cell:
    """The interval of a mean error (with `sign`: of a mean difference), cut to what it can be, as a cell."""
    if summary.n < 2:
        return NONE
    mark, least = ("+", -100.0) if sign else ("", 0.0)
    low, high = max(summary.low, least), min(summary.high, 100.0)
    return Cell(f"{low:{mark}.2f} to {high:{mark}.2f}", low)


def p_value(value: float) -> Cell:
    """A p value as a cell."""
    if math.isnan(value):
        return NONE
    return Cell("< 0.001" if value < 0.001 else f"{value:.3f}", value)


def setting(one: Group) -> tuple[Cell, ...]:
    """The five cells that name a group."""
    labels = one.bench.labels
    shown = Cell("all") if labels is None else Cell(f"{labels:,}", labels)
    return (
        Cell(one.bench.place),
        shown,
        Cell(one.method),
        Cell(one.settings or "default"),
        Cell(f"{one.bench.schedule:g}", one.bench.schedule),
    )
