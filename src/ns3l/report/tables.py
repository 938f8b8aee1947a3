"""The tables of a report, from groups of runs."""

import math
from collections.abc import Callable, Iterable, Sequence

from ns3l.report.beside import beside_paper
from ns3l.report.cells import NONE, SETTING, columns, interval, p_value, real, setting, spread, whole
from ns3l.report.command import command
from ns3l.report.group import Group, baselines, chosen, grids, headline
from ns3l.report.run import Run, number, plain
from ns3l.report.shapes import Cell, Table
from ns3l.statistics import RULES, Paired, finding, missing_seeds, paired, summarize

_CONDITIONS = (
    "Mean ± sample standard deviation over n seeds, in per cent; intervals are 95 % t intervals, cut at 0 and 100."
)


def results(groups: Sequence[Group], rule: str | None) -> Table:
    """The main table: the selected test error of every group."""
    rows = [_result(one, groups, rule) for one in groups]
    names = columns("#n", f"#{error_name(groups)}", "#95 % interval", "Rule", "Evaluated every", "Missing seeds")
    return Table("results", error_name(groups), _CONDITIONS + _part(groups) + _MISSING, SETTING + names, tuple(rows))


def _where(groups: Sequence[Group]) -> str:
    parts = {one.bench.part for one in groups}
    return f" on the {parts.pop()} part" if len(parts) == 1 else ", on the test part where there is one"


def error_name(groups: Sequence[Group]) -> str:
    """What the errors of these groups are called."""
    parts = {one.bench.part for one in groups}
    return {"test": "Test error", "validation": "Validation error"}[parts.pop()] if len(parts) == 1 else "Error"


def _part(groups: Sequence[Group]) -> str:
    """Says so where errors are those of validation."""
    without = sorted({one.bench.data for one in groups if one.bench.part == "validation"})
    if not without:
        return ""
    many = ", ".join(without)
    return (
        f" No test part was evaluated on {many}: errors there are those on validation, which are too low where an "
        "evaluation was chosen by them."
    )


_MISSING = " A seed is missing where another method of the same data, labels and schedule has it."


def _result(one: Group, groups: Sequence[Group], rule: str | None) -> tuple[Cell, ...]:
    summary = one.summary(rule)
    present = [seed for seed, _ in one.errors(rule) if seed is not None]
    absent = missing_seeds(present, _started(other for other in groups if other.bench == one.bench))
    every = sorted({run.interval for run in one.runs if run.interval is not None})
    return (
        *setting(one),
        whole(summary.n),
        spread(summary),
        interval(summary),
        Cell(", ".join(one.rules(rule))),
        Cell(", ".join(f"{steps:,}" for steps in every) + " steps" if every else "–"),
        Cell(", ".join(map(str, absent)), float(len(absent)), "bad") if absent else Cell("none", 0.0),
    )


def _started(groups: Iterable[Group]) -> list[int]:
    """Every seed that was started."""
    return [run.seed for one in groups for run in one.runs if run.seed is not None]


def all_rules(groups: Sequence[Group]) -> Table:
    """The same errors under each of the selection rules."""
    rows = [(*setting(one), *(spread(one.summary(rule)) for rule in RULES)) for one in groups]
    said = "; ".join(f"{name.replace('_', ' ')}: {words}" for name, words in RULES.items())
    names = columns("#Last", "#Best on validation", "#Median of last 20")
    return Table(
        "rules",
        "All three selection rules",
        f"{_CONDITIONS}{_part(groups)} {said[0].upper()}{said[1:]}.",
        SETTING + names,
        tuple(rows),
    )


def differences(groups: Sequence[Group], rule: str | None) -> Table:
    """Paired differences to supervised and to the same method without NS3L."""
    rows = [_difference(one, base, rule) for one in groups for base in baselines(one, groups)]
    names = columns(
        "Against",
        "#Pairs",
        "#Difference",
        "#95 % interval",
        "#p (t test)",
        "#p (Wilcoxon)",
        "Finding",
        "Unpaired seeds",
    )
    caption = (
        f"{error_name(groups)} of the method minus that of the other on the same split (seed and split hash agree), "
        "in per cent points; negative is better. Two-sided paired t test and Wilcoxon signed-rank test, not corrected "
        "for the number of rows."
    )
    return Table("differences", "Paired differences", caption, SETTING + names, tuple(rows))


