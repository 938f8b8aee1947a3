"""What a report says of groups of runs: what enters a mean, what is compared with what, what is chosen by what."""

import math
from pathlib import Path

import pytest
from tests.report.stored import evaluation, metrics, recipe, result, write

from ns3l.paper import published
from ns3l.report import report, to_csv
from ns3l.report.beside import beside_paper
from ns3l.report.cells import interval
from ns3l.report.figures import describe
from ns3l.report.group import baselines, chosen, group, headline
from ns3l.report.html import unbroken
from ns3l.report.run import Run
from ns3l.report.series import figures
from ns3l.report.shapes import Cell
from ns3l.report.tables import commands, differences, findings, picked, quality, results, runs, throughput
from ns3l.statistics import summarize


def made(method: str, seed: int, test: float, validation: float | None = None, status: str = "complete", **told) -> Run:
    """A run in memory; `told` changes its recipe (threshold, weight, schedule) or its result."""
    plan = recipe(method, **{name: told.pop(name) for name in ("threshold", "weight") if name in told})
    plan["schedule"] = told.get("schedule", 1.0)
    judged = test if validation is None else validation
    known = result(method, test, seed, status) | {
        "validation_error": dict.fromkeys(("last", "best_validation", "median_20"), judged)
    }
    place = Path(f"{method}-{plan['terms'].get('ns3l')}".replace("/", " ")) / f"seed-{seed}"
    lines = tuple(told.pop("metrics", metrics(method, test, seed)))
    return Run(place, known | told, plan, {"hash": f"split-{seed}", "seed": seed}, metrics=lines)


def column(table, name: str) -> list[str]:
    place = [one.name for one in table.columns].index(name)
    return [row[place].text for row in table.rows]


@pytest.mark.parametrize("status", ["running", "failed", "damaged"])
def test_only_complete_runs_enter_means_and_have_commands(status):
    groups = group([made("supervised", 0, 10.0), made("supervised", 1, 30.0, status=status)])
    table = results(groups, None)
    assert (column(table, "n"), column(table, "Test error")) == (["1"], ["10.00"])
    assert column(table, "Missing seeds") == ["1"]
    assert column(commands(groups, None), "Seed") == ["0"]
    assert column(runs(groups), "Status") == ["complete", status]


def test_a_grid_point_is_chosen_by_validation_where_test_says_otherwise():
    points = group([made("ns3l", 0, 12.0, 9.0, threshold=0.03), made("ns3l", 0, 8.0, 11.0, threshold=0.05)])
    assert chosen(points, None).settings == headline(points, None)[0].settings == "threshold=0.03"
    assert len(headline(points, None)) == 1
    assert column(picked(points, None), "Test error") == ["12.00"]
    assert column(picked(points, None), "Validation error") == ["9.00"]


def test_where_nothing_can_be_chosen_every_point_stands_for_its_method():
    unjudged = {"validation_error": dict.fromkeys(("last", "best_validation", "median_20"))}
    points = [made("ns3l", 0, 12.0, threshold=threshold, **unjudged) for threshold in (0.03, 0.05)]
    groups = group([*points, made("supervised", 0, 13.0, **unjudged)])
    assert len(headline(groups, None)) == 3
    assert len(findings(groups, None)) == 2
    learning = figures(groups, None)[0]
    assert [curve.name for curve in learning.curves] == ["supervised", "ns3l (threshold=0.03)", "ns3l (threshold=0.05)"]


def test_a_method_is_compared_with_supervised_then_with_itself_without_ns3l():
    groups = group([made(method, 0, 10.0) for method in ("supervised", "vat", "vat+ns3l-one-pass", "ns3l", "vat+ns3l")])
    told = {one.method: [base.method for base in baselines(one, groups)] for one in groups}
    assert told == {
        "supervised": [],
        "ns3l": ["supervised"],
        "vat": ["supervised"],
        "vat+ns3l": ["supervised", "vat"],
        "vat+ns3l-one-pass": ["supervised", "vat"],
    }
    table = differences(groups, None)
    assert column(table, "Against") == ["supervised", "supervised", "supervised", "vat", "supervised", "vat"]
    assert column(table, "Finding")[2:4] == ["unlabeled data did not help", "no gain"]
    assert len(findings(groups, None)) == 4
    assert all("+0.00 points on 1 split)" in told.text for told in findings(groups, None))


