"""Prediction from every kind of input equals the model's own; in blocks; harmless names; what to label next."""

import csv
import io
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from tests.untrained import noise, untrained

from ns3l import inference
from ns3l.data.contact_sheet import GAP
from ns3l.data.dataset import Dataset
from ns3l.errors import DataError
from ns3l.split import SplitRequest, make_split


def read(model, source, **options):
    """Predictions as rows of text, header first."""
    file = io.StringIO()
    count = inference.write_predictions(inference.predict(model, source, **options), model.classes, file)
    rows = list(csv.reader(io.StringIO(file.getvalue())))
    assert count == len(rows) - 1
    return rows


def probabilities(rows):
    """The numbers of such rows."""
    return np.array([[float(cell) for cell in row[2:]] for row in rows[1:]])


@pytest.fixture
def features():
    return untrained((4,))


@pytest.fixture
def images():
    return untrained((6, 5, 3), network="small-conv-net")


def test_arrays_in_blocks_equal_the_model(features, tmp_path, monkeypatch):
    monkeypatch.setattr(inference, "MOST_ROWS", 7)
    x = noise((4,), 23, seed=1)
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "x.npz", X=x.astype(np.float64), y=np.zeros(23))
    np.savez_compressed(tmp_path / "alone.npz", x)
    for name in ("x.npy", "x.npz", "alone.npz"):
        rows = read(features, tmp_path / name)
        assert rows[0] == ["example", "predicted", "cat", "dog", "owl"]
        assert [row[0] for row in rows[1:]] == [str(k) for k in range(23)]
        np.testing.assert_allclose(probabilities(rows), features.probabilities(x), rtol=1e-4, atol=1e-6)
        best = features.probabilities(x).argmax(1)
        assert [row[1] for row in rows[1:]] == [features.classes[k] for k in best]


def test_images_as_levels_or_fractions_are_the_same(images, tmp_path, monkeypatch):
    monkeypatch.setattr(inference, "MOST_ROWS", 2)
    x = noise((6, 5, 3), 5)
    x[:2] = x[:2] % 2
    x[2:] = np.maximum(x[2:], 9)
    np.save(tmp_path / "levels.npy", x.astype(np.float32))
    np.save(tmp_path / "fractions.npy", (x / 255).astype(np.float32))
    np.save(tmp_path / "bytes.npy", x)
    expected = read(images, tmp_path / "bytes.npy")
    assert read(images, tmp_path / "levels.npy") == expected
    assert read(images, tmp_path / "fractions.npy") == expected


def test_a_folder_of_images_by_file_name(images, tmp_path):
    x = noise((6, 5, 3), 3)
    for k, name in enumerate(["a.png", "deep/b.png", "=c.png"]):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.fromarray(x[k]).save(tmp_path / name)
    rows = read(images, tmp_path)
    assert [row[0] for row in rows[1:]] == ["'=c.png", "a.png", "deep/b.png"]
    np.testing.assert_allclose(probabilities(rows), images.probabilities(x[[2, 0, 1]]), rtol=1e-4, atol=1e-6)
    (tmp_path / "broken.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"broken\.png"):
        read(images, tmp_path)
    told = []
    assert len(read(images, tmp_path, damaged=lambda *fault: told.append(fault))) == 4
    assert told[0][0] == "broken.png"


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_tables_leave_out_labels(features, tmp_path, ending, monkeypatch):
    import pandas

    monkeypatch.setattr(inference, "MOST_ROWS", 4)
    x = noise((4,), 9)
    frame = pandas.DataFrame(x, columns=list("abcd"))
    path = tmp_path / f"t.{ending}"

    def write(frame):
        frame.to_csv(path, index=False) if ending == "csv" else frame.to_parquet(path)
        return path

    expected = features.probabilities(x)
    for extra in ({}, {"label": "cat"}, {"Target": None, "split": "test"}):
        rows = read(features, write(frame.assign(**extra)))
        np.testing.assert_allclose(probabilities(rows), expected, rtol=1e-4, atol=1e-6)
    rows = read(features, write(frame.assign(kind="x")), label="kind")
    np.testing.assert_allclose(probabilities(rows), expected, rtol=1e-4, atol=1e-6)
    with pytest.raises(DataError, match=r"takes 4 features, the table has 5 columns"):
        read(features, write(frame.assign(e=1)))
    with pytest.raises(DataError, match=r"not: b"):
        read(features, write(frame.assign(b="text")))
    with pytest.raises(DataError, match=r"rows 4 to 7.*NaN"):
        read(features, write(frame.assign(a=frame.a.where(frame.index != 6))))


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("none.npy", None, "no such file"),
        ("text.npy", b"hello, this is no array", "damaged"),
        ("cut.npy", "cut", "cut off"),
        ("wide.npy", np.zeros((2, 5), np.float32), r"takes rows of shape \(4,\)"),
        ("flat.npy", np.zeros(3, np.float32), "expected rows"),
        ("empty.npy", np.zeros((0, 4), np.float32), "no rows"),
        ("nan.npy", np.full((2, 4), np.nan, np.float32), "NaN"),
        ("objects.npy", np.array([[None] * 4]), "Python objects"),
        ("columns.npy", np.zeros((3, 4), np.float32, order="F"), "ascontiguousarray"),
        ("archive.npz", b"PK no", "damaged"),
        ("other.txt", b"hm", "give .npy, .npz, CSV or Parquet"),
    ],
)
def test_inputs_that_cannot_be_read(features, tmp_path, name, content, words):
    path = tmp_path / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, str):
        np.save(path, np.zeros((9, 4), np.float32))
        path.write_bytes(path.read_bytes()[:-20])
    elif content is not None:
        np.save(path, content, allow_pickle=True)
    with pytest.raises(DataError, match=words):
        read(features, path)


