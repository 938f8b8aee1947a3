"""`ns3l train`: folders, continuing, other settings, failures, JSON."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.cli.terminal import ns3l

from ns3l import Dataset, How, load
from ns3l.cli import training
from ns3l.cli.training import Asked
from ns3l.errors import RunError, UserError
from ns3l.recipes import override, recipe
from ns3l.record.lock import FolderLock
from ns3l.run import Trained
from ns3l.shared import Plan

SMALL = ("--labels", 30, "--method", "supervised", "--steps", 3)


def test_a_complete_run_is_said_to_be_complete(run):
    again = ns3l("train", "digits", *SMALL, "--validation", 20, "--out", run)
    assert again.code == 0
    assert f"{run} is complete; nothing was trained there" in again.out
    assert "More: ns3l report" in again.out
    assert not ns3l("train", "digits", *SMALL, "--validation", 20, "--out", run, "--quiet").out


def test_a_folder_in_use_is_a_failed_run(tmp_path):
    lock = FolderLock(tmp_path)
    ended = ns3l("train", "digits", *SMALL, "--out", tmp_path)
    lock.release()
    assert ended.code == 1
    assert "is being written by" in ended.err


def test_a_folder_of_another_run_is_wrong_use(run):
    for words in (("--steps", 4), ("--seed", 1), ("--method", "ns3l")):
        ended = ns3l("train", "digits", *SMALL, "--validation", 20, *words, "--out", run)
        assert ended.code == 2
        assert "holds another run" in ended.err
        assert bool(re.search(r"\n  and .* more", ended.err)) == ("--seed" in words), "ten differences are listed"
    below_a_file = ns3l("train", "digits", *SMALL, "--out", run / "recipe.json" / "run")
    assert below_a_file.code == 2
    assert "recipe.json is a file; a run needs a folder" in below_a_file.err
    several = ns3l("train", "digits", *SMALL, "--seeds", 2, "--out", run)
    assert several.code == 2
    assert "give another --out" in several.err


@pytest.mark.parametrize("left", ["recipe.json", "result.json"])
def test_a_damaged_run_is_no_folder_for_seeds(tmp_path, left):
    (tmp_path / left).write_text("{}")
    several = ns3l("train", "digits", *SMALL, "--seeds", 2, "--out", tmp_path)
    assert several.code == 2
    assert "give another --out" in several.err


def test_seeds_in_the_default_folder_and_json(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ended = ns3l("train", "digits", *SMALL, "--seeds", "0,4", "--json")
    assert ended.code == 0
    told = json.loads(ended.out)
    folders = ["runs/digits/supervised/seed-0", "runs/digits/supervised/seed-4"]
    assert [run["path"] for run in told["runs"]] == folders
    assert all((tmp_path / folder / "result.json").exists() for folder in folders)
    assert "evaluation" not in told["runs"][0]
    assert told["validation_error"]["n"] == 2
    assert told["test_error"]["mean"] is None
    errors = [run["validation_error"]["last"] for run in told["runs"]]
    assert told["validation_error"]["std"] == pytest.approx(np.std(errors, ddof=1))
    assert "20% is held out" in ended.err
    assert "step 3/3" in ended.err, "progress beside the document"
    alone = ns3l("train", "digits", *SMALL, "--seed", 4, "--out", "runs/digits/supervised", "--quiet")
    assert alone.code == 0, "a folder of seeds stays one"
    assert not (tmp_path / "runs/digits/supervised/recipe.json").exists()


def test_several_seeds_are_told_in_a_table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ("--validation", 20, "--set", "evaluation.every=1", "--set", "evaluation.rule=best_validation")
    ended = ns3l("train", "digits", *SMALL, *words, "--seeds", 2, "--out", "two runs")
    chosen = []
    for seed in (0, 1):
        told = json.loads((tmp_path / f"two runs/seed-{seed}/result.json").read_text())
        chosen.append(told["validation_error"]["best_validation"])
        assert re.search(rf" {seed} +30 +{chosen[-1]:.2f} +– +complete +two runs/seed-{seed}", ended.out)
    assert f"validation error {np.mean(chosen):.2f} ± {np.std(chosen, ddof=1):.2f} % over 2 seeds" in ended.out
    assert "More: ns3l report 'two runs'" in ended.out


def test_a_failed_run_does_not_count_in_the_mean():
    made = override(recipe("supervised", "digits", 30), {"evaluation.rule": "best_validation"})

    def ended(status: str, error: float) -> Trained:
        errors = {"last": error, "best_validation": error + 1}
        return Trained(Plan(made, None, 0), {"status": status, "validation_error": errors}, None)

    told = training._summary([ended("complete", 2.0), ended("complete", 4.0), ended("failed", 90.0)], "validation")
    assert told == {"rule": "best_validation", "n": 2, "mean": 4.0, "std": pytest.approx(2**0.5)}


def test_a_fast_run_is_told_by_record_and_report(tmp_path):
    out = tmp_path / "fast"
    ended = ns3l("train", "digits", *SMALL, "--validation", 20, "--fast", "--out", out)
    assert ended.code == 0, ended.err
    told = json.loads((out / "recipe.json").read_text())["execution"]
    assert (told["precision"], told["channels_last"], told["deterministic"]) == ("bf16", True, True)
    shown = ns3l("report", out, "--format", "text").out
    assert "digits (own, in bf16)" in " ".join(shown.split())
    slower = ns3l("train", "digits", *SMALL, "--fast", "--precision", "float32", "--out", out)
    assert "execution.precision" in slower.err, "what is said explicitly holds"


def test_your_own_table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = np.random.default_rng(0).standard_normal((60, 3))
    lines = [",".join(map(str, [*row, "ab"[k % 2] if k < 20 else ""])) for k, row in enumerate(rows)]
    (tmp_path / "t.csv").write_text("\n".join(["p,q,r,kind", *lines]))
    ended = ns3l("train", "./t.csv", "--label-column", "kind", "--steps", 2, "--method", "ns3l")
    assert ended.code == 0, ended.err
    told = json.loads((tmp_path / "runs/t/ns3l/seed-0/result.json").read_text())
    assert told["data"] == "t.csv"
    assert told["labels"] == 20


def test_a_run_that_diverges_is_a_failed_run(tmp_path):
    words = (*SMALL[:-1], 30, "--set", "optimizer.lr=1e30", "--set", "optimizer=sgd", "--out", tmp_path / "r")
    ended = ns3l("train", "digits", *words)
    assert ended.code == 1
    assert "not finite at step" in ended.err
    assert "Traceback" not in ended.err
    again = ns3l("train", "digits", *words)
    assert again.code == 1
    assert "nothing was trained" not in again.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--device", "tpu9"), "--device"),
        (("--device", "cuda:99"), "there is no device cuda:99"),
        (("--progress", "loud"), "--progress"),
        (("--schedule", "0"), "--schedule"),
        (("--schedule", "inf"), "--schedule"),
        (("--precision", "int3"), "bf16"),
        (("--set", "suprvised.weight=2"), "supervised.weight"),
        (("--method", "vat+nsl3"), "did you mean 'ns3l'"),
        (("--labels", "5"), "class"),
        (("--labels", "3000"), "1438 labeled rows left"),
        (("--size", "8"), "folders of images"),
    ],
)
def test_wrong_use(words, said, tmp_path):
    ended = ns3l("train", "digits", *words, "--out", tmp_path / "r")
    assert ended.code == 2
    assert said in ended.err.replace(",", "")
    assert not (tmp_path / "r").exists()


def pictures(name: str, shape: tuple[int, ...], test: bool) -> Dataset:
    """Ten classes of black images."""
    x, y = np.zeros((20, *shape), np.uint8), np.arange(20) % 10
    return Dataset(name, x, y, tuple("abcdefghij"), *((x, y) if test else ()))


@pytest.mark.parametrize(
    ("name", "test", "asked", "held_out"),
    [
        ("digits", False, Asked("30"), 0.2),
        ("digits", True, Asked("30"), 0),
        ("digits", False, Asked("30", "0"), 0),
        ("digits", False, Asked("30", settings=("split.validation=7",)), 7),
        ("cifar10", False, Asked("30"), 5000),
        ("cifar10", True, Asked("30"), 5000),
        ("cifar10", True, Asked("30", "0"), 0),
        ("cifar10", True, Asked("30", "9"), 9),
    ],
)
def test_what_is_held_out(name, test, asked, held_out, capsys):
    shape = {"digits": (8, 8, 1), "cifar10": (32, 32, 3)}[name]
    made = training.recipe_for("vat", name, pictures(name, shape, test), asked)
    assert made.split.validation == held_out
    assert ("is held out" in capsys.readouterr().err) == (held_out == 0.2), "what is not asked for is said"


@pytest.mark.parametrize(
    ("words", "how"),
    [
        (("--replicas", 3), {"replicas": 3}),
        (("--tensorboard",), {"tensorboard": True}),
        (("--progress", "plain"), {"progress": "plain"}),
        (("--progress", "plain", "--quiet"), {"progress": "quiet"}),
    ],
)
def test_how_to_train_is_handed_on(monkeypatch, tmp_path, words, how):
    seen = []

    def watched(plans, data, how):
        seen.append(how)
        raise RunError("far enough")

    monkeypatch.setattr("ns3l.train.train", watched)
    ns3l("train", "digits", *SMALL, *words, "--out", tmp_path / "r")
    assert seen == [How(**{"device": "auto", "progress": "auto"} | how)]


def test_schedule_and_protocol_are_those_asked_for():
    data = pictures("cifar10", (32, 32, 3), test=True)
    usual, half = (training.recipe_for("vat", "cifar10", data, Asked(schedule=share)) for share in (1.0, 0.5))
    assert (half.steps, half.schedule, half.protocol) == (usual.steps // 2, 0.5, usual.protocol)
    assert training.recipe_for("vat", "cifar10", data, Asked(protocol="own")).protocol == "own" != usual.protocol


def test_options_of_data_are_handed_on(monkeypatch, tmp_path):
    seen = []

    def watched(*given):
        seen.append(given)
        raise UserError("far enough")

    monkeypatch.setattr(training.options, "read_data", watched)
    words = ("--label-column", "kind", "--size", 8, "--channels", 1, "--fit", "crop", "--skip-damaged")
    ns3l("train", "photos", "--root", tmp_path, *words)
    assert seen == [("photos", tmp_path, "kind", "8", 1, "crop", True)]


def test_names_of_folders():
    made = replace(recipe("supervised", "digits", 30), method="a/b")
    (plan,) = training._plans(made, replace(load("digits"), name="../c"), [0], None)
    assert plan.path == Path("runs/_c/a_b/seed-0")
    assert training._file_name("../a b:c") == "_a_b_c"
    assert training._file_name("...") == "data"


def test_the_demo_is_called_with_its_options(monkeypatch, tmp_path):
    import ns3l.demo

    calls: list[object] = []
    monkeypatch.setattr(ns3l.demo, "demo", lambda *given: calls.append(given))
    from tests.cli.terminal import ns3l as program

    assert program("demo", "--quick", "--seeds", 2, "--out", tmp_path).code == 0
    assert calls == [(tmp_path, (0, 1), True, "digits", None, None)]
