"""A report as text: for a terminal, Markdown, LaTeX, CSV and JSON. Every name is escaped for where it goes."""

import csv
import io
import json
import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ns3l.report.shapes import Cell, Report, Table, compact

if TYPE_CHECKING:
    from rich.console import Console

_STYLES = {"good": "green", "bad": "red", "": ""}
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_NUMBER = re.compile(r"[+-]?[\d.]+(e[+-]?\d+)?")
_MARKDOWN = {
    "\\": "\\\\",
    "|": "\\|",
    "*": "\\*",
    "_": "\\_",
    "`": "\\`",
    "[": "\\[",
    "]": "\\]",
    "<": "&lt;",
    ">": "&gt;",
    "&": "&amp;",
    "#": "\\#",
}
_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "–": "--",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "Π": r"$\Pi$",
    "…": r"\ldots{}",
}
_TYPESET = ("results", "differences", "paper", "chosen", "rules", "quality", "throughput")
_PRINTED = ("results", "differences", "paper", "chosen", "runs")


def print_report(report: Report, console: "Console | None" = None, everything: bool = False) -> None:
    """Print a report to a terminal; the tables of detail only on request."""
    from rich.console import Console
    from rich.text import Text

    console = console or Console()
    console.print(Text(report.title, style="bold"))
    for statement in report.statements:
        console.print(Text(statement))
    for table in report.tables:
        if everything or (table.key in _PRINTED and not _dull(table)):
            console.print(_rich(table))
    for finding in report.findings:
        console.print(Text(finding.text, style=_STYLES[finding.tone]))


def _dull(table: Table) -> bool:
    """Whether a table of runs only says that all are complete."""
    if table.key != "runs":
        return False
    names = [column.name for column in table.columns]
    return all(
        row[names.index("Status")].text == "complete" and row[names.index("Reason")].text == "–" for row in table.rows
    )


def _rich(table: Table) -> Any:
    from rich.table import Table as RichTable
    from rich.text import Text

    small = compact(table)
    shown = RichTable(
        title=Text(small.title), caption=Text(small.caption), title_justify="left", caption_justify="left"
    )
    for column in small.columns:
        shown.add_column(
            Text(column.name),
            justify="right" if column.kind == "number" else "left",
            overflow="fold",
            no_wrap=column.name in ("Method", "Difference"),
        )
    for row in small.rows:
        shown.add_row(*(Text(cell.text, style=_STYLES[cell.tone]) for cell in row))
    return shown


def to_text(report: Report, width: int = 160) -> str:
    """The whole report as plain text."""
    from rich.console import Console

    console = Console(file=io.StringIO(), width=width, color_system=None, force_terminal=False, legacy_windows=False)
    print_report(report, console, everything=True)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines()) + "\n"  # type: ignore[attr-defined]


def _escape(text: str, special: dict[str, str]) -> str:
    return "".join(special.get(character, character) for character in text)


def to_markdown(report: Report) -> str:
    """The report as Markdown with pipe tables."""
    said = [f"# {_escape(report.title, _MARKDOWN)}", *(f"- {_escape(one, _MARKDOWN)}" for one in report.statements)]
    found = [f"- {_escape(one.text, _MARKDOWN)}" for one in report.findings]
    parts = ["\n".join([said[0], "", *said[1:]]), *(["## Findings\n\n" + "\n".join(found)] if found else [])]
    titled = (f"## {table.title}\n\n{markdown_table(table)}" for table in report.tables)
    return "\n\n".join([*parts, *titled]) + "\n"


def markdown_table(table: Table) -> str:
    """A caption and a pipe table."""
    table = compact(table)
    head = "| " + " | ".join(_escape(column.name, _MARKDOWN) for column in table.columns) + " |"
    rule = "|" + "|".join("---:" if column.kind == "number" else "---" for column in table.columns) + "|"
    rows = [
        "| " + " | ".join(map(_markdown_cell, row, (column.kind for column in table.columns))) + " |"
        for row in table.rows
    ]
    return "\n".join([_escape(table.caption, _MARKDOWN), "", head, rule, *rows])


def _markdown_cell(cell: Cell, kind: str) -> str:
    if kind != "code" or "`" in cell.text:
        return _escape(cell.text, _MARKDOWN)
    return "`" + cell.text.replace("|", "\\|") + "`"


def to_latex(report: Report) -> str:
    """The report's tables for LaTeX with booktabs."""
    return "% \\usepackage{booktabs}\n" + "\n".join(
        _latex_table(table) for table in report.tables if table.key in _TYPESET
    )


def _latex_table(table: Table) -> str:
    table = compact(table)
    align = "".join("r" if column.kind == "number" else "l" for column in table.columns)
    head = " & ".join(_escape(column.name, _LATEX) for column in table.columns) + r" \\"
    rows = [" & ".join(_escape(cell.text, _LATEX) for cell in row) + r" \\" for row in table.rows]
    caption = f"\\caption{{{_escape(f'{table.title}. {table.caption}', _LATEX)}}}\\label{{tab:{table.key}}}"
    lines = [
        r"\begin{table}[htbp]",
        r"\centering",
        caption,
        rf"\begin{{tabular}}{{{align}}}",
        r"\toprule",
        head,
        r"\midrule",
    ]
    return "\n".join([*lines, *rows, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])


def to_csv(report: Report, table: str = "results") -> str:
    """One table of the report as CSV; text that a spreadsheet could take for a formula is prefixed with '."""
    chosen = report.table(table)
    doubled = {index for index in range(len(chosen.columns)) if _worded(chosen, index)}
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names = (
        [column.name, f"{column.name} (number)"] if index in doubled else [column.name]
        for index, column in enumerate(chosen.columns)
    )
    writer.writerow([_harmless(name) for pair in names for name in pair])
    for row in chosen.rows:
        pairs = ([cell.text, _exact(cell)] if index in doubled else [cell.text] for index, cell in enumerate(row))
        writer.writerow([_harmless(text) for pair in pairs for text in pair])
    return out.getvalue()


def _worded(table: Table, index: int) -> bool:
    """Whether a column of numbers shows more than a number, so that a program needs the number apart."""
    cells = [row[index] for row in table.rows]
    return table.columns[index].kind == "number" and any(
        cell.value is not None and not _NUMBER.fullmatch(cell.text) for cell in cells
    )


def _exact(cell: Cell) -> str:
    return "" if cell.value is None else f"{cell.value:.10g}"


def _harmless(text: str) -> str:
    """Text that no spreadsheet runs; numbers stay as they are."""
    risky = text.lstrip(" ").startswith(_FORMULA) and not _NUMBER.fullmatch(text)
    return "'" + text if risky else text


def to_json(report: Report) -> str:
    """The whole report, tables and series, as JSON."""
    return json.dumps(asdict(report), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
