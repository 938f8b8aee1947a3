"""Results saved as small JSON: the same report as from the run folders, small, and refused where they are damaged."""

import json
import shutil
from pathlib import Path

import pytest
from tests.cli.terminal import ns3l
from tests.report.stored import CLASSES, metrics, recipe, result, write

from ns3l.errors import RunError
from ns3l.report import report, save_results, to_json
from ns3l.report.saved import LARGEST, POINTS

STORED = Path(__file__).parent / "stored"


@pytest.fixture
def saved(tmp_path) -> Path:
    return save_results(STORED, tmp_path / "kept" / "results.json", "What was found")


def test_a_report_from_saved_results_is_that_from_the_folders(saved):
    made, again = report(STORED), report(saved)
    assert again.tables == made.tables
    assert (again.findings, again.statements, again.figures) == (made.findings, made.statements, made.figures)
    assert (made.title, again.title) == ("Report on fashion-mnist", "What was found")
    assert report(saved, rule="best_validation").tables == report(STORED, rule="best_validation").tables


def test_unfinished_failed_and_damaged_runs_are_told_alike(tmp_path):
    runs = tmp_path / "runs"
    shutil.copytree(STORED / "methods", runs)
    folder = runs / "ns3l" / "default"
    (folder / "seed-0" / "result.json").unlink()
    (folder / "seed-1" / "result.json").write_text("{")
    write(
        folder / "seed-2", recipe("ns3l"), result("ns3l", 16.9, 2, "failed", "not finite"), metrics("ns3l", 16.9, 2), 2
    )
    with (folder / "seed-2" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 5')
    (folder / "seed-2" / "environment.json").unlink()
    made, again = report(runs), report(save_results(runs, tmp_path / "results.json"))
    assert again.tables == made.tables
    told = {row[6].text: row[9].text for row in again.table("runs").rows}
    assert set(told) == {"complete", "running", "damaged", "failed"}
    assert "not finite" in told["failed"] and "cut off" in told["failed"]


def test_long_curves_keep_fifty_points_the_same_for_every_seed(tmp_path):
    lines = [{"step": step, "test_error": 20 + 1 / step, "loss": {"total": 1.0}} for step in range(10, 2001, 10)]
    for seed in range(2):
        write(tmp_path / "runs" / f"seed-{seed}", recipe("ns3l"), result("ns3l", 20.0, seed), lines, seed)
    path = save_results(tmp_path / "runs", tmp_path / "results.json")
    (curve,) = report(path).figures[0].curves
    (whole,) = report(tmp_path / "runs").figures[0].curves
    assert (len(whole.x), len(curve.x)) == (200, POINTS)
    assert (curve.x[0], curve.x[-1], curve.mean[-1]) == (10, 2000, pytest.approx(20.0005))
    assert {late - early for early, late in zip(curve.x, curve.x[1:], strict=False)} == {40, 50}
    assert "loss" not in path.read_text()


def test_what_is_large_or_of_one_machine_is_left_out(tmp_path):
    folder = tmp_path / "seed-0"
    held = result("ns3l", 20.0, 0)
    many = [[1] * 30 for _ in range(30)]
    held["evaluation"]["test"] |= {"confusion": many, "per_class_error": [20.0] * 30}
    write(folder, recipe("ns3l"), held, metrics("ns3l", 20.0, 0), 0)
    command = ["/home/me/ns3l/__main__.py", "reproduce", "x", "--root", "/home/me/data", "--out=/home/me/runs", "a/b"]
    environment = json.loads((folder / "environment.json").read_text()) | {"command": command}
    (folder / "environment.json").write_text(json.dumps(environment))
    text = save_results(folder, tmp_path / "results.json").read_text()
    kept = json.loads(text)
    assert kept["environments"][0]["command"] == ["ns3l", "reproduce", "x", "--root", "data", "--out=runs", "a/b"]
    assert "/home" not in text and str(tmp_path) not in text
    assert "confusion" not in text and len(kept["runs"][0]["result"]["evaluation"]["test"]["per_class_error"]) == 30
    assert not [figure for figure in report(tmp_path / "results.json").figures if figure.section == "confusion"]


def test_equal_recipes_stand_once_and_every_run_on_a_line(saved):
    kept = json.loads(saved.read_text())
    assert (len(kept["runs"]), len(kept["recipes"]), len(kept["environments"])) == (18, 8, 1)
    assert kept["models"] == [{"classes": CLASSES, "shape": None}]
    assert sum(line.startswith('{"path"') for line in saved.read_text().splitlines()) == 18
    assert len(saved.read_bytes()) < 30_000


def test_runs_that_are_there_twice_count_once(saved):
    both = report([STORED, saved])
    assert any("18 of the runs repeat" in statement for statement in both.statements)
    (row,) = [row for row in both.table("results").rows if row[2].text == "supervised"]
    assert row[5].text == "3"


def changed(path: Path, **changes) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def first_run(**changes) -> list:
    good = {"path": "a", "recipe": 0, "environment": 0, "model": 0, "split": {}, "result": {}, "problems": []}
    return [good | {"metrics": {"step": []}} | changes]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kind": "speed"}, "holds no results"),
        ({"format": 2}, "of format 2, this version reads format 1"),
        ({"runs": 3}, "runs must be a list"),
        ({"runs": [3]}, "a run must be an object"),
        ({"recipes": None}, "recipes must be a list"),
        ({"runs": first_run(recipe=-1)}, "a run's recipe must be its place among 8, got -1"),
        ({"runs": first_run(environment=7)}, "its place among 1, got 7"),
        ({"runs": first_run(model=True)}, "got True"),
        ({"models": [3]}, "model must be an object"),
        ({"runs": first_run(result=[])}, "result must be an object"),
        ({"runs": first_run(metrics={})}, "whole numbers"),
        ({"runs": first_run(metrics={"step": [0.5]})}, "whole numbers"),
        ({"runs": first_run(metrics={"step": [10**400]})}, "401 digits"),
        ({"runs": first_run(metrics={"step": list(range(2000))})}, "at most 1,000"),
        ({"runs": []}, "found none"),
    ],
)
def test_wrong_files_are_refused(saved, changes, words):
    changed(saved, **changes)
    with pytest.raises(RunError, match=words):
        report(saved)


