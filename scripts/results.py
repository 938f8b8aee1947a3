"""Write docs/results.md's studies and README.md's headline from the files in results/ (`make results`)."""

import argparse
import sys
from pathlib import Path

from ns3l.report import Cell, Figure, Report, Table, report
from ns3l.report.cells import NONE, SETTING, columns
from ns3l.report.figures import draw
from ns3l.report.shapes import compact
from ns3l.report.text import markdown_table

ROOT = Path(__file__).resolve().parent.parent
RESULTS, PAGE, README = ROOT / "results", ROOT / "docs" / "results.md", ROOT / "README.md"
PICTURES = Path("pictures") / "results"
BEGIN, END = "<!-- results: written by `make results` -->", "<!-- end of results -->"
NOTHING = "No study has been published here yet."
UNPROVEN = "**No row of the paper's tables has been run with this library at its full schedule yet.**"
OTHERWISE = ("at schedule", "protocol", "settings")
"""What a verdict says of runs that are not those of the paper's row."""
DRAWN = ("curves-test", "grid")
"""The figures of a study that the page shows, by key."""
INK = '<svg style="color:#1a1d21;background:#ffffff" '
Rows = dict[tuple[Cell, ...], Cell]


def studies(folder: Path) -> dict[str, Report]:
    """The report of every file of results, by name."""
    return {path.stem: report(path) for path in sorted(folder.glob("*.json"))}


def column(made: Report, key: str, name: str) -> Rows:
    """A column of a table by the cells that name a row's runs; of differences, those to supervised."""
    table = next((table for table in made.tables if table.key == key), None)
    if table is None:
        return {}
    names = [found.name for found in table.columns]
    rows = [row for row in table.rows if key != "differences" or row[names.index("Against")].text == "supervised"]
    return {row[: len(SETTING)]: row[names.index(name)] for row in rows}


def once(cells: Rows) -> str:
    """What a column says, each text once."""
    return ", ".join(dict.fromkeys(cell.text for cell in cells.values()))


def beside(made: Report) -> Table:
    """One table of a study: our errors, the paper's, what was found and what it took."""
    sources = (
        ("results", "#n"),
        ("results", f"#{made.table('results').title}"),
        ("paper", "#Paper"),
        ("paper", "Verdict"),
        ("differences", "#Difference"),
        ("differences", "Finding"),
        ("results", "Rule"),
        ("results", "Evaluated every"),
        ("results", "Missing seeds"),
        ("throughput", "#Minutes"),
        ("throughput", "Hardware"),
    )
    found = [column(made, key, name.removeprefix("#")) for key, name in sources]
    rows = tuple((*key, *(cells.get(key, NONE) for cells in found)) for key in found[0])
    caption = (
        "Errors are mean ± sample standard deviation over n seeds, in per cent; differences are those to supervised, "
        "paired on the same splits; minutes are those of one run."
    )
    return compact(Table("study", made.title, caption, SETTING + columns(*(name for _, name in sources)), rows))


def pictures(name: str, made: Report) -> dict[Path, Figure]:
    """The figures that the page shows, by file below docs/."""
    shown = [figure for figure in made.figures if figure.key in DRAWN]
    return {PICTURES / f"{name}-{place}.svg": figure for place, figure in enumerate(shown, start=1)}


def section(name: str, made: Report) -> str:
    """What the page says of one study."""
    parts = [
        f"### {made.title}",
        "\n".join(f"- {statement}" for statement in made.statements),
        markdown_table(beside(made)),
        *(f"![{figure.title}]({path.as_posix()})" for path, figure in pictures(name, made).items()),
        markdown_table(made.table("origins")),
        f"All of it, with a command for each number: `ns3l report results/{name}.json`.",
    ]
    return "\n\n".join(parts)


def standing(found: dict[str, Report]) -> list[str]:
    """What must be said first, as long as it is true."""
    said = [cell.text for made in found.values() for cell in column(made, "paper", "Verdict").values()]
    return [UNPROVEN] if all(any(word in text for word in OTHERWISE) for text in said) else []


def verdict(made: Report) -> str:
    """How many rows agree with the paper's, in words."""
    judged = [cell for cell in column(made, "paper", "Verdict").values() if cell.tone]
    good = sum(cell.tone == "good" for cell in judged)
    return f"{good} of {len(judged)} rows within 2 pooled std" if judged else "not in the paper, or not judged"


def headline(found: dict[str, Report]) -> str:
    """What the README says of all studies."""
    head = ["| study | seeds | schedule | hardware | beside the paper |", "|---|---|---|---|---|"]
    rows = [
        f"| [{made.title}](docs/results.md) | {once(column(made, 'results', 'n'))} "
        f"| {once(column(made, 'results', 'Schedule'))} | {once(column(made, 'throughput', 'Hardware'))} "
        f"| {verdict(made)} |"
        for made in found.values()
    ]
    return "\n\n".join([*standing(found), *(["\n".join(head + rows)] if rows else [])])


def between(text: str, content: str, path: Path) -> str:
    """A page with this content between its marks."""
    before, mark, rest = text.partition(BEGIN)
    _, closing, after = rest.partition(END)
    if not mark or not closing:
        raise SystemExit(f"{path.name} needs a line {BEGIN!r} and, below it, a line {END!r}: results go between them.")
    return f"{before}{BEGIN}\n{content}\n{END}{after}"


def pages(found: dict[str, Report]) -> dict[Path, str]:
    """Both pages as they must be."""
    told = [section(name, made) for name, made in found.items()] or [NOTHING]
    contents = {PAGE: "\n\n".join([*standing(found), *told]), README: headline(found)}
    return {path: between(path.read_text(encoding="utf-8"), text, path) for path, text in contents.items()}


def draw_all(found: dict[str, Report]) -> None:
    """Write the pictures of every study, and remove those of studies that are gone."""
    folder = ROOT / "docs" / PICTURES
    wanted = {path: figure for name, made in found.items() for path, figure in pictures(name, made).items()}
    folder.mkdir(parents=True, exist_ok=True)
    for path, figure in wanted.items():
        svg = draw(figure, path.stem).replace("<svg ", INK, 1)
        (ROOT / "docs" / path).write_text(f"{svg}\n", encoding="utf-8")
    for path in folder.glob("*.svg"):
        if PICTURES / path.name not in wanted:
            path.unlink()


def main() -> None:
    """Write pages and pictures, or with --check say whether the pages are right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where a page differs")
    checking = parser.parse_args().check
    found = studies(RESULTS)
    right = pages(found)
    if checking:
        wrong = [path.name for path, text in right.items() if path.read_text(encoding="utf-8") != text]
        sys.exit(f"{', '.join(wrong)} is not what results/ says: run `make results`." if wrong else 0)
    draw_all(found)
    for path, text in right.items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
