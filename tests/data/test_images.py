import logging
import os

import numpy as np
import pytest
from PIL import Image

import ns3l.data
from ns3l.data import images
from ns3l.data.images import load_folder, scan
from ns3l.errors import DataError


def put(path, value=0, size=(8, 8), mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value if mode == "L" else (value, 0, 0)).save(path)


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "pets"
    for k, name in enumerate(["labeled/dog/1.png", "labeled/cat/1.png", "labeled/cat/sub/2.png"]):
        put(root / name, 10 + k)
    for k in range(4):
        put(root / "unlabeled" / f"{k}.png", 20 + k)
    put(root / "test/dog/9.png", 30)
    return root


def test_the_three_parts_become_one_data_set(folder):
    data = ns3l.data.load(folder)
    assert data.name == "pets" and data.classes == ("cat", "dog")
    assert data.examples == (
        *("labeled/cat/1.png", "labeled/cat/sub/2.png", "labeled/dog/1.png"),
        *(f"unlabeled/{k}.png" for k in range(4)),
    )
    assert data.y.tolist() == [0, 0, 1, -1, -1, -1, -1] and data.y_test.tolist() == [1]
    assert data.x[:, 0, 0, 0].tolist() == [11, 12, 10, 20, 21, 22, 23]
    assert data.x_test[:, 0, 0, 0].tolist() == [30]
    assert isinstance(data.x, np.memmap) and data.x.shape == (7, 8, 8, 3)


def test_the_second_load_decodes_nothing_and_is_the_same(folder, monkeypatch):
    first = load_folder(folder).hash
    monkeypatch.setattr("ns3l.data.store.decode", lambda *_: pytest.fail("decoded again"))
    monkeypatch.setattr("ns3l.data.store.read_header", lambda *_: pytest.fail("read again"))
    assert load_folder(folder).hash == first


def test_plain_class_folders_and_train_folders_are_understood(tmp_path):
    for place in ("a", "b/train"):
        put(tmp_path / place / "cat/1.png")
        put(tmp_path / place / "dog/1.png")
    put(tmp_path / "a/unlabeled/2.png")
    assert load_folder(tmp_path / "a").y.tolist() == [0, 1, -1]
    assert load_folder(tmp_path / "b").y.tolist() == [0, 1]


def test_a_csv_of_labels_decides_over_folders(tmp_path):
    for name in ("cat/1.png", "cat/2.png", "dog/3.png", "4.png"):
        put(tmp_path / name)
    (tmp_path / "labels.csv").write_text("\ufefffile,label\ncat/1.png,cat\ncat/2.png,\n./dog/3.png, dog \n", "utf-8")
    data = load_folder(tmp_path)
    assert dict(zip(data.examples, data.y.tolist(), strict=True)) == {
        **{"cat/1.png": 0, "cat/2.png": -1},
        **{"dog/3.png": 1, "4.png": -1},
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("file,label\ngone.png,cat\n", r"1 listed files are not images in the folder: gone\.png"),
        ("file,label\n../../etc/passwd,cat\n", "not images in the folder"),
        ("name,class\n1.png,cat\n", "expected the columns file and label"),
        ("file,label\n1.png,cat\n1.png,dog\n", "listed twice"),
        ("", "expected the columns file and label"),
        ("file,label\n1.png,cat\n", "at least 2 classes"),
    ],
)
def test_a_wrong_csv_of_labels_is_refused(tmp_path, text, message):
    put(tmp_path / "1.png")
    (tmp_path / "labels.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        load_folder(tmp_path)


def test_labels_that_are_no_text_are_refused(tmp_path):
    (tmp_path / "labels.csv").write_bytes(b"file,label\n1.png,\xff\xfe\n")
    with pytest.raises(DataError, match="UTF-8"):
        load_folder(tmp_path)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("test/bird/1.png", "classes without any labeled image: bird"),
        ("unlabelled/1.png", "unlabelled would not be used; expected labeled"),
        ("train/cat/1.png", "keep one of them"),
        ("labeled/1.png", r"images outside any class folder: 1\.png"),
        ("test/1.png", r"images outside any class folder: 1\.png"),
    ],
)
def test_a_misleading_layout_is_refused(folder, name, message):
    put(folder / name)
    with pytest.raises(DataError, match=message):
        scan(folder)


