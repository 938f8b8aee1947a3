import tracemalloc

import numpy as np
import pytest
from PIL import Image

from ns3l.data.stream import image_names, in_parallel, iterate_images
from ns3l.errors import DataError


@pytest.fixture
def folder(tmp_path):
    for k in range(25):
        path = tmp_path / f"part-{k % 3}" / f"{k:02}.png"
        path.parent.mkdir(exist_ok=True)
        Image.new("RGB", (8 + k, 8), (k, 0, 0)).save(path)
    (tmp_path / "notes.txt").write_text("not an image")
    (tmp_path / ".hidden.png").write_text("not looked at")
    return tmp_path


def test_all_images_come_once_in_order_in_batches(folder):
    parts = list(iterate_images(folder, 8, 3, batch=10))
    names = [name for part, _ in parts for name in part]
    assert [len(rows) for _, rows in parts] == [10, 10, 5]
    assert names == sorted(names) and len(set(names)) == 25
    values = np.concatenate([rows for _, rows in parts])[:, 0, 0, 0]
    assert values.tolist() == [int(name[-6:-4]) for name in names]


def test_lists_and_single_files_keep_their_names_and_order(folder):
    files = [folder / "part-1/04.png", str(folder / "part-0/03.png")]
    ((names, rows),) = iterate_images(files, (4, 6), 1)
    assert names == tuple(map(str, files)) and rows.shape == (2, 4, 6, 1)
    ((names, rows),) = iterate_images(files[0], 4, 3)
    assert names == ("04.png",)


def test_a_damaged_file_stops_or_is_told(folder):
    (folder / "part-1" / "zz.png").write_text("no image")
    with pytest.raises(DataError, match=r"part-1/zz\.png: not an image"):
        list(iterate_images(folder, 8, 3))
    told = []
    parts = list(iterate_images(folder, 8, 3, damaged=lambda name, reason: told.append((name, reason))))
    assert sum(len(rows) for _, rows in parts) == 25
    assert told == [("part-1/zz.png", "not an image, or of an unknown format")]


def test_nothing_there_is_an_error(tmp_path):
    with pytest.raises(DataError, match="no such file or folder"):
        list(iterate_images(tmp_path / "none", 8, 3))
    assert list(iterate_images(tmp_path, 8, 3)) == []
    with pytest.raises(DataError, match="batch"):
        list(iterate_images(tmp_path, 8, 3, batch=0))


def test_links_to_folders_are_not_followed(folder):
    (folder / "part-0" / "loop").symlink_to(folder, target_is_directory=True)
    assert len(list(image_names(folder))) == 25


def test_work_in_parallel_keeps_order_and_is_bounded():
    drawn = []

    def source():
        for k in range(10_000):
            drawn.append(k)
            yield k

    results = in_parallel(lambda k: -k, source(), workers=2)
    assert [next(results) for _ in range(3)] == [0, -1, -2]
    assert len(drawn) < 200
    results.close()
    assert list(in_parallel(lambda k: k + 1, range(100), workers=3)) == list(range(1, 101))


def test_memory_does_not_grow_with_the_number_of_images(folder):
    files = [folder / "part-0" / "00.png"] * 600
    tracemalloc.start()
    for _ in iterate_images(iter(files), 64, 3, batch=20, workers=2):
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 600 * 64 * 64 * 3 / 2