def test_two_unnamed_arrays_are_ambiguous(features, tmp_path):
    np.savez(tmp_path / "two.npz", a=np.zeros((2, 4)), b=np.zeros((2, 4)))
    with pytest.raises(DataError, match="expected an array X"):
        read(features, tmp_path / "two.npz")


@pytest.mark.parametrize("text", ["=1+1", "+cmd", "-cmd", "@SUM(A1)", "  =x"])
def test_formulas_are_prefixed(text):
    assert inference.harmless(text) == f"'{text}"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\tx", "'\\tx"),
        ("\rx", "'\\rx"),
        ("a\r\nb", "a\\r\\nb"),
        ("a\0\x1b[2J", "a\\x00\\x1b[2J"),
        ("a\x85\u2028b\udc80", "a\\x85\\u2028b\\udc80"),
    ],
)
def test_control_characters_are_written_out(text, shown):
    assert inference.harmless(text) == shown


@pytest.mark.parametrize("text", ["-1", "+2.5", "cat", "a=b", "", "1", "it's", "日本 é", "a\\nb"])
def test_other_names_stay(text):
    assert inference.harmless(text) == text


def test_class_names_are_harmless_in_header_and_cells(tmp_path):
    model = untrained((4,), classes=("=a,b", '+"x"'))
    np.save(tmp_path / "x.npy", noise((4,), 3))
    rows = read(model, tmp_path / "x.npy")
    assert rows[0][2:] == ["'=a,b", '\'+"x"']
    assert {row[1] for row in rows[1:]} <= set(rows[0][2:])


def test_a_name_of_several_lines_stays_in_one_row(tmp_path):
    model = untrained((4,), classes=("a\rb", 'c\n"d",\0'))
    out = io.StringIO()
    names = ["one", "two\rlines", "three"]
    block = inference.Predicted(names, np.array([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]]))
    assert inference.write_predictions([block], model.classes, out) == 3
    assert len(out.getvalue().splitlines()) == 4
    rows = list(csv.reader(io.StringIO(out.getvalue())))
    assert rows[0] == ["example", "predicted", "a\\rb", 'c\\n"d",\\x00']
    assert [row[:2] for row in rows[1:]] == [["one", "a\\rb"], ["two\\rlines", rows[0][3]], ["three", "a\\rb"]]


def dataset(x, y, **more):
    """Rows with labels for the three classes."""
    return Dataset("some", x, np.asarray(y, np.int64), ("cat", "dog", "owl"), **more)


