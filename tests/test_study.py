"""Studies: what is planned, named, skipped, continued, retried; what is refused."""

import json
import os
import signal
from dataclasses import replace

import pytest
from filelock import FileLock
from tests.executors.small_study import small, tiny_data, weights

import ns3l
from ns3l.data.reference import refer
from ns3l.errors import InUseError, RecipeError, RunError, UserError
from ns3l.executors import Local, Processes
from ns3l.recipes import override
from ns3l.record import find_runs, read_json
from ns3l.report import report, to_text
from ns3l.study import execute, measure, plan_of, reproduction, study
from ns3l.study.description import point_name, safe
from ns3l.study.estimate import likeness
from ns3l.train import Stopped

QUIET = ns3l.How(device="cpu", progress="quiet")
ALONE = Local(1)


def quiet(message: str) -> None:
    """Says nothing."""


def carry_out(one, how=QUIET, tell=quiet):
    """A study in this process, silently."""
    return execute(one, ALONE, how, tell)


def statuses(one) -> list[str]:
    """The status of every run."""
    return [run.status for run in plan_of(one, ALONE).runs]


def test_every_study_has_a_supervised_row_with_the_same_budget(tmp_path):
    one = small(tmp_path, ("ns3l", "vat"), settings={"vat.weight": 0.5})
    assert list(one.rows) == ["supervised", "ns3l", "vat"]
    own, peer = one.rows["supervised"], one.rows["ns3l"]
    assert (own.steps, own.split, own.evaluation) == (peer.steps, peer.split, peer.evaluation)
    assert own.batch.unlabeled == 0
    assert one.rows["vat"].terms["vat"].weight.value == 0.5
    assert list(small(tmp_path, ("ns3l",), baseline=False).rows) == ["ns3l"]
    assert list(small(tmp_path, ("ns3l", "supervised")).rows) == ["ns3l", "supervised"]


def test_recipes_by_label_get_a_baseline_stripped_of_unlabeled_examples(tmp_path):
    peer = replace(ns3l.recipe("vat+ns3l", "digits", 30), steps=33)
    rows = study({"ours": peer}, "digits", out=tmp_path).rows
    assert rows["ours"] == peer
    assert rows["supervised"].steps == 33
    assert list(rows["supervised"].terms) == ["supervised"]
    assert rows["supervised"].optimizer == peer.optimizer
    assert rows["supervised"].batch.unlabeled == 0
    longest = study({"ours": peer, "more": replace(peer, steps=44), "less": replace(peer, steps=11)}, "digits").rows
    assert longest["supervised"].steps == 44
    mean_teacher = ns3l.recipe("mean-teacher", "digits", 30)
    plan = replace(mean_teacher.evaluation, weights="average")
    for made in (mean_teacher, replace(mean_teacher, evaluation=plan)):
        average = study({"ours": made}, "digits").rows["supervised"].average
        assert average == (mean_teacher.average if made.evaluation.weights == "average" else None)


def test_every_protocol_has_its_own_supervised_row():
    one, other = ns3l.recipe("ns3l", "digits", 30), ns3l.recipe("vat", "digits", 30)
    rows = study({"a": one, "b": replace(other, protocol="another"), "supervised": one}, "digits", schedule=0.5).rows
    assert list(rows) == ["supervised, own", "supervised, another", "a", "b", "supervised"]
    assert [row.method for row in rows.values()] == ["supervised", "supervised", "ns3l", "vat", "ns3l"]
    assert {row.protocol for row in rows.values()} == {"own", "another"}
    assert {row.schedule for row in rows.values()} == {0.5}
    plain = ns3l.recipe("supervised", "digits", 30)
    rows = study({"plain": plain, "a": one, "b": replace(other, protocol="another")}, "digits").rows
    assert {label: row.protocol for label, row in rows.items() if row.method == "supervised"} == {
        "supervised": "another",
        "plain": "own",
    }