def _difference(one: Group, base: Group, rule: str | None) -> tuple[Cell, ...]:
    pairs = paired(one.errors(rule), base.errors(rule))
    gain = pairs.difference
    alone = sorted({str(key[0]) for key in pairs.unpaired if isinstance(key, tuple)})
    return (
        *setting(one),
        Cell(base.name),
        whole(gain.n),
        spread(gain, sign=True),
        interval(gain, sign=True),
        p_value(pairs.p_t),
        p_value(pairs.p_wilcoxon),
        _finding(pairs, base),
        Cell(", ".join(alone) or "none", float(len(alone))),
    )


def _finding(pairs: Paired, base: Group) -> Cell:
    words = finding(pairs, base.method == "supervised")
    tone = {"lower error": "good", "unlabeled data did not help": "bad", "no gain": "bad"}
    return Cell(words, None, tone.get(words, ""))


def findings(groups: Sequence[Group], rule: str | None) -> tuple[Cell, ...]:
    """One sentence for each method that has a baseline on the same splits; on what, where that is not all the same."""
    several = len({one.bench for one in groups}) > 1
    return tuple(
        _sentence(one, base, rule, f"{one.bench.name}: " * several)
        for one in headline(groups, rule)
        for base in baselines(one, groups)[:1]
    )


def _sentence(one: Group, base: Group, rule: str | None, where: str) -> Cell:
    pairs = paired(one.errors(rule), base.errors(rule))
    words, gain = _finding(pairs, base), pairs.difference
    amount = f" ({spread(gain, sign=True).text} points on {gain.n} split{'s' * (gain.n > 1)})" if gain.n else ""
    return Cell(f"{where}{one.name} against {base.name}: {words.text}{amount}.", None, words.tone)


def picked(groups: Sequence[Group], rule: str | None) -> Table:
    """Of each grid, the point with the lowest mean validation error, and its test error."""
    best = [(one, len(points)) for points in grids(groups).values() if (one := chosen(points, rule)) is not None]
    rows = [
        (
            *setting(one),
            whole(count),
            spread(one.summary(rule, "validation")),
            whole(len(one.errors(rule, "test"))),
            spread(one.summary(rule, "test")),
        )
        for one, count in best
    ]
    caption = "Chosen by the lowest mean validation error alone; the test error is only reported."
    names = columns("#Points", "#Validation error", "#n", "#Test error")
    return Table("chosen", "Chosen grid points", caption, SETTING + names, tuple(rows))


_QUALITY = {
    "Macro F1": ("macro_f1", 3),
    "Top-5 error": ("top_5_error", 2),
    "NLL": ("nll", 3),
    "Brier": ("brier", 3),
    "ECE": ("ece", 3),
}


def quality(groups: Sequence[Group]) -> Table:
    """Calibration and per-class figures of the final evaluation."""
    rows = [
        (
            *setting(one),
            whole(len(one.complete)),
            *(_mean(one, key, digits) for key, digits in _QUALITY.values()),
            _worst(one),
        )
        for one in groups
        if any(one.evaluation(run, "confusion") or one.evaluation(run, "nll") is not None for run in one.complete)
    ]
    caption = f"Means over seeds of the final evaluation{_where(groups)}; NLL in nats."
    return Table(
        "quality",
        "Calibration and classes",
        caption,
        SETTING + columns("#n", *(f"#{name}" for name in _QUALITY), "Hardest class"),
        tuple(rows),
    )


def _mean(one: Group, key: str, digits: int) -> Cell:
    values = [value for run in one.complete if (value := number(one.evaluation(run, key))) is not None]
    return real(summarize(values).mean, digits)


def _worst(one: Group) -> Cell:
    """The class with the highest mean error."""
    rows = [one.evaluation(run, "per_class_error") for run in one.complete]
    known = [row for row in rows if isinstance(row, list) and row and all(number(value) is not None for value in row)]
    if not known or len({len(row) for row in known}) > 1:
        return NONE
    means = [math.fsum(column) / len(known) for column in zip(*known, strict=True)]
    index = max(range(len(means)), key=means.__getitem__)
    names = one.complete[0].classes
    return Cell(f"{names[index] if index < len(names) else index}: {means[index]:.2f} %", means[index])


