"""Reports over run folders: tables and figures, as text, Markdown, LaTeX, CSV, JSON or one HTML file."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from ns3l.report.collect import collect
from ns3l.report.group import Group, group
from ns3l.report.html import to_html, write_html
from ns3l.report.run import plain
from ns3l.report.saved import save
from ns3l.report.series import figures
from ns3l.report.serve import serve
from ns3l.report.shapes import Cell, Column, Curve, Figure, HeatMap, LineChart, Report, Table
from ns3l.report.tables import findings, tables
from ns3l.report.text import print_report, to_csv, to_json, to_latex, to_markdown, to_text
from ns3l.statistics import RULES, check_rule

Sources = str | Path | Iterable[str | Path]
"""Folders with runs, and files of saved results."""

__all__ = [
    "Cell",
    "Column",
    "Curve",
    "Figure",
    "HeatMap",
    "LineChart",
    "Report",
    "Table",
    "print_report",
    "report",
    "save_results",
    "serve",
    "to_csv",
    "to_html",
    "to_json",
    "to_latex",
    "to_markdown",
    "to_text",
    "write_html",
]


def report(paths: Sources, *, rule: str | None = None, title: str | None = None) -> Report:
    """Read every run at or below some folders, and in files of saved results, and say what they show.

    `rule` selects the evaluation that counts (`last`, `best_validation`, `median_20`); by default each run's own.
    """
    if rule is not None:
        check_rule(rule)
    found = collect(_several(paths))
    groups = group(found.runs)
    in_force = sorted({name for one in groups for name in one.rules(rule)})
    return Report(
        title=plain(title or "; ".join(found.titles) or _on(groups)),
        rule=", ".join(in_force),
        statements=_statements(groups, in_force, rule),
        findings=findings(groups, rule),
        tables=tables(groups, rule),
        figures=figures(groups, rule),
    )


def save_results(paths: Sources, path: str | Path, title: str | None = None) -> Path:
    """Save what reports need of every run at or below some folders as one small JSON file, which `report` reads too."""
    return save(collect(_several(paths)).runs, path, title)


def _several(paths: Sources) -> list[str | Path]:
    return [paths] if isinstance(paths, str | Path) else list(paths)


def _on(groups: tuple[Group, ...]) -> str:
    return "Report on " + ", ".join(dict.fromkeys(one.bench.data for one in groups))


def _statements(groups: tuple[Group, ...], in_force: list[str], rule: str | None) -> tuple[str, ...]:
    """What holds for the whole report."""
    own = "asked for by the reader" if rule else "named by the runs' own recipes"
    words = "; ".join(f"{name} ({RULES.get(name, 'unknown')})" for name in in_force)
    runs = [run for one in groups for run in one.runs]
    undone = sum(run.status != "complete" for run in runs)
    return (
        f"Selection rule: {words}, {own}.",
        "The best error on test is never used to choose anything.",
        f"{len(runs)} runs, {f'{undone} of them not complete' if undone else 'all complete'}; "
        "only complete runs enter means.",
        *_cautions(groups),
    )


def _cautions(groups: tuple[Group, ...]) -> Iterator[str]:
    """What a reader must know of some of the runs."""
    runs = [run for one in groups for run in one.runs]
    if scaled := sorted({one.bench.schedule for one in groups if one.bench.schedule != 1}):
        where = "every row" if all(one.bench.schedule != 1 for one in groups) else "some rows, as each row says"
        yield f"Schedules are scaled by {', '.join(f'{scale:g}' for scale in scaled)} in {where}."
    if loose := sum(not run.deterministic for run in runs):
        yield f"{loose} of {len(runs)} runs are not bit-reproducible: their recipes ask for speed (see the commands)."
    if again := sum(run.status == "complete" for run in runs) - sum(len(one.complete) for one in groups):
        yield f"{again} of the runs repeat setting, seed and split of another: of each, the last folder counts."