def test_a_grid_varies_the_rows_that_it_concerns(tmp_path):
    one = small(tmp_path, grid={"ns3l.negatives.threshold": [0.02, 0.04], "optimizer.lr": [0.001]}, seeds=[3])
    names = [str(cell.run.path.relative_to(tmp_path)) for cell in one.cells()]
    assert names == [
        "supervised/optimizer.lr=0.001/seed-3",
        "ns3l/ns3l.negatives.threshold=0.02,optimizer.lr=0.001/seed-3",
        "ns3l/ns3l.negatives.threshold=0.04,optimizer.lr=0.001/seed-3",
    ]
    assert one.cells()[2].run.recipe.terms["ns3l"].term.negatives.threshold == 0.04
    assert one.cells()[2].name == "ns3l (ns3l.negatives.threshold=0.04, optimizer.lr=0.001) seed 3"


def test_a_setting_of_some_selectors_alone_changes_the_rows_that_have_it(tmp_path):
    methods = ("ns3l-uniform-1", "ns3l", "vat+ns3l")
    one = small(tmp_path, methods, grid={"ns3l.negatives.threshold": [0.02, 0.04]}, seeds=1)
    assert [str(cell.run.path.relative_to(tmp_path)).split("/")[0] for cell in one.cells()] == [
        "supervised",
        "ns3l-uniform-1",
        *("ns3l", "ns3l", "vat+ns3l", "vat+ns3l"),
    ]
    one = small(tmp_path, methods, settings={"ns3l.negatives.threshold": 0.07})
    assert [row.terms["ns3l"].term.negatives.threshold for row in list(one.rows.values())[2:]] == [0.07, 0.07]
    with pytest.raises(RecipeError, match=r"no setting 'ns3l\.negatives\.treshold'; did you mean '.*\.threshold'"):
        small(tmp_path, methods, settings={"ns3l.negatives.treshold": 0.07})


def test_names_are_safe_for_file_systems():
    assert point_name({}) == "default"
    assert point_name({"a.b": 0.1, "c": "x/y"}) == "a.b=0.1,c=x%2Fy"
    assert safe("../up") == "%2E.%2Fup"
    assert safe("VAT + Π") == "VAT%20+%20%CE%A0"
    long = [safe("m" * 300 + end) for end in "ab"]
    assert all(len(name) <= 120 for name in long) and long[0] != long[1]
    with pytest.raises(RecipeError, match="label must not be empty"):
        safe("")


def test_mistakes_are_refused(tmp_path):
    with pytest.raises(RecipeError, match="at least one method and one seed"):
        small(tmp_path, seeds=[])
    with pytest.raises(RecipeError, match="seed is given twice: 1, 1"):
        small(tmp_path, seeds=[1, 1])
    with pytest.raises(RecipeError, match="has no values for"):
        small(tmp_path, grid={"ns3l.weight": []})
    with pytest.raises(RecipeError, match=r"there is no setting 'ns3l\.wait'; did you mean 'ns3l\.weight'"):
        small(tmp_path, grid={"ns3l.wait": [1]})
    with pytest.raises(RecipeError, match="labels or grid values repeat"):
        small(tmp_path, grid={"ns3l.weight": [1.0, 1.0]})
    made = ns3l.recipe("ns3l", "digits", 30)
    with pytest.raises(
        RecipeError, match=r"two runs of the study would be written to .*: labels or grid values repeat"
    ):
        study({"ours": made, "Ours": made}, "digits", out=tmp_path)
    with pytest.raises(RecipeError, match="there is no item 'table1-cifar'; did you mean 'table1-cifar10'"):
        reproduction("table1-cifar")
    with pytest.raises(RecipeError, match="toy trains no network"):
        reproduction("toy")


def test_an_item_is_a_study_with_scaled_steps(tmp_path):
    with pytest.warns(UserWarning, match="at least 1/K"):
        one = reproduction("sensitivity-ns3l", 2, 0.01, tmp_path, settings={"batch.labeled": 10})
        assert len(one.cells()) == 2 * (12 + 1)
    assert {row.schedule for row in one.rows.values()} == {0.01}
    assert len({row.steps for row in one.rows.values()}) == 1
    assert one.rows["supervised"].batch.labeled == 10
    assert one.rows["supervised"].protocol == one.rows["ns3l"].protocol


