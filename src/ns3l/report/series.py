"""The figures of a report as series: learning curves, negatives, reliability, confusion, grids."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ns3l.report.group import Bench, Group, chosen, grids, headline, spoken
from ns3l.report.run import Run, number, plain
from ns3l.report.shapes import Curve, Figure, HeatMap, LineChart
from ns3l.statistics import summarize

_MOST_CURVES = 10
_MOST_CLASSES = 100
_NEGATIVES = {
    "marked": ("Classes marked as negative", "share of classes"),
    "rows_without": ("Examples without any negative label", "share of examples"),
    "true_marked": ("True class marked as negative", "share of examples"),
}
Value = Callable[[Mapping[str, Any]], float | None]


def figures(groups: Sequence[Group], rule: str | None) -> tuple[Figure, ...]:
    """All figures that have something to show, in reading order."""
    charts: list[Figure] = []
    for name, members in _batches(groups, rule):
        charts += _learning(name, members)
    charts += heat_maps(groups, rule)
    for name, members in _batches(groups, rule):
        charts += _negatives(name, members)
    for name, members in _batches(groups, rule, with_grids=False):
        charts += _reliability(name, members)
    return (*charts, *(map_ for one in headline(groups, rule) for map_ in _confusion(one)))


def _batches(groups: Sequence[Group], rule: str | None, with_grids: bool = True) -> list[tuple[str, Sequence[Group]]]:
    """Groups that share a chart: the methods of a bench, then each grid's points."""
    apart: dict[str, Sequence[Group]] = {}
    main = headline(groups, rule)
    for bench in dict.fromkeys(one.bench for one in main):
        apart[bench.name] = [one for one in main if one.bench == bench]
    if with_grids:
        for (bench, method), points in grids(groups).items():
            apart[f"{bench.name}, grid of {method}"] = points
    return [(name, members) for name, members in apart.items() if members]


def _learning(name: str, groups: Sequence[Group]) -> list[Figure]:
    """Test and validation error over steps."""
    charts: list[Figure] = []
    for part in ("test", "validation"):
        curves = _curves(groups, _reader(f"{part}_error"))
        title = f"{part.capitalize()} error over steps: {name}"
        charts += _chart("curves", part, title, f"{part} error (%)", curves)
    return charts


def _negatives(name: str, groups: Sequence[Group]) -> list[Figure]:
    """How the negative labels behaved over steps, one chart per quantity and term."""
    members = [one for one in groups if any(_told(line) for run in one.runs for line in run.metrics)]
    if len(members) == 1 and len(groups) > 1 and members[0].grid:
        return []  # its grid's own chart shows it
    terms = sorted({str(term) for one in members for run in one.runs for line in run.metrics for term in _told(line)})
    charts: list[Figure] = []
    for term in terms:
        for key, (title, label) in _NEGATIVES.items():
            curves = _curves(groups, _reader("negatives", term, key))
            whose = "" if term == "ns3l" else f" by {plain(term)}"
            charts += _chart("negatives", f"{term}-{key}", f"{title}{whose}: {name}", label, curves)
    return charts


def _reader(*path: str) -> Value:
    """What finds a number in a line of the metrics."""

    def value(line: Mapping[str, Any]) -> float | None:
        found: Any = line
        for key in path:
            found = _mapping(found).get(key)
        return number(found)

    return value


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _told(line: Mapping[str, Any]) -> Mapping[str, Any]:
    return _mapping(line.get("negatives"))


def _chart(section: str, key: str, title: str, label: str, curves: Sequence[Curve]) -> list[Figure]:
    """Charts of at most 10 curves each."""
    caption = "Mean over seeds; the band is ± one sample standard deviation."
    late = section == "curves"
    said = caption + (" The axis leaves out what lies outside the last two thirds." if late else "")
    span = "late" if late else "zero"
    return [
        LineChart(f"{section}-{key}", section, title + part, said, "step", label, members, range_of=span)
        for part, members in _parts(curves)
    ]


def _parts(curves: Sequence[Curve]) -> list[tuple[str, tuple[Curve, ...]]]:
    """Curves in charts that stay readable."""
    starts = range(0, len(curves), _MOST_CURVES)
    return [
        (f", part {index + 1}" if len(starts) > 1 else "", tuple(curves[start : start + _MOST_CURVES]))
        for index, start in enumerate(starts)
    ]


def _curves(groups: Sequence[Group], value: Value) -> tuple[Curve, ...]:
    """A curve for each group that has one; the points of one grid are named by their settings alone."""
    found = ((one, look, _curve(one, value)) for look, one in enumerate(groups))
    curves = [(one, replace(curve, look=look)) for one, look, curve in found if curve is not None]
    alike = len(curves) > 1 and all(one.grid and one.method == groups[0].method for one, _ in curves)
    return tuple(replace(curve, name=one.settings) if alike else curve for one, curve in curves)


def _curve(one: Group, value: Value) -> Curve | None:
    """Mean and spread at the steps that all complete runs have; of all runs where none is complete."""
    lines = [_history(run, value) for run in one.complete or one.runs]
    known = [line for line in lines if line]
    steps = sorted(set.intersection(*map(set, known))) if known else []
    if not steps:
        return None
    points = [summarize([line[step] for line in known]) for step in steps]
    std = tuple(0.0 if math.isnan(point.std) else point.std for point in points)
    return Curve(one.name, tuple(steps), tuple(point.mean for point in points), std, len(known))


def _history(run: Run, value: Value) -> dict[float, float]:
    return {line["step"]: told for line in run.metrics if (told := value(line)) is not None}


