import numpy as np
import pytest
from PIL import Image

from ns3l.data.contact_sheet import LABEL_WIDTH, contact_sheet
from ns3l.data.dataset import Dataset
from ns3l.errors import DataError


def made(n=12, size=(16, 24), channels=3, classes=("red", "green"), **parts):
    x = np.zeros((n, *size, channels), np.uint8)
    y = np.arange(n) % 3 - 1
    for k in range(n):
        x[k, :, :, max(y[k], 0) % channels] = 250 if y[k] >= 0 else 100
    return Dataset(name="made", x=x, y=y, classes=classes, **parts)


def test_each_class_and_the_unlabeled_part_have_a_row(tmp_path):
    path = contact_sheet(made(), tmp_path / "sheet.png", columns=3)
    with Image.open(path) as sheet:
        picture = np.asarray(sheet)
    middle = picture[:, LABEL_WIDTH + 5]
    seen = [tuple(color) for color in np.unique(middle, axis=0).tolist()]
    assert {(250, 0, 0), (0, 250, 0), (100, 0, 0)} <= set(seen)
    assert picture.shape[1] == LABEL_WIDTH + 3 * (48 + 4) + 4
    assert (picture[:, :LABEL_WIDTH] < 100).any()
    assert [entry.name for entry in tmp_path.iterdir()] == ["sheet.png"]


def test_grey_images_many_classes_extra_rows_and_strange_names(tmp_path):
    classes = ("日本\n語 " * 20, *(f"class {k}" for k in range(100)))
    data = made(channels=1, classes=classes, x_extra=np.zeros((3, 16, 24, 1), np.uint8))
    with Image.open(contact_sheet(data, tmp_path / "sheet.png")) as sheet:
        assert sheet.height < 63 * 40


def test_features_and_places_that_cannot_be_written_are_told(tmp_path):
    features = Dataset(name="f", x=np.zeros((2, 3), np.float32), y=np.array([0, 1]), classes=("a", "b"))
    with pytest.raises(DataError, match="shows images, and these are features"):
        contact_sheet(features, tmp_path / "sheet.png")
    with pytest.raises(DataError, match="cannot be written"):
        contact_sheet(made(), tmp_path / "none" / "sheet.png")
