"""`ns3l study`, `reproduce` and `search`: plans, words, one small study from end to end."""

import json

import pytest
from tests.cli.terminal import ns3l

from ns3l.cli import studies
from ns3l.errors import UserError
from ns3l.executors import Local, Processes, Ray
from ns3l.recipe import Execution
from ns3l.recipes import ITEMS
from ns3l.study import Study

STUDY = ("study", "digits", "--labels", 30, "--methods", "ns3l", "--seeds", 2, "--set", "steps=2")


def test_a_plan_trains_nothing(tmp_path):
    out = tmp_path / "s"
    grid = ("--grid", "ns3l.weight=0.3,1", "--out", out, "--dry-run")
    told = json.loads(ns3l(*STUDY, *grid, "--json").out)
    assert [(run["method"], run["status"]) for run in told["runs"]].count(("ns3l", "new")) == 4
    assert len(told["runs"]) == 6, "and the baseline"
    assert len(json.loads(ns3l(*STUDY, *grid, "--json", "--no-baseline").out)["runs"]) == 4
    assert "6 runs: 6 new" in ns3l(*STUDY, *grid).out
    assert not out.exists()


def test_a_study_reports_and_is_skipped_when_done(tmp_path):
    words = (*STUDY, "--no-baseline", "--seeds", 1, "--out", tmp_path / "s")
    ended = ns3l(*words)
    assert ended.code == 0, ended.err
    assert "Report on digits" in ended.out
    told = json.loads(ns3l(*words, "--json").out)
    assert (told["complete"], told["failed"]) == (1, [])


def test_a_study_with_a_failed_run_is_told_by_its_exit_code(tmp_path):
    words = ("--set", "optimizer=sgd", "--set", "optimizer.lr=1e30", "--set", "steps=30", "--no-baseline")
    ended = ns3l("study", "digits", "--labels", 30, "--methods", "supervised", "--seeds", 1, *words, "--out", tmp_path)
    assert ended.code == 1
    assert "1 of 1 runs failed" in ended.err


def test_items():
    told = json.loads(ns3l("reproduce", "fashion-mnist", "--seeds", 2, "--schedule", 0.02, "--dry-run", "--json").out)
    assert len({run["method"] for run in told["runs"]}) >= 10
    assert {run["steps"] for run in told["runs"]} == {1160}
    assert "did you mean 'table1-cifar10'" in ns3l("reproduce", "tabel1-cifar10").err


def test_rows_of_an_item():
    words = ("reproduce", "table1-cifar10", "--seeds", 1, "--dry-run")

    def rows(*more: str) -> list[str]:
        return [run["method"] for run in json.loads(ns3l(*words, *more, "--json").out)["runs"]]

    assert rows("--rows", "VAT, pi+ns3l") == ["Supervised", "VAT", "Π + NS3L"]
    assert rows("--rows", "vat", "--no-baseline") == ["VAT"]
    assert not any("," in label for item in ITEMS.values() for label, _ in item.rows), "labels can be listed"
    refused = ns3l(*words, "--rows", "vat+nsl3")
    assert refused.code == 2
    assert "there is no row 'vat+nsl3'; did you mean 'vat+ns3l'" in refused.err
    assert "--rows is a list" in ns3l(*words, "--rows", ",").err


@pytest.mark.parametrize(
    "words",
    [("study", "digits", "--labels", 30, "--set", "steps=2"), ("reproduce", "table1-svhn", "--rows", "ns3l")],
)
def test_fast_runs(words, tmp_path, monkeypatch):
    carried: list[Study] = []
    monkeypatch.setattr(studies, "_carry_out", lambda made, *_: carried.append(made))
    assert ns3l(*words, "--fast", "--set", "execution.autotune=true").code == 0
    expected = Execution(precision="bf16", channels_last=True, autotune=True)
    assert [row.execution for row in carried[0].rows.values()] == [expected, expected]


def test_the_toy_example_is_an_item(tmp_path):
    told = json.loads(ns3l("reproduce", "toy", "--out", tmp_path / "toy", "--json").out)
    assert (tmp_path / "toy" / "toy.png").stat().st_size > 1000
    assert told["picture"].endswith("toy.png")


def test_grids():
    assert studies.grid_of(["a.b=1,2.5", "c=x,y"]) == {"a.b": [1, 2.5], "c": ["x", "y"]}
    for words in (["a"], ["a="], ["a=1", "a=2"]):
        with pytest.raises(UserError, match="--grid"):
            studies.grid_of(words)


def test_executors():
    assert isinstance(studies.executor_of("local", None, None, 1, 0), Local)
    assert studies.executor_of("processes", None, 3, 2, 0) == Processes(3, 2)
    assert studies.executor_of("ray", "auto", None, 2, 0.5) == Ray("auto", 2, 0.5)
    with pytest.raises(UserError, match="--executor is"):
        studies.executor_of("slurm", None, None, 1, 0)
    with pytest.raises(UserError, match="--address is for --executor ray"):
        studies.executor_of("local", "auto", None, 1, 0)


@pytest.mark.parametrize("words", [("--methods", ","), ("--methods", "pl,pl"), ("--methods", "vatt"), ("--grid", "x")])
def test_wrong_use(words):
    assert ns3l("study", "digits", "--labels", 30, *words, "--dry-run").code == 2
    assert ns3l("search", "digits", "--space", "ns3l.weight").code == 2


@pytest.mark.slow
def test_a_search(tmp_path):
    pytest.importorskip("optuna")
    words = ("--labels", 30, "--trials", 2, "--set", "steps=2", "--out", tmp_path / "s", "--json")
    ended = ns3l("search", "digits", *words)
    assert ended.code == 0, ended.err
    assert sum(trial["best"] for trial in json.loads(ended.out)["trials"]) == 1
