"""Which runs belong together: the seeds of one setting, and the baselines they are compared with."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ns3l.report.run import Run, plain
from ns3l.statistics import Summary, summarize

Grid = tuple[tuple[str, Any], ...]
_NOT_A_GRID = ("method", "data", "classes", "protocol", "schedule", "split.labels", "seed", "execution", "evaluation")


@dataclass(frozen=True)
class Bench:
    """What must agree before two methods may be compared."""

    data: str
    labels: int | float | None
    protocol: str
    schedule: float
    part: str = "test"
    precision: str = "float32"

    @property
    def name(self) -> str:
        """In words, with the schedule where it is not the full one."""
        labels = "all labels" if self.labels is None else f"{self.labels:,} labels"
        scale = "" if self.schedule == 1 else f", schedule {self.schedule:g}"
        return f"{self.place}, {labels}{scale}"

    @property
    def place(self) -> str:
        """The data set, the protocol where that is another word, and a precision that is not the usual one."""
        protocol = "" if self.protocol == self.data else self.protocol
        precision = "" if self.precision == "float32" else f"in {self.precision}"
        said = ", ".join(word for word in (protocol, precision) if word)
        return f"{self.data} ({said})" if said else self.data


@dataclass(frozen=True, eq=False)
class Group:
    """The runs of one setting, one per seed, complete or not."""

    bench: Bench
    method: str
    grid: Grid
    runs: tuple[Run, ...]

    @property
    def name(self) -> str:
        """The method and its grid point."""
        return f"{self.method} ({self.settings})" if self.grid else self.method

    @property
    def settings(self) -> str:
        """The grid point as `field=value, …`; a field is named by its last word where that is clear."""
        last = [path.removesuffix(".kind").rpartition(".")[2] for path, _ in self.grid]
        return ", ".join(
            f"{word if last.count(word) == 1 else path}={spoken(value)}"
            for word, (path, value) in zip(last, self.grid, strict=True)
        )

    @property
    def complete(self) -> tuple[Run, ...]:
        """The runs that reached their end, of repeated ones the last: only these enter means."""
        ended = {(run.seed, run.split_hash): run for run in self.runs if run.status == "complete"}
        return tuple(ended.values())

    def rules(self, rule: str | None) -> tuple[str, ...]:
        """The selection rules in force: the one asked for, or the runs' own."""
        return (rule,) if rule else tuple(sorted({run.rule for run in self.runs}))

    def errors(self, rule: str | None, part: str | None = None) -> dict[tuple[int | None, str], float]:
        """The selected error of each complete run, by seed and split."""
        values = {(run.seed, run.split_hash): self.error(run, rule, part) for run in self.complete}
        return {key: value for key, value in values.items() if value is not None}

    def error(self, run: Run, rule: str | None, part: str | None = None) -> float | None:
        """The error of a run that counts here: on the test part, or on validation where the data have no test part."""
        return run.error(rule or run.rule, part or self.bench.part)

    def evaluation(self, run: Run, key: str) -> Any:
        """An entry of a run's final evaluation on the part that counts here."""
        return run.evaluation(key, self.bench.part)

    def summary(self, rule: str | None, part: str | None = None) -> Summary:
        """Mean, spread and interval of the selected errors."""
        return summarize(list(self.errors(rule, part).values()))


def spoken(value: Any) -> str:
    """A recipe's value as `--set` reads it."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, float):
        return f"{value:g}"
    return plain(",".join(map(spoken, value)) if isinstance(value, tuple) else value)


def group(runs: Iterable[Run]) -> tuple[Group, ...]:
    """Runs by what must agree, method and grid point, in reading order."""
    runs = tuple(runs)
    tested = {run.data for run in runs if run.tested}
    families: dict[tuple[Bench, str], list[Run]] = defaultdict(list)
    for run in runs:
        part = "test" if run.data in tested else "validation"
        bench = Bench(run.data, run.labels, run.protocol, run.schedule, part, run.precision)
        families[bench, run.method].append(run)
    groups = [one for (bench, method), members in families.items() for one in _points(bench, method, members)]
    return tuple(sorted(groups, key=_order))


def _points(bench: Bench, method: str, runs: list[Run]) -> list[Group]:
    """One group per grid point: the recipe fields that differ among the runs of one method."""
    varying = _varying([run.fields for run in runs])
    points: dict[Grid, list[Run]] = defaultdict(list)
    for run in runs:
        points[tuple((path, run.fields[path]) for path in varying if path in run.fields)].append(run)
    return [Group(bench, method, grid, tuple(sorted(members, key=_seed))) for grid, members in points.items()]


def _varying(recipes: list[Mapping[str, Any]]) -> tuple[str, ...]:
    """The paths whose values differ; runs without a recipe have no say."""
    known = [recipe for recipe in recipes if recipe]
    paths = {path for recipe in known for path in recipe if not path.startswith(_NOT_A_GRID)}
    return tuple(sorted(path for path in paths if len({repr(recipe.get(path)) for recipe in known}) > 1))


def _seed(run: Run) -> tuple[bool, int, str]:
    return run.seed is None, run.seed or 0, str(run.path)


def _order(one: Group) -> tuple[Any, ...]:
    """By data, labels, protocol and schedule; supervised first, then from short sums to long ones."""
    bench = one.bench
    parts = one.method.split("+")
    grid = tuple(
        (path, not isinstance(value, int | float), value if isinstance(value, int | float) else 0, str(value))
        for path, value in one.grid
    )
    return (
        bench.data,
        bench.labels or 0,
        bench.protocol,
        -bench.schedule,
        bench.precision != "float32",
        bench.precision,
        one.method != "supervised",
        len(parts),
        one.method,
        grid,
    )


def grids(groups: Iterable[Group]) -> dict[tuple[Bench, str], list[Group]]:
    """The groups that are points of a grid, by bench and method."""
    found: dict[tuple[Bench, str], list[Group]] = defaultdict(list)
    for one in groups:
        if one.grid:
            found[one.bench, one.method].append(one)
    return found


def chosen(points: Iterable[Group], rule: str | None) -> Group | None:
    """The grid point with the lowest mean validation error, never one chosen on test; None without such errors."""
    judged = [one for one in points if one.summary(rule, "validation").n]
    return min(judged, key=lambda one: one.summary(rule, "validation").mean, default=None)


def headline(groups: Sequence[Group], rule: str | None) -> list[Group]:
    """The groups that stand for their method: those without a grid, and of each grid the chosen point, else all."""
    best = {key: chosen(points, rule) for key, points in grids(groups).items()}
    return [one for one in groups if not one.grid or best[one.bench, one.method] in (one, None)]


def baselines(one: Group, groups: Iterable[Group]) -> tuple[Group, ...]:
    """What a group is compared with on the same bench: supervised, and the same method without NS3L."""
    without = "+".join(part for part in one.method.split("+") if not part.startswith("ns3l"))
    names = dict.fromkeys(name for name in ("supervised", without) if name and name != one.method)
    found = (
        _nearest(one, [other for other in groups if other.bench == one.bench and other.method == name])
        for name in names
    )
    return tuple(baseline for baseline in found if baseline is not None)


def _nearest(one: Group, candidates: list[Group]) -> Group | None:
    """The candidate that contradicts none of the group's own settings and shares the most of them."""
    mine = dict(one.grid)
    agreeing = [other for other in candidates if all(mine.get(path, value) == value for path, value in other.grid)]
    return max(agreeing, key=lambda other: sum(path in mine for path, _ in other.grid), default=None)
