import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ns3l.data
from ns3l.data.frames import from_frame, load_table
from ns3l.errors import DataError

pandas = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")


@pytest.fixture
def frame():
    return pandas.DataFrame(
        {"a": [1, 2, 3, 4], "b": [True, False, True, False], "c": [0.5, 1.5, 2.5, 3.5], "label": ["y", "x", None, "x"]}
    )


def test_numbers_are_features_and_gaps_are_unlabeled(frame):
    data = from_frame(frame)
    assert data.x.dtype == np.float32 and data.x.tolist() == [[1, 1, 0.5], [2, 0, 1.5], [3, 1, 2.5], [4, 0, 3.5]]
    assert data.y.tolist() == [1, 0, -1, 0] and data.classes == ("x", "y")


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_files_give_what_the_frame_gives(tmp_path, frame, ending):
    path = tmp_path / f"table.{ending}"
    frame.to_csv(path, index=False) if ending == "csv" else frame.to_parquet(path)
    data = ns3l.data.load(path)
    assert data.hash == from_frame(frame).hash and data.name == "table"


@pytest.mark.parametrize(
    ("labels", "numbers", "classes"),
    [
        ([0, 10, 2, -1], [0, 2, 1, -1], ("0", "2", "10")),
        ([0, None, 2, 10], [0, -1, 1, 2], ("0", "2", "10")),
        (["None", "NA", "", "NA"], [1, 0, -1, 0], ("NA", "None")),
        (["01", "1", "", ""], [0, 1, -1, -1], ("01", "1")),
    ],
)
def test_labels_in_csv(tmp_path, frame, labels, numbers, classes):
    frame["label"] = labels
    frame.to_csv(tmp_path / "t.csv", index=False)
    data = load_table(tmp_path / "t.csv")
    assert data.y.tolist() == numbers and data.classes == classes


@pytest.mark.parametrize(
    "labels",
    [
        ("category", ["y", "x", None, "x"]),
        ("string", ["y", "x", None, "x"]),
        ("Int64", [7, 3, None, 3]),
        ("boolean", [True, False, None, False]),
    ],
)
def test_every_kind_of_label_column_knows_its_gaps(frame, labels):
    frame["label"] = pandas.Series(labels[1], dtype=labels[0])
    assert from_frame(frame).y.tolist() == [1, 0, -1, 0]


def test_nullable_features_and_other_separators(tmp_path, frame):
    frame["a"] = frame["a"].astype("Int64")
    assert from_frame(frame).x[:, 0].tolist() == [1, 2, 3, 4]
    frame.to_csv(tmp_path / "t.csv", sep=";", index=False)
    assert load_table(tmp_path / "t.csv", separator=";").x.shape == (4, 3)


def test_the_split_column_divides_rows(frame):
    frame["split"] = ["train", "train", "unlabeled", " Test "]
    data = from_frame(frame)
    assert data.y.tolist() == [1, 0] and data.y_test.tolist() == [0]
    assert data.x_extra.tolist() == [[3, 1, 2.5]] and data.x_test.tolist() == [[4, 0, 3.5]]
    assert from_frame(frame.rename(columns={"split": "part"}), split="part").hash == data.hash


def test_a_numeric_split_column_is_a_feature(frame):
    frame["split"] = [1, 2, 3, 4]
    assert from_frame(frame).x.shape == (4, 4)


def test_a_test_table_may_order_its_columns_differently(tmp_path, frame):
    frame.to_csv(tmp_path / "train.csv", index=False)
    frame.dropna()[["label", "c", "b", "a"]].to_csv(tmp_path / "test.csv", index=False)
    data = load_table(tmp_path / "train.csv", test=tmp_path / "test.csv")
    assert data.x_test.tolist() == [[1, 1, 0.5], [2, 0, 1.5], [4, 0, 3.5]] and data.y_test.tolist() == [1, 0, 0]


def test_the_label_column_may_have_any_name(tmp_path, frame):
    frame = frame.rename(columns={"label": "kind"})
    with pytest.raises(
        DataError, match=r"none is called label, y, target, class; say label=… \(columns: a, b, c, kind"
    ):
        from_frame(frame)
    assert from_frame(frame, "kind").classes == ("x", "y")
    frame.to_csv(tmp_path / "t.csv", index=False)
    assert load_table(tmp_path / "t.csv", label="kind").classes == ("x", "y")


def test_default_label_names_ignore_letter_case_and_gaps_in_features_are_found(tmp_path):
    (tmp_path / "t.csv").write_text("a,Class\n1,NA\n2,x\n")
    assert load_table(tmp_path / "t.csv").classes == ("NA", "x")
    (tmp_path / "t.csv").write_text("a,Class\n1,NA\nNA,x\n")
    with pytest.raises(DataError, match=r"in 1 of 2 rows, in the columns a \(1\)"):
        load_table(tmp_path / "t.csv")


def with_column(frame, name, values):
    return frame.assign(**{name: values})


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (lambda f: with_column(f, "d", list("pqrs")), {}, r"these columns are not: d \(.*get_dummies.*drop="),
        (lambda f: with_column(f, "d", pandas.to_datetime(["2020"] * 4)), {}, r"these columns are not: d \(datetime"),
        (lambda f: with_column(f, "a", [1, None, 3, np.inf]), {}, r"in 2 of 4 rows, in the columns a \(2\)"),
        (lambda f: with_column(f, "y", 1), {}, "label, y all could be it"),
        (lambda f: f, {"label": "kind"}, "no column 'kind' for the labels; the columns are a, b, c, label"),
        (lambda f: f, {"drop": ["z"]}, "drop: no such columns: z"),
        (lambda f: f, {"drop": ["a", "b", "c"]}, "no feature columns are left"),
        (lambda f: f, {"split": "z"}, "no column 'z' for the split"),
        (lambda f: with_column(f, "split", list("abcd")), {}, "expected the words train, test, unlabeled, found a, b"),
        (lambda f: with_column(f, "split", "test"), {}, "no row says train"),
        (lambda f: f[["a", "a", "label"]], {}, "more than one: a"),
        (lambda f: f, {"test": pandas.DataFrame({"a": [1], "label": ["x"]})}, "missing: b, c"),
    ],
)
def test_tables_that_make_no_sense_are_refused(frame, change, options, message):
    with pytest.raises(DataError, match=message):
        from_frame(change(frame), **options)


def test_columns_can_be_left_out(frame):
    assert from_frame(with_column(frame, "id", list("pqrs")), drop=["id"]).x.shape == (4, 3)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_missing_and_damaged_files_are_told(tmp_path, ending):
    path = tmp_path / f"t.{ending}"
    with pytest.raises(DataError, match="no such file"):
        load_table(path)
    for content in (b"", b"PAR1junk", b"\xff\xfe\x00", b'a,"b\n1'):
        path.write_bytes(content)
        with pytest.raises(DataError):
            load_table(path)


@pytest.mark.parametrize("missing", ["pandas", "pyarrow"])
def test_a_missing_package_says_what_to_install(tmp_path, monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    (tmp_path / "t.csv").write_text("a,label\n1,x\n")
    with pytest.raises(DataError, match=rf"tables need {missing}: pip install 'ns3l\[data\]'"):
        load_table(tmp_path / "t.csv")


@settings(max_examples=60)
@given(text=st.text(alphabet='a1,"\n\r;.\0é-', max_size=60))
def test_any_text_gives_data_or_a_data_error(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("fuzz") / "t.csv"
    path.write_text("a,label\n1,x\n2,y\n" + text, newline="")
    try:
        assert load_table(path).x.shape[1] >= 1
    except DataError as error:
        assert str(error)