def heat_maps(groups: Sequence[Group], rule: str | None) -> list[Figure]:
    """Mean test error over each pair of grid parameters that vary together; the optimum is the one on validation."""
    return [
        map_
        for (bench, method), points in grids(groups).items()
        for alike in _alike(points)
        for map_ in _maps(bench, method, alike, rule)
    ]


def _alike(points: Iterable[Group]) -> list[list[Group]]:
    """Points by the fields that they have: a weight may be a number at one and a schedule at another."""
    found: dict[tuple[str, ...], list[Group]] = defaultdict(list)
    for one in points:
        found[tuple(path for path, _ in one.grid)].append(one)
    return [members for members in found.values() if len(members) > 1]


def _maps(bench: Bench, method: str, points: list[Group], rule: str | None) -> list[Figure]:
    """One map per setting of the parameters beyond the two axes."""
    paths = [path for path, _ in points[0].grid]
    axes = sorted(paths, key=lambda path: -len({repr(dict(one.grid)[path]) for one in points}))[:2]
    if len(axes) < 2:
        return []
    slices: dict[str, list[Group]] = defaultdict(list)
    for one in points:
        slices[", ".join(f"{path}={spoken(value)}" for path, value in one.grid if path not in axes)].append(one)
    return [
        _map(bench, f"{bench.name}, {method}" + (f", {rest}" if rest else ""), sorted(axes), members, rule)
        for rest, members in slices.items()
    ]


def _map(bench: Bench, name: str, axes: list[str], points: list[Group], rule: str | None) -> HeatMap:
    rows, columns = (_axis(axis, points) for axis in axes)
    where = {one: (rows.index(dict(one.grid)[axes[0]]), columns.index(dict(one.grid)[axes[1]])) for one in points}
    values: list[list[float | None]] = [[None] * len(columns) for _ in rows]
    for one, (row, column) in where.items():
        values[row][column] = number(one.summary(rule).mean)
    best = chosen(points, rule)
    said = "The star marks the lowest mean validation error." if best else "Without validation no optimum is marked."
    return HeatMap(
        "grid",
        "grids",
        f"{bench.part.capitalize()} error (%) over the grid: {name}",
        f"Mean over seeds. {said}",
        axes[1],
        axes[0],
        tuple(map(spoken, columns)),
        tuple(map(spoken, rows)),
        tuple(map(tuple, values)),
        where[best] if best else None,
    )


def _axis(path: str, points: Iterable[Group]) -> list[Any]:
    """A parameter's values in order, numbers before words."""
    values = {repr(value): value for one in points for known, value in one.grid if known == path}
    return sorted(
        values.values(),
        key=lambda value: (
            not isinstance(value, int | float),
            value if isinstance(value, int | float) else 0,
            str(value),
        ),
    )


def _reliability(name: str, groups: Sequence[Group]) -> list[Figure]:
    """Accuracy over confidence, bins pooled over seeds by their counts."""
    found = [(look, _reliable(one)) for look, one in enumerate(groups)]
    curves = [replace(curve, look=look) for look, curve in found if curve is not None]
    caption = (
        f"Bins of the final evaluation on the {groups[0].bench.part} part, pooled over seeds; "
        "on the dotted line confidence is right."
    )
    return [
        LineChart(
            "reliability",
            "reliability",
            f"Reliability: {name}{part}",
            caption,
            "confidence",
            "accuracy",
            members,
            diagonal=True,
        )
        for part, members in _parts(curves)
    ]


def _reliable(one: Group) -> Curve | None:
    tables = [table for run in one.complete if isinstance(table := one.evaluation(run, "reliability"), list) and table]
    pooled: dict[int, list[tuple[float, float, float]]] = defaultdict(list)
    for table in tables:
        for index, entry in enumerate(table):
            triple = [number(_mapping(entry).get(key)) for key in ("count", "confidence", "accuracy")]
            if triple[0] and triple[1] is not None and triple[2] is not None:
                pooled[index].append((triple[0], triple[1], triple[2]))
    points = sorted(_weighted(entries) for entries in pooled.values())
    if not points:
        return None
    x, y = zip(*points, strict=True)
    return Curve(one.name, x, y, (0.0,) * len(x), len(tables))


def _weighted(entries: list[tuple[float, float, float]]) -> tuple[float, float]:
    total = math.fsum(count for count, _, _ in entries)
    return tuple(math.fsum(entry[0] * entry[which] for entry in entries) / total for which in (1, 2))  # type: ignore[return-value]


def _confusion(one: Group) -> list[Figure]:
    """Predicted over true classes, summed over seeds, in per cent of the true class."""
    matrices = [matrix for run in one.complete if _square(matrix := one.evaluation(run, "confusion"))]
    sizes = {len(matrix) for matrix in matrices}
    if len(sizes) != 1 or (size := sizes.pop()) > _MOST_CLASSES:
        return []
    total = [[math.fsum(matrix[row][column] for matrix in matrices) for column in range(size)] for row in range(size)]
    known = one.complete[0].classes
    names = known if len(known) == size else tuple(map(str, range(size)))
    shares = tuple(tuple(100 * value / sum(row) if sum(row) else None for value in row) for row in total)
    caption = (
        f"Per cent of each true class, summed over n = {len(matrices)} seeds; "
        f"final evaluation on the {one.bench.part} part."
    )
    return [
        HeatMap(
            "confusion",
            "confusion",
            f"Confusion: {one.bench.name}, {one.name}",
            caption,
            "predicted class",
            "true class",
            names,
            names,
            shares,
        )
    ]


def _square(matrix: object) -> bool:
    """Whether a value is a square matrix of finite numbers."""
    if not isinstance(matrix, list) or not matrix:
        return False
    rows = [row for row in matrix if isinstance(row, list) and len(row) == len(matrix)]
    return len(rows) == len(matrix) and all(number(value) is not None for row in rows for value in row)