def test_empty_classes_and_missing_folders_are_refused(folder, tmp_path):
    (folder / "labeled" / "bird").mkdir()
    with pytest.raises(DataError, match=r"bird: no images in it"):
        scan(folder)
    with pytest.raises(DataError, match="found nothing"):
        scan(tmp_path / "none")
    with pytest.raises(DataError, match="found a file"):
        scan(folder / "labeled/dog/1.png")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no labeled images found"):
        scan(tmp_path / "empty")


def test_damaged_files_are_named_together_and_skipped_on_request(folder, monkeypatch):
    (folder / "labeled/cat/bad.png").write_text("no image")
    (folder / "unlabeled/empty.jpg").write_bytes(b"")
    (folder / "unlabeled/gone.png").symlink_to(folder / "nowhere.png")
    os.mkfifo(folder / "test/dog/pipe.png")
    with pytest.raises(DataError) as caught:
        load_folder(folder)
    message = str(caught.value)
    assert "4 files cannot be used" in message and "skip_damaged" in message
    for line in ("cat/bad.png: not an image", "empty.jpg: empty file", "gone.png: No such", "pipe.png: not a regular"):
        assert line in message
    monkeypatch.setattr("ns3l.data.store.decode", lambda *_: pytest.fail("decoded again"))
    data = load_folder(folder, skip_damaged=True)
    assert len(data.x) == 7 and len(data.x_test) == 1


def test_a_folder_of_nothing_but_damage_is_an_error(tmp_path):
    for label in "ab":
        (tmp_path / label).mkdir()
        (tmp_path / label / "1.png").write_text("no image")
    with pytest.raises(DataError, match="none of its 2 images can be read"):
        load_folder(tmp_path, skip_damaged=True)


def test_a_mended_file_comes_back(folder):
    (folder / "unlabeled/9.png").write_text("no image")
    assert len(load_folder(folder, skip_damaged=True)) == 7
    put(folder / "unlabeled/9.png", 99)
    assert load_folder(folder).x[-1, 0, 0, 0] == 99


def test_a_read_only_folder_uses_its_store_or_the_cache_and_says_so(folder, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(images, "_writable", lambda place: False)
    with caplog.at_level(logging.WARNING):
        first = load_folder(folder)
    assert "cannot be written; its decoded images are kept in" in caplog.text
    assert not (folder / ".ns3l-store").exists() and list((tmp_path / "cache").rglob("manifest.json"))
    monkeypatch.undo()
    assert load_folder(folder).hash == first.hash
    monkeypatch.setattr(images, "_writable", lambda place: False)
    monkeypatch.setattr(images, "open_store", lambda *_, **__: pytest.fail("built beside a finished store"))
    assert load_folder(folder).hash == first.hash


def test_a_store_that_is_a_link_is_not_followed(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "elsewhere").mkdir()
    (folder / ".ns3l-store").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    load_folder(folder)
    assert not list((tmp_path / "elsewhere").iterdir())


def test_names_that_are_no_text_are_refused(folder):
    with open(os.fsencode(folder / "unlabeled") + b"/\xff.png", "wb"):  # noqa: PTH123 - the name is bytes
        pass
    with pytest.raises(DataError, match="not valid UTF-8; rename it"):
        scan(folder)


def test_names_with_shell_and_markup_characters_are_only_names(tmp_path):
    for label in ("$(touch x)", "<script>", "=1+1", "a b\n"):
        put(tmp_path / label / "; rm -rf *.png")
    assert load_folder(tmp_path).classes == ("$(touch x)", "<script>", "=1+1", "a b\n")


def test_other_files_are_noted_not_read(folder):
    (folder / "labeled/cat/notes.txt").write_text("hello")
    (folder / "labeled/cat/.DS_Store").write_text("hidden")
    assert scan(folder).others == ("labeled/cat/notes.txt",)
