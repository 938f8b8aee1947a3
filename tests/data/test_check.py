import json

import numpy as np
import pytest
from PIL import Image

from ns3l.data.check import check, row_hashes
from ns3l.data.dataset import Dataset

RNG = np.random.default_rng(0)


def features(n, d=3):
    return RNG.standard_normal((n, d)).astype(np.float32)


def made(x, y, classes=("a", "b"), **parts):
    return Dataset(name="made", x=x, y=np.array(y, np.int64), classes=classes, **parts)


def told(report):
    return "; ".join(report.warnings)


@pytest.fixture
def folder(tmp_path):
    for k, name in enumerate(["labeled/cat/1", "labeled/cat/2", "labeled/dog/1", "unlabeled/1", "test/dog/1"]):
        path = tmp_path / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (200, 150), (k * 20, 0, 0)).save(path)
    return tmp_path


def test_a_folder_is_counted_and_its_faults_are_listed(folder):
    (folder / "labeled/dog/bad.png").write_text("no image")
    (folder / "labeled/dog/notes.md").write_text("text")
    (folder / "test/dog/copy.png").write_bytes((folder / "labeled/cat/1.png").read_bytes())
    report = check(folder)
    assert (report.labeled, report.unlabeled, report.extra, report.test) == (3, 1, 0, 2)
    assert report.per_class == {"cat": 2, "dog": 1} and report.per_class_test == {"cat": 0, "dog": 2}
    assert report.kind == "images" and report.shape == (32, 32, 3) and report.imbalance == 2
    assert report.damaged == {"labeled/dog/bad.png": "not an image, or of an unknown format"}
    assert report.ignored == ("labeled/dog/notes.md",) and report.leaked == 1
    assert report.sizes == {"200 x 150": 6}
    words = told(report)
    for part in (
        "1 files cannot be used",
        "labeled/dog/notes.md",
        "1 of 2 test rows are also in the training part",
        "most images are 200 x 150 and are kept at 32 x 32",
        "held out for validation: dog",
    ):
        assert part in words
    assert json.loads(json.dumps(report.to_dict()))["per_class"] == {"cat": 2, "dog": 1}


def test_options_reach_the_folder(folder):
    assert check(folder, size=16, channels=1, skip_damaged=False).shape == (16, 16, 1)


def test_a_clean_set_has_nothing_to_say():
    x = features(20)
    data = made(x, [0, 1] * 8 + [-1] * 4, x_test=features(4), y_test=np.array([0, 1, 0, 1]))
    report = check(data)
    assert report.warnings == () and report.hash == data.hash and report.repeated == report.leaked == 0


def test_files_are_loaded_by_path(tmp_path):
    np.savez(tmp_path / "a.npz", X=features(6), y=[0, 1, 0, 1, -1, -1])
    assert check(tmp_path / "a.npz").labeled == 4


def test_duplicates_are_counted_by_kind():
    x = features(12)
    x[1], x[2], x[3] = x[0], x[0], x[4]
    extra = np.concatenate([x[5:6], features(2)])
    test = np.concatenate([x[6:7], extra[1:2], features(1)])
    data = made(x, [0, 0, 0, 1, 0, *[1] * 7], x_extra=extra, x_test=test, y_test=np.array([0, 0, 1]))
    report = check(data)
    assert (report.repeated, report.conflicting, report.leaked) == (4, 1, 2)
    for part in ("4 training rows repeat", "1 rows occur with two or more", "2 of 3 test rows"):
        assert part in told(report)


def test_every_test_row_that_is_in_training_is_counted():
    """A training row that the test part holds twice is leaked twice; one held twice in training is leaked once."""
    x = features(6)
    data = made(x[[0, 1, 2, 2, 3, 4]], [0, 1, 0, 0, 1, 0], x_test=x[[0, 0, 0, 2, 5]], y_test=np.array([0, 0, 0, 0, 1]))
    assert check(data).leaked == 4


def test_equal_rows_and_only_these_have_equal_hashes():
    images = RNG.integers(0, 2, (200, 2, 2, 1), dtype=np.uint8)
    hashes = row_hashes(images)
    plain = [image.tobytes() for image in images]
    assert len(np.unique(hashes)) == len(set(plain))
    assert all((hashes[0] == other) == (plain[0] == rows) for other, rows in zip(hashes, plain, strict=True))


@pytest.mark.parametrize("name", ["unlabelled", "Unlabeled", "not-labeled", "no_label", "unknown", "None", "nan", "?"])
def test_class_names_that_look_like_unlabeled_are_told(name):
    assert f"{name}: counted as a class" in told(check(made(features(4), [0, 0, 1, 1], ("cat", name))))


@pytest.mark.parametrize("name", ["label", "nanny", "number", "labeled thing"])
def test_other_class_names_are_not(name):
    assert "counted as a class" not in told(check(made(features(4), [0, 0, 1, 1], ("cat", name))))


def test_classes_are_looked_at_as_people_would():
    report = check(made(features(30), [0] * 26 + [1] * 2 + [2] * 2, ("Cat", "cat ", "dog")))
    assert "Cat has 13 times as many labels as cat" in told(report)
    assert "differ only in case or spaces: Cat, cat" in told(report)
    assert "every example is labeled" in told(report) and "no test part" in told(report)
    empty = check(made(features(4), [0, 0, -1, -1]))
    assert "classes without a labeled example: b" in told(empty) and empty.to_dict()["imbalance"] is None


def test_constant_features_are_told():
    x = features(6)
    x[:, 1] = 7
    assert "1 of 3 features have the same value everywhere" in told(check(made(x, [0, 1] * 3)))