@pytest.mark.parametrize("by", ["margin", "entropy"])
def test_the_least_sure_come_first(features, by, monkeypatch):
    monkeypatch.setattr(inference, "MOST_ROWS", 8)
    x = noise((4,), 30)
    extra = noise((4,), 10, seed=2)
    data = dataset(x, [0, 1, 2] * 5 + [-1] * 15, x_extra=extra)
    rows = inference.unlabeled_rows(data)
    assert rows.tolist() == list(range(15, 40))
    found = inference.worth_labeling(features, data, rows, by, 6)
    p = features.probabilities(np.concatenate([x, extra]))[rows].astype(np.float64)
    ordered = np.sort(p, axis=1)
    score = ordered[:, -1] - ordered[:, -2] if by == "margin" else (p * np.log(p)).sum(1)
    assert [candidate.row for candidate in found] == rows[np.argsort(score)[:6]].tolist()
    assert found[0].probability == pytest.approx(p[found[0].row - 15].max(), rel=1e-5)
    assert len(inference.worth_labeling(features, data, rows, by, 99)) == 25


def test_a_run_on_the_same_data_tells_which_labels_it_used(tmp_path):
    from ns3l.record import write_json

    data = dataset(noise((4,), 30), [0, 1, 2] * 10)
    split = make_split(data, SplitRequest(labels=6, validation=6), 0)
    write_json(tmp_path / "recipe.json", {})
    write_json(tmp_path / "split.json", split.to_dict())
    rows = inference.unlabeled_rows(data, tmp_path)
    assert len(rows) == 18
    assert not np.intersect1d(rows, np.concatenate([split.labeled, split.validation])).size
    other = dataset(noise((4,), 30, seed=3), [0, 1, 2] * 9 + [-1] * 3)
    assert inference.unlabeled_rows(other, tmp_path).tolist() == [27, 28, 29]


def test_nothing_to_label(features):
    data = dataset(noise((4,), 3), [0, 1, 2])
    with pytest.raises(DataError, match="no unlabeled examples"):
        inference.worth_labeling(features, data, inference.unlabeled_rows(data))


def test_a_sheet_of_candidates(images, tmp_path):
    data = dataset(noise((6, 5, 3), 6), [0, 1, 2, -1, -1, -1])
    found = inference.worth_labeling(images, data, np.arange(3, 6))
    inference.sheet(images, data, found, tmp_path / "s.png")
    with Image.open(tmp_path / "s.png") as picture:
        assert picture.size[0] > 300


def test_a_sheet_has_a_row_for_each_predicted_class_alone(images, tmp_path):
    data = dataset(noise((6, 5, 3), 3), [0, 1, 2])
    alone = inference.Candidate(0, "0", "dog", 0.5, "cat", 0.1, 1.0)
    inference.sheet(images, data, [alone, replace(alone, row=1)], tmp_path / "one.png")
    inference.sheet(images, data, [alone, replace(alone, row=1, predicted="owl")], tmp_path / "two.png")
    with Image.open(tmp_path / "one.png") as one, Image.open(tmp_path / "two.png") as two:
        assert two.height - GAP == 2 * (one.height - GAP)


PROGRAM = """
import sys
import torch
from ns3l.cli import main
from ns3l.run import memory_used
try:
    main(["predict", *sys.argv[1:]])
finally:
    print(memory_used(torch.device("cpu")), file=sys.stderr)
"""


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["npy", "csv"])
def test_a_million_rows_in_under_a_gigabyte(tmp_path, ending):
    width = {"npy": 64, "csv": 10}[ending]
    untrained((width,)).save(tmp_path / "model")
    path = tmp_path / f"big.{ending}"
    if ending == "npy":
        np.lib.format.open_memmap(path, "w+", np.float32, (10**6, width)).flush()
    else:
        block = "\n".join(["0.5," * 9 + "0.25,x"] * 10_000) + "\n"
        path.write_text(",".join([*"abcdefghij", "label"]) + "\n" + block * 100)
    words = [sys.executable, "-c", PROGRAM, str(tmp_path / "model"), str(path), "--out", str(tmp_path / "p.csv")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert 100 < float(done.stderr.split()[-1]) < 1000, "megabytes"
    with (tmp_path / "p.csv").open() as lines:
        assert sum(1 for _ in lines) == 10**6 + 1