def test_a_study_is_carried_out_once_and_extended(tmp_path):
    said = []
    first = carry_out(small(tmp_path, seeds=1), tell=said.append)
    assert first.succeeded and len(first.outcomes) == 2
    assert said[1].startswith("[1/2] supervised seed 0: complete, validation error")
    before = weights(tmp_path)
    more = small(tmp_path, seeds=2)
    assert statuses(more) == ["complete", "new"] * 2
    assert carry_out(more).succeeded
    assert statuses(more) == ["complete"] * 4
    assert before.items() <= weights(tmp_path).items()
    again = []
    assert carry_out(more, tell=again.append).succeeded
    assert len(again) == 1 and again[0].endswith("4 of 4 runs complete")
    told = read_json(tmp_path / "study.json")
    assert told["seeds"] == [0, 1] and [entry["seeds"] for entry in told["earlier"]] == [[0]]
    assert told["data"]["hash"] == ns3l.load("digits").hash and told["ns3l"]
    assert carry_out(small(tmp_path, seeds=1)).succeeded
    told = read_json(tmp_path / "study.json")
    assert told["seeds"] == [0] and [entry["seeds"] for entry in told["earlier"]] == [[0], [0, 1]]


def test_stopped_and_started_again_is_as_never_stopped(tmp_path):
    def stop(plan, metrics):
        if plan.recipe.method == "ns3l" and metrics["step"] == 10:
            os.kill(os.getpid(), signal.SIGTERM)
        return False

    with pytest.raises(Stopped) as stopped:
        carry_out(small(tmp_path / "a"), replace(QUIET, watch=stop))
    assert stopped.value.code == 143
    assert statuses(small(tmp_path / "a")) == ["complete", "complete", "begun", "new"]
    assert plan_of(small(tmp_path / "a"), ALONE).runs[2].left == 10
    carry_out(small(tmp_path / "a"))
    carry_out(small(tmp_path / "b"))
    assert weights(tmp_path / "a") == weights(tmp_path / "b")


def test_a_failed_run_does_not_stop_the_others_and_is_tried_again(tmp_path):
    def fail(plan, metrics):
        if plan.recipe.method == "ns3l" and plan.seed == 0:
            raise OSError("the disk is tired")
        return False

    said = []
    result = carry_out(small(tmp_path), replace(QUIET, watch=fail), said.append)
    assert [cell.name for cell, _ in result.failed] == ["ns3l seed 0"]
    assert said[-1] == "  ns3l seed 0: OSError: the disk is tired"
    assert statuses(small(tmp_path)) == ["complete", "complete", "failed", "complete"]
    assert "OSError: the disk is tired" in plan_of(small(tmp_path), ALONE).to_text()
    assert carry_out(small(tmp_path)).succeeded
    result = read_json(tmp_path / "ns3l" / "default" / "seed-0" / "result.json")
    assert result["status"] == "complete"
    assert result["earlier_failures"] == ["OSError: the disk is tired"]


def test_numbers_that_are_not_finite_fail_their_run_alone(tmp_path):
    one = small(tmp_path, grid={"optimizer.lr": [1e-3, 1e38]}, seeds=1, baseline=False)
    (failed,) = carry_out(one).failed
    assert failed[0].values == {"optimizer.lr": 1e38}
    assert failed[1].reason.startswith("not finite at step")


def test_who_watches_may_end_a_run_early(tmp_path):
    seen = []

    def enough(plan, metrics):
        seen.append(metrics["validation_error"])
        return True

    result = carry_out(small(tmp_path, seeds=1, baseline=False), replace(QUIET, watch=enough))
    assert result.succeeded and len(seen) == 1
    told = read_json(tmp_path / "ns3l" / "default" / "seed-0" / "result.json")
    assert (told["step"], told["steps"], told["validation_error"]["last"]) == (10, 20, seen[0])


def test_runs_side_by_side_fail_alone(tmp_path):
    def fail(plan, metrics):
        if plan.seed == 2:
            raise OSError("the disk is tired")
        return False

    result = carry_out(small(tmp_path, seeds=4, baseline=False), replace(QUIET, watch=fail, replicas=4))
    assert [cell.run.seed for cell, _ in result.failed] == [2]


def test_a_second_start_at_once_is_refused(tmp_path):
    one = small(tmp_path)
    with FileLock(tmp_path / ".lock"), pytest.raises(InUseError, match="is being carried out by"):
        carry_out(one)
    assert not find_runs(tmp_path)


def test_several_processes_of_one_job_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UserError, match="torchrun is for `ns3l train`"):
        carry_out(small(tmp_path))