@pytest.mark.parametrize("content", ["", "{", "[]", "null", "{" * 5000, '{"kind": NaN}'])
def test_what_is_no_object_of_json_is_refused(tmp_path, content):
    (tmp_path / "results.json").write_text(content)
    with pytest.raises(RunError, match=r"results\.json"):
        report(tmp_path / "results.json")


def test_a_file_that_is_too_large_is_not_read(saved):
    with saved.open("ab") as file:
        file.truncate(LARGEST + 1)
    with pytest.raises(RunError, match="It is not read"):
        report(saved)


@pytest.mark.parametrize("key", ["path", "split", "result", "metrics", "problems"])
@pytest.mark.parametrize("value", ["=<script>", None, -1, 10**400, 1e308, [[[]]], {"a": {"b": []}}], ids=range(7))
def test_hostile_values_are_shown_or_refused(tmp_path, key, value):
    """Each entry of a run, and each entry below it, as something else: our own error, or a report."""
    saved = save_results(STORED / "methods" / "ns3l", tmp_path / "results.json")
    good = json.loads(saved.read_text())
    inner = list(good["runs"][0][key]) if isinstance(good["runs"][0][key], dict) else []
    for place in (None, *inner):
        entry = json.loads(json.dumps(good["runs"][0]))
        (entry if place is None else entry[key])[key if place is None else place] = value
        changed(saved, runs=[entry, *good["runs"][1:]])
        try:
            text = to_json(report(saved))
        except RunError:
            continue
        assert "3 runs" in text, (key, place)


def test_the_command_saves_and_reads(saved, tmp_path):
    path = tmp_path / "again.json"
    ended = ns3l("report", saved, "--save", path, "--title", "Another")
    assert (ended.code, ended.out) == (0, "")
    assert f"{path} is written" in ended.err.replace("\n", "")
    assert json.loads(ns3l("report", path, "--json").out)["title"] == "Another"
    assert report(path).tables == report(STORED).tables
    assert "holds no results" in ns3l("report", STORED / "methods/ns3l/default/seed-0/recipe.json").err
