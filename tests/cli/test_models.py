"""`ns3l predict`, `evaluate`, `export` and `label` on a trained run."""

import csv
import json
import os

import numpy as np
import pytest
from PIL import Image
from tests.cli.terminal import ns3l
from tests.untrained import untrained

from ns3l import load, load_model
from ns3l.cli import models
from ns3l.inference import Candidate


def test_predict_to_output_and_file(run, tmp_path):
    x = load("digits").x[:5]
    np.save(tmp_path / "x.npy", x)
    shown = ns3l("predict", run, tmp_path / "x.npy")
    assert shown.code == 0
    assert ns3l("predict", run / "model.safetensors", tmp_path / "x.npy", "--out", tmp_path / "p.csv").code == 0
    assert (tmp_path / "p.csv").read_text() == shown.out
    rows = list(csv.DictReader(shown.out.splitlines()))
    best = load_model(run).probabilities(x).argmax(1)
    assert [row["predicted"] for row in rows] == [str(k) for k in best]
    assert list(rows[0]) == ["example", "predicted", *"0123456789"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("none", "x.npy"), "there is no model in none"),
        (("RUN", "x.npy"), "x.npy: no such file"),
        (("RUN", "RUN"), "no image that can be read"),
        (("RUN", "RUN", "--fit", "wide"), "--fit"),
        (("RUN", "RUN", "--out", "."), "is a folder"),
        (("RUN", "RUN", "--out", "none/p.csv"), "there is no folder none"),
    ],
)
def test_predict_wrongly(run, words, said):
    ended = ns3l("predict", *(run if word == "RUN" else word for word in words))
    assert ended.code == 2
    assert said in ended.err
    assert not ended.out


def test_a_prediction_that_breaks_off_leaves_no_file(run, tmp_path):
    np.save(tmp_path / "x.npy", load("digits").x[:5])
    (tmp_path / "x.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:-9])
    assert ns3l("predict", run, tmp_path / "x.npy", "--out", tmp_path / "p.csv").code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["x.npy"]


def test_evaluate(run):
    ended = ns3l("evaluate", run, "digits", "--json")
    assert ended.code == 0
    told = json.loads(ended.out)
    data = load("digits")
    wrong = (load_model(run).probabilities(data.x).argmax(1) != data.y).mean()
    assert told["error"] == pytest.approx(100 * wrong)
    assert "has no test part" in ended.err
    assert "macro F1" in ns3l("evaluate", run, "digits").out


def test_evaluate_other_classes(run, tmp_path):
    np.savez(tmp_path / "d.npz", X=load("digits").x[:6], y=np.array(list("abcabc")))
    ended = ns3l("evaluate", run, tmp_path / "d.npz")
    assert ended.code == 2
    assert "classes that the model does not know: a, b, c" in ended.err
    np.savez(tmp_path / "d.npz", X=load("digits").x[:6, :4], y=np.array([0, 1, 0, 1, 0, 1]))
    assert "takes rows of shape (8, 8, 1)" in ns3l("evaluate", run, tmp_path / "d.npz").err


def test_evaluate_maps_classes_by_name(run, tmp_path):
    data = load("digits")
    some = np.isin(data.y, (3, 8))
    np.savez(tmp_path / "d.npz", X=data.x[some], y=data.y[some])
    told = json.loads(ns3l("evaluate", run, tmp_path / "d.npz", "--json").out)
    wrong = (load_model(run).probabilities(data.x[some]).argmax(1) != data.y[some]).mean()
    assert told["error"] == pytest.approx(100 * wrong)


def test_evaluate_a_test_part_and_leaves_unlabeled_rows_out(run, tmp_path):
    x, y = load("digits").x, load("digits").y
    wrong = load_model(run).probabilities(x).argmax(1) != y
    few = np.where(np.arange(len(y)) < 500, y, -1)
    np.savez(tmp_path / "few.npz", X=x, y=few)
    told = json.loads(ns3l("evaluate", run, tmp_path / "few.npz", "--json").out)
    assert told["error"] == pytest.approx(100 * wrong[:500].mean())
    np.savez(tmp_path / "apart.npz", X=x, y=few, X_test=x[900:], y_test=y[900:])
    told = json.loads(ns3l("evaluate", run, tmp_path / "apart.npz", "--json").out)
    assert (told["part"], told["error"]) == ("test part (897 examples)", pytest.approx(100 * wrong[900:].mean()))


def test_predict_a_folder_with_a_damaged_image_and_a_name_that_is_no_text(run, tmp_path):
    for name in ("a.png", os.fsdecode(b"b\xff.png")):
        Image.fromarray(np.tile(np.arange(0, 240, 15, dtype=np.uint8), (8, 1))).save(tmp_path / name)
    (tmp_path / "c.png").write_bytes(b"no image")
    assert "c.png" in ns3l("predict", run, tmp_path).err
    cut = ns3l("predict", run, tmp_path, "--skip-damaged")
    assert cut.code == 0 and "left out: " in cut.err
    whole = ns3l("predict", run, tmp_path, "--skip-damaged", "--fit", "stretch").out
    assert [row["example"] for row in csv.DictReader(whole.splitlines())] == ["a.png", "b\\udcff.png"]
    assert whole != cut.out


def test_predict_leaves_the_label_column_out(tmp_path):
    untrained((2,)).save(tmp_path / "model")
    (tmp_path / "t.csv").write_text("p,kind,q\n1,7,2\n3,8,4\n")
    assert ns3l("predict", tmp_path / "model", tmp_path / "t.csv").code == 2
    ended = ns3l("predict", tmp_path / "model", tmp_path / "t.csv", "--label-column", "kind")
    assert (ended.code, len(ended.out.splitlines())) == (0, 3)


def test_export(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ended = ns3l("export", run, "--format", "safetensors")
    assert ended.code == 0
    assert "is written" in ended.out
    assert (tmp_path / "model" / "model.json").exists()
    assert ns3l("export", run, "--format", "tflite").code == 2
    monkeypatch.setattr("ns3l.export.TOLERANCE", -1)
    assert ns3l("export", run, "--format", "torch-export").code == 1


def test_label(run, tmp_path):
    ended = ns3l("label", run, "digits", "--count", 4, "--sheet", tmp_path / "s.png", "--out", tmp_path / "l.csv")
    assert ended.code == 0
    assert "4 of 1,747 unlabeled examples" in ended.out
    assert (tmp_path / "s.png").stat().st_size > 1000
    rows = list(csv.DictReader((tmp_path / "l.csv").read_text().splitlines()))
    told = json.loads(ns3l("label", run, "digits", "--count", 4, "--json").out)
    assert [row["example"] for row in rows] == [one["name"] for one in told]
    margins = [one["margin"] for one in told]
    assert margins == sorted(margins)
    words = ("label", run / "model.safetensors", "digits", "--count", 4, "--json", "--by", "entropy")
    spreads = [one["entropy"] for one in json.loads(ns3l(*words).out)]
    assert spreads == sorted(spreads, reverse=True) and spreads[0] > max(one["entropy"] for one in told[1:])
    assert ns3l("label", run, "digits", "--by", "chance").code == 2


def test_names_in_the_list_to_label_are_no_formulas(tmp_path):
    candidate = Candidate(0, "=1+1.png", "a\nb", 0.5, "-x", 0.1, 1.0)
    models._write_candidates(tmp_path / "l.csv", [candidate])
    assert (tmp_path / "l.csv").read_text().splitlines()[1] == "'=1+1.png,0,a\\nb,0.5000,'-x,0.1000,1.0000"