def test_a_folder_of_another_study_is_refused_untouched(tmp_path):
    carry_out(small(tmp_path, seeds=1))
    before = (tmp_path / "study.json").read_bytes()
    other = small(tmp_path, seeds=1, settings={"optimizer.lr": 0.5})
    assert statuses(other) == ["blocked", "blocked"]
    with pytest.raises(RunError, match=r"holds another study:\n  supervised: optimizer.lr: 0.003 stored, 0.5 given"):
        carry_out(other)
    assert (tmp_path / "study.json").read_bytes() == before


def test_a_run_folder_that_cannot_be_read_is_left_alone(tmp_path):
    one = small(tmp_path, seeds=1)
    folder = one.cells()[1].run.path
    folder.mkdir(parents=True)
    (folder / "recipe.json").write_text("{")
    plan = plan_of(one, ALONE)
    assert [(run.status, run.left) for run in plan.runs] == [("new", 20), ("blocked", 0)]
    assert [run.path for task in plan.tasks for run in task.runs] == [one.cells()[0].run.path]
    ((cell, outcome),) = carry_out(one).failed
    assert (cell.label, outcome.status) == ("ns3l", "failed")
    assert "recipe.json" in str(outcome.reason)
    assert [path.name for path in folder.iterdir()] == ["recipe.json"]
    assert statuses(one) == ["complete", "blocked"]


def test_a_study_of_data_in_memory_without_any_evaluation_says_so(tmp_path):
    data, said = tiny_data(), []
    one = study(["ns3l"], data, 6, seeds=1, out=tmp_path, settings={"steps": 2, "evaluation.every": 2})
    assert carry_out(one, tell=said.append).succeeded
    assert said[0] == "tiny has no test part: set split.validation, or no errors will be known"
    assert one.data.to_dict()["in_memory"]


def test_a_path_is_found_from_other_folders(tmp_path, monkeypatch):
    import numpy as np

    data = tiny_data()
    np.savez(tmp_path / "tiny.npz", x=data.x, y=data.y)
    monkeypatch.chdir(tmp_path)
    reference = refer("tiny.npz")
    monkeypatch.chdir("/")
    assert len(reference.load().x) == len(data.x)
    assert reference.load() is reference.load()


def test_plan_tells_time_from_records_or_measurement(tmp_path):
    one = small(tmp_path, seeds=1)
    unknown = plan_of(one, ALONE)
    assert unknown.seconds is None and "unknown" in unknown.to_text()
    assert plan_of(one, ALONE, QUIET, measured=True).seconds > 0
    assert not find_runs(tmp_path)
    carry_out(one)
    more = plan_of(small(tmp_path, seeds=3), ALONE)
    assert more.seconds > 0
    assert "1 earlier run on this hardware" in more.to_text()
    assert {run["steps_left"] for run in more.to_dict()["runs"]} == {0, 20}
    abreast = plan_of(small(tmp_path, seeds=3), Processes(2))
    assert (abreast.abreast, abreast.seconds) == (2, more.seconds / 2)
    assert plan_of(small(tmp_path, ("ns3l", "vat"), seeds=3), ALONE).seconds is None
    elsewhere = plan_of(small(tmp_path / "other"), ALONE, records=[tmp_path])
    assert elsewhere.seconds > 0
    for path in find_runs(tmp_path):
        told = read_json(path / "result.json")
        (path / "result.json").write_text(json.dumps(told | {"hardware": "another machine"}))
    assert plan_of(small(tmp_path / "other"), ALONE, records=[tmp_path]).seconds is None
    assert measure(one.rows["ns3l"], ns3l.load("digits"), QUIET).steps_per_second > 0


def test_runs_are_alike_where_only_numbers_differ():
    def key(method: str, **settings) -> str:
        return likeness(override(ns3l.recipe(method, "digits", 30), settings).to_dict())

    assert key("ns3l") == key("ns3l", **{"ns3l.negatives.threshold": 0.07, "ns3l.weight": 3.0, "optimizer.lr": 0.1})
    assert len({key("ns3l"), key("ns3l-one-pass"), key("ns3l-uniform-1"), key("ns3l", **{"batch.unlabeled": 60})}) == 4


def test_a_report_reads_a_study(tmp_path):
    carry_out(small(tmp_path, ("ns3l", "vat")))
    text = to_text(report(tmp_path))
    assert all(name in text for name in ("supervised", "ns3l", "vat"))
