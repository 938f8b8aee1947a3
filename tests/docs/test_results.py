"""What README.md and docs/results.md say of studies is what results/ says, and is made by one command."""

import importlib
from pathlib import Path

import pytest
import scripts.results
from scripts.results import (
    PAGE,
    README,
    RESULTS,
    UNPROVEN,
    beside,
    draw_all,
    headline,
    pages,
    pictures,
    section,
    studies,
)

from ns3l.report import save_results

STORED = Path(__file__).parent.parent / "report" / "stored"


@pytest.fixture
def found(tmp_path):
    """The report of one file of results, of runs at their full schedule."""
    save_results(STORED, tmp_path / "results" / "stored.json", "Known numbers")
    return studies(tmp_path / "results")


def test_the_pages_are_those_of_the_results_there_are():
    assert all(path.read_text(encoding="utf-8") == text for path, text in pages(studies(RESULTS)).items()), (
        "make results"
    )


def test_every_picture_of_the_page_is_there():
    wanted = {path.name for name, made in studies(RESULTS).items() for path in pictures(name, made)}
    assert {path.name for path in (PAGE.parent / "pictures" / "results").glob("*.svg")} == wanted


def test_without_results_the_pages_say_so():
    assert "No study has been published here yet." in pages({})[PAGE]
    assert UNPROVEN in pages({})[PAGE] and UNPROVEN in pages({})[README]


def test_a_study_is_a_table_with_the_papers_numbers(found):
    table = beside(found["stored"])
    assert [column.name for column in table.columns] == [
        "Method", "Settings", "n", "Test error", "Paper", "Verdict", "Difference", "Finding", "Missing seeds",
        "Minutes",
    ]  # fmt: skip
    rows = [[cell.text for cell in row] for row in table.rows]
    assert rows[0][:5] == ["supervised", "default", "3", "17.27 ± 0.15", "17.25 ± 0.22"]
    assert rows[0][5].startswith("within 2 pooled std")
    assert rows[4][6:8] == ["-0.70 ± 0.26", "lower error"]
    for said in ("schedule 1", "rule last", "evaluated every 100 steps", "hardware a small processor, 2 threads"):
        assert said in table.caption


def test_the_headline_counts_verdicts_and_owns_what_is_missing(found, tmp_path, monkeypatch):
    row = "| [Known numbers](docs/results.md) | 3, 2 | 1 | a small processor, 2 threads | 2 of 2 rows within"
    assert UNPROVEN in headline(found) and row in headline(found)  # the stored runs are of another protocol
    monkeypatch.setattr(importlib.import_module("ns3l.report.beside"), "departures", lambda run: ())
    proven = headline(studies(tmp_path / "results"))
    assert UNPROVEN not in proven and row in proven


def test_pictures_are_readable_on_any_ground_and_old_ones_go(found, tmp_path, monkeypatch):
    monkeypatch.setattr(scripts.results, "ROOT", tmp_path)
    folder = tmp_path / "docs" / "pictures" / "results"
    folder.mkdir(parents=True)
    (folder / "gone-1.svg").write_text("<svg/>")
    draw_all(found)
    assert {path.name for path in folder.iterdir()} == {f"stored-{place}.svg" for place in (1, 2, 3)}
    assert all("background:#ffffff" in path.read_text() for path in folder.iterdir())
    text = section("stored", found["stored"])
    assert (
        text.count("![") == 3
        and "![Test error over steps: fashion-mnist, 2,000 labels](pictures/results/stored-1.svg)" in text
    )
