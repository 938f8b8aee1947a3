import io
from dataclasses import dataclass, field

import numpy as np
import pytest
from PIL import Image as Pictures

from ns3l.data.hugging_face import from_hugging_face
from ns3l.errors import DataError


class Image:
    """Stands for the feature type of the same name."""


@dataclass
class ClassLabel:
    names: list[str]


@dataclass
class Table:
    """As much of `datasets.Dataset` as is used."""

    columns: dict[str, list]
    features: dict[str, object] = field(default_factory=dict)

    def __post_init__(self):
        self.features = {name: self.features.get(name) for name in self.columns}

    @property
    def column_names(self):
        return list(self.columns)

    def __len__(self):
        return len(next(iter(self.columns.values())))

    def __getitem__(self, key):
        return self.columns[key] if isinstance(key, str) else {name: rows[key] for name, rows in self.columns.items()}

    def to_pandas(self):
        pandas = pytest.importorskip("pandas")
        return pandas.DataFrame(self.columns)


def pictures(*values, size=(8, 8), mode="L"):
    return [Pictures.new(mode, size, value) for value in values]


def encoded(image):
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return {"bytes": buffer.getvalue(), "path": None}


LABELS = ClassLabel(["zebra", "ant"])


def test_images_labels_and_parts_arrive():
    features = {"picture": Image(), "label": LABELS}
    train = Table({"picture": pictures(10, 20, 30), "label": [1, 0, -1]}, features)
    test = Table({"picture": pictures(40), "label": [1]}, features)
    more = Table({"picture": pictures(50, 60)}, features)
    data = from_hugging_face({"train": train, "test": test, "unsupervised": more, "validation": None})
    assert data.classes == ("zebra", "ant") and data.y.tolist() == [1, 0, -1] and data.y_test.tolist() == [1]
    assert data.x.shape == (3, 8, 8, 1) and data.x[:, 0, 0, 0].tolist() == [10, 20, 30]
    assert data.x_extra[:, 0, 0, 0].tolist() == [50, 60] and data.x_test[0, 0, 0, 0] == 40


def test_images_may_be_bytes_or_arrays_of_any_size():
    rows = [encoded(pictures((9, 8, 7), size=(20, 10), mode="RGB")[0]), np.full((5, 5, 3), 4, np.uint8)]
    data = from_hugging_face(Table({"img": rows, "label": ["b", "a"]}), size=6, channels=3)
    assert data.x[:, 3, 3].tolist() == [[9, 8, 7], [4, 4, 4]] and data.classes == ("a", "b")
    assert from_hugging_face(Table({"img": rows, "label": ["b", "a"]})).x.shape == (2, 32, 32, 3)


def test_a_table_without_images_is_a_frame():
    pytest.importorskip("pyarrow")
    table = Table({"a": [1.0, 2.0, 3.0], "label": [1, 0, -1]}, {"label": LABELS})
    data = from_hugging_face(table, test=Table({"a": [1.5], "label": [0]}))
    assert data.x.tolist() == [[1], [2], [3]] and data.classes == ("zebra", "ant") and data.y.tolist() == [1, 0, -1]
    assert data.x_test.tolist() == [[1.5]]


def test_text_is_refused_with_advice():
    pytest.importorskip("pyarrow")
    with pytest.raises(DataError, match="these columns are not: text"):
        from_hugging_face(Table({"text": ["a", "b"], "label": [0, 1]}))


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        ({"validation": Table({"a": [1]})}, {}, "expected a part called train, found validation"),
        (Table({"img": pictures(1, 2), "kind": [0, 1]}), {}, r"say label=… \(columns: img, kind\)"),
        (Table({"img": [None, None], "label": [0, 1]}), {"size": 8, "channels": 1}, "row 0 of the train part"),
        (Table({"img": [{"bytes": b"x"}] * 2, "label": [0, 1]}), {}, "no usable image: not an image"),
        (Table({"a": pictures(1), "b": pictures(2), "label": [0]}, {"a": Image(), "b": Image()}), {}, "say image=…"),
        (Table({"a": [1, 2], "label": [0, 1]}), {"unlabeled": Table({"a": [1]})}, "for images only"),
        (Table({"img": pictures(1, 2), "label": [0, 1]}), {"label": "kind"}, "no column 'kind'"),
    ],
)
def test_what_cannot_be_read_is_told(table, options, message):
    with pytest.raises(DataError, match=message):
        from_hugging_face(table, **options)


@pytest.mark.external
@pytest.mark.filterwarnings("default")
def test_the_real_package_gives_the_same(tmp_path):
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["zebra", "ant"])})
    made = datasets.Dataset.from_dict({"image": pictures(10, 20, 30), "label": [1, 0, -1]}, features=features)
    data = from_hugging_face(datasets.DatasetDict({"train": made}))
    assert data.x[:, 0, 0, 0].tolist() == [10, 20, 30] and data.y.tolist() == [1, 0, -1]
    assert data.classes == ("zebra", "ant")
    plain = datasets.Dataset.from_dict({"a": [1.0, 2.0], "y": ["p", "q"]})
    assert from_hugging_face(plain).x.tolist() == [[1], [2]]