def throughput(groups: Sequence[Group]) -> Table:
    """How fast the runs were, and on what."""
    rows = [(*setting(one), whole(len(one.runs)), *_speed(one)) for one in groups]
    caption = "Means over runs. Runs that were trained side by side share the device; memory is the peak."
    return Table(
        "throughput",
        "Throughput",
        caption,
        SETTING + columns("#Runs", "#Steps/s", "#ms/step", "#Minutes", "#Memory (MB)", "Hardware"),
        tuple(rows),
    )


def _speed(one: Group) -> tuple[Cell, ...]:
    rate = summarize([value for run in one.runs if (value := run.told("steps_per_second"))]).mean
    seconds = summarize([value for run in one.runs if (value := run.told("seconds")) is not None]).mean
    memory = [value for run in one.runs if (value := run.told("memory_mb")) is not None]
    hardware = ", ".join(sorted({run.hardware for run in one.runs if run.hardware}))
    return (
        real(rate, 1),
        real(1000 / rate if rate else None),
        real(seconds / 60),
        real(max(memory, default=None), 0),
        Cell(hardware or "not recorded"),
    )


def runs(groups: Sequence[Group]) -> Table:
    """Every run with its state; failed and running ones with what is known."""
    rows = [_run(run, one) for one in groups for run in one.runs]
    caption = "Only complete runs enter means. Errors of runs under way are those so far, by the run's own rule."
    return Table(
        "runs",
        "Runs",
        caption,
        SETTING + columns("#Seed", "Status", "#Step", f"#{error_name(groups)}", "Reason", "$Folder"),
        tuple(rows),
    )


def _run(run: Run, one: Group) -> tuple[Cell, ...]:
    tone = {"failed": "bad", "complete": "good"}.get(run.status, "")
    of = "" if run.steps is None else f" of {run.steps:,}"
    step = NONE if run.step is None else Cell(f"{run.step:,}{of}", run.step)
    folder = plain("/".join(run.path.parts[-3:]))
    return (
        *setting(one),
        whole(run.seed),
        Cell(run.status, None, tone),
        step,
        real(one.error(run, None)),
        Cell(run.reason or "–"),
        Cell(folder),
    )


def origins(groups: Sequence[Group]) -> Table:
    """Under which versions and on which hardware the numbers were made."""
    counts: dict[tuple[str, ...], int] = {}
    for run in (run for one in groups for run in one.runs):
        key = _origin(run)
        counts[key] = counts.get(key, 0) + 1
    rows = tuple((whole(count), *map(Cell, key)) for key, count in sorted(counts.items()))
    return Table(
        "origins",
        "Hardware and versions",
        "As recorded in each run's folder when it was made.",
        columns("#Runs", "Hardware", "Versions", "Code"),
        rows,
    )


def _origin(run: Run) -> tuple[str, ...]:
    environment = run.environment
    packages = environment.get("packages")
    versions = {"ns3l": environment.get("ns3l"), "python": environment.get("python"), "CUDA": environment.get("cuda")}
    versions |= packages if isinstance(packages, dict) else {}
    listed = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    git = environment.get("git")
    code = f"{git.get('commit')}{', changed since' if git.get('dirty') else ''}" if isinstance(git, dict) else ""
    return tuple(plain(part or "not recorded", 400) for part in (run.hardware, listed, code))


def commands(groups: Sequence[Group], rule: str | None) -> Table:
    """For each number of a complete run, the command that makes it again."""
    rows = [
        (
            Cell(one.bench.name),
            Cell(one.name),
            whole(run.seed),
            real(one.error(run, rule)),
            Cell(command(run, one)),
        )
        for one in groups
        for run in one.complete
    ]
    caption = "Each command makes one run again; own data must be named by their path."
    return Table(
        "commands",
        "Commands to repeat each number",
        caption,
        columns("Data", "Method", "#Seed", f"#{error_name(groups)}", "$Command"),
        tuple(rows),
    )


def tables(groups: Sequence[Group], rule: str | None) -> tuple[Table, ...]:
    """All tables that have something to say, in reading order."""
    makers: tuple[Callable[[], Table], ...] = (
        lambda: results(groups, rule),
        lambda: differences(groups, rule),
        lambda: beside_paper(groups, rule),
        lambda: picked(groups, rule),
        lambda: all_rules(groups),
        lambda: quality(groups),
        lambda: throughput(groups),
        lambda: runs(groups),
        lambda: origins(groups),
        lambda: commands(groups, rule),
    )
    return tuple(table for maker in makers if (table := maker()).rows)