def test_a_finding_says_on_what_only_where_that_differs():
    short = [made("supervised", 0, 17.0, schedule=0.5), made("ns3l", 0, 15.0, schedule=0.5)]
    whole = [made("supervised", 0, 16.0), made("ns3l", 0, 14.0)]
    assert [one.text[:23] for one in findings(group(whole), None)] == ["ns3l against supervised"]
    assert {one.text.split(": ")[0] for one in findings(group(short + whole), None)} == {
        "fashion-mnist, 2,000 labels",
        "fashion-mnist, 2,000 labels, schedule 0.5",
    }


def test_names_of_methods_end_no_line_at_a_hyphen():
    assert unbroken("ns3l-nn-exclude-4", 18) == '<span class="word">ns3l-nn-exclude-4</span>'
    assert unbroken("a <b> " + 40 * "x/") == (
        '<span class="word">a</span> <span class="word">&lt;b&gt;</span> ' + 40 * "x/<wbr>"
    )


def test_a_baseline_has_the_same_schedule_and_the_same_settings():
    other = [made("supervised", 0, 10.0, schedule=0.5), made("ns3l", 0, 10.0)]
    assert [baselines(one, group(other)) for one in group(other)] == [(), ()]
    grid = [made(method, 0, 10.0, steps=steps) for method in ("vat", "vat+ns3l") for steps in (100, 200)]
    for run in grid:
        run.recipe["optimizer"]["lr"] = run.result["steps"] / 1e5
    groups = group(grid)
    assert [[base.settings for base in baselines(one, groups)] for one in groups[2:]] == [["lr=0.001"], ["lr=0.002"]]
    assert {one.settings for one in groups} == {"lr=0.001", "lr=0.002"}


def test_differences_follow_the_rule_that_was_asked_for():
    split = {"last": 10.0, "best_validation": 20.0, "median_20": 5.0}
    groups = group(
        [made("ns3l", 0, 0.0, test_error=split), made("supervised", 0, 0.0, test_error=dict(split, last=9.0))]
    )
    assert column(differences(groups, None), "Difference") == ["+1.00"]
    assert column(differences(groups, "median_20"), "Difference") == ["+0.00"]
    assert column(commands(groups, "best_validation"), "Test error") == ["20.00", "20.00"]


def test_a_seed_is_missing_where_another_method_has_it():
    groups = group([made("supervised", seed, 10.0) for seed in (0, 1, 2)] + [made("ns3l", 1, 10.0)])
    assert column(results(groups, None), "Missing seeds") == ["none", "0, 2"]
    assert column(differences(groups, None), "Unpaired seeds") == ["0, 2"]


def test_speed_and_quality_are_means_and_memory_is_the_peak():
    runs = [made("ns3l", 0, 10.0, memory_mb=100.0, steps_per_second=20.0), made("ns3l", 1, 12.0, memory_mb=300.0)]
    for run, worst in zip(runs, ([1.0, 9.0, 2.0], [8.0, 3.0, 4.0]), strict=True):
        run.result["evaluation"]["test"]["per_class_error"] = worst
    table = throughput(group(runs))
    assert [column(table, name) for name in ("Steps/s", "ms/step", "Memory (MB)")] == [["35.0"], ["28.57"], ["300"]]
    assert column(quality(group(runs)), "Hardest class") == ["1: 6.00 %"]


