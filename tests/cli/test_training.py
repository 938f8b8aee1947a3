"""`ns3l train`: folders, continuing, other settings, failures, JSON."""

import json

import numpy as np
import pytest
from tests.cli.terminal import ns3l

from ns3l.cli import training

SMALL = ("--labels", 30, "--method", "supervised", "--steps", 3)


def test_a_complete_run_is_said_to_be_complete(run):
    again = ns3l("train", "digits", *SMALL, "--validation", 20, "--out", run)
    assert again.code == 0
    assert f"{run} is complete; nothing was trained there" in again.out
    assert "More: ns3l report" in again.out


def test_a_folder_of_another_run_is_wrong_use(run):
    for words in (("--steps", 4), ("--seed", 1), ("--method", "ns3l")):
        ended = ns3l("train", "digits", *SMALL, "--validation", 20, *words, "--out", run)
        assert ended.code == 2
        assert "holds another run" in ended.err
    below_a_file = ns3l("train", "digits", *SMALL, "--out", run / "recipe.json" / "run")
    assert below_a_file.code == 2
    assert "recipe.json is a file; a run needs a folder" in below_a_file.err
    several = ns3l("train", "digits", *SMALL, "--seeds", 2, "--out", run)
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
    assert told["validation_error"]["n"] == 2
    assert told["test_error"]["mean"] is None
    errors = [run["validation_error"]["last"] for run in told["runs"]]
    assert told["validation_error"]["std"] == pytest.approx(np.std(errors, ddof=1))
    assert "20% is held out" in ended.err
    assert "step 3/3" in ended.err, "progress beside the document"
    alone = ns3l("train", "digits", *SMALL, "--seed", 4, "--out", "runs/digits/supervised", "--quiet")
    assert alone.code == 0, "a folder of seeds stays one"
    assert not (tmp_path / "runs/digits/supervised/recipe.json").exists()


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


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--device", "tpu9"), "--device"),
        (("--device", "cuda:99"), "there is no device cuda:99"),
        (("--progress", "loud"), "--progress"),
        (("--schedule", "0"), "--schedule"),
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


def test_names_of_folders():
    assert training._file_name("../a b:c") == "_a_b_c"
    assert training._file_name("...") == "data"


def test_the_demo_is_called_with_its_options(monkeypatch, tmp_path):
    import ns3l.demo

    calls: list[object] = []
    monkeypatch.setattr(ns3l.demo, "demo", lambda *given: calls.append(given))
    from tests.cli.terminal import ns3l as program

    assert program("demo", "--quick", "--seeds", 2, "--out", tmp_path).code == 0
    assert calls == [(tmp_path, (0, 1), True, "digits", None, None)]