def test_curves_are_of_steps_that_all_complete_runs_have():
    late = metrics("ns3l", 10.0, 0)[1:]
    going = made("ns3l", 2, 90.0, status="running", metrics=metrics("ns3l", 90.0, 2)[:1])
    (one,) = group([made("ns3l", 0, 10.0, metrics=late), made("ns3l", 1, 20.0), going])
    (learning, *_) = figures([one], None)
    (curve,) = learning.curves
    assert (curve.x, curve.n, curve.mean[-1]) == ((200, 300, 400), 2, 15.0)
    assert "15 at 400 (n = 2)" in describe(learning)


def test_reliability_weighs_bins_by_their_counts_and_confusion_is_of_the_true_class():
    pair = [made("ns3l", seed, 10.0) for seed in (0, 1)]
    for run, count, accuracy in zip(pair, (10, 30), (0.0, 1.0), strict=True):
        told = evaluation(10.0) | {"confusion": [[3 * count, count], [0, count]]}
        run.result["evaluation"] = {
            "test": told | {"reliability": [{"count": count, "confidence": 0.6, "accuracy": accuracy}]}
        }
    drawn = {figure.key: figure for figure in figures(group(pair), None)}
    assert drawn["reliability"].curves[0].mean == (0.75,)
    assert drawn["confusion"].values == ((75.0, 25.0), (0.0, 100.0))


def test_the_star_of_a_heat_map_is_the_lowest_validation_error():
    errors = {(0.03, 1.0): (5.0, 9.0), (0.03, 3.0): (6.0, 8.0), (0.05, 1.0): (7.0, 7.0), (0.05, 3.0): (8.0, 7.5)}
    points = [made("ns3l", 0, *pair, threshold=t, weight=w) for (t, w), pair in errors.items()]
    drawn = {figure.key: figure for figure in figures(group(points), None)}
    assert drawn["grid"].values == ((5.0, 6.0), (7.0, 8.0))
    assert drawn["grid"].marked == (1, 0)
    assert "with the value 7" in describe(drawn["grid"])


def test_a_verdict_pools_by_the_number_of_the_papers_splits_and_says_the_schedule():
    told = {"data": "cifar10", "labels": 4000, "schedule": 0.5}
    (one,) = group([made("vat", 0, 10.0, **told), made("vat", 1, 11.0, **told)])
    cell = published("cifar10", 4000, "vat")
    (row,) = beside_paper([one], None).rows
    pooled = math.sqrt((0.5 + (cell.n - 1) * cell.std**2) / cell.n)
    assert row[-2].value == pytest.approx(pooled)
    assert row[-1].text == "lower by more than 2 pooled std, at schedule 0.5, under another protocol"
    (higher,) = group([made("vat", 0, 70.0, **told), made("vat", 1, 71.0, **told)])
    assert beside_paper([higher], None).rows[0][-1].text.startswith("higher by more than 2 pooled std")


@pytest.mark.parametrize("name", ["=1+1", "+1+1", "-1+1", "@SUM(1)", " =1"])
def test_no_cell_of_a_csv_file_is_a_formula(name, tmp_path):
    shown = to_csv(made_report(name, tmp_path), "runs").splitlines()[1].split(",")
    assert f"'{name.strip()}" in shown
    assert {"0", "10.00"} <= set(shown)


def made_report(name: str, folder: Path):
    """A report on one stored run of a method of this name."""
    told = result("supervised", 10.0, 0) | {"method": name}
    write(folder / "seed-0", recipe("supervised"), told, metrics("supervised", 10.0, 0), 0)
    return report(folder)


def test_intervals_stay_where_errors_can_be():
    assert interval(summarize([0.5, 4.0])).text == "0.00 to 24.49"
    assert interval(summarize([99.0, 93.0])) == Cell("57.88 to 100.00", pytest.approx(57.88, abs=0.01))
    assert interval(summarize([-1.0, 3.0]), sign=True).text == "-24.41 to +26.41"
    assert interval(summarize([-99.0, 99.0]), sign=True).text == "-100.00 to +100.00"
