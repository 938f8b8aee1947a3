"""Hugging Face `datasets` objects as data sets; only their methods are used, the package itself is not needed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image

from ns3l.data.arrays import from_arrays
from ns3l.data.dataset import Dataset
from ns3l.data.decode import Fit, Form, Header, ImageFault, Wanted, header_of, opened, to_row
from ns3l.data.frames import LABEL_NAMES, from_frame
from ns3l.errors import DataError

IMAGE_NAMES = ("image", "img", "pixel_values")
UNLABELED_NAMES = ("unlabeled", "unsupervised")


def from_hugging_face(
    dataset: Any,
    label: str | None = None,
    image: str | None = None,
    *,
    test: Any = None,
    unlabeled: Any = None,
    size: int | tuple[int, int] | None = None,
    channels: int | None = None,
    fit: Fit = "crop",
    drop: Sequence[str] = (),
    name: str = "hugging-face",
) -> Dataset:
    """A data set of a `datasets.Dataset`, or of a `DatasetDict` with train and, where there are any, test, unlabeled.

    With an image column, images are decoded into memory as `load_folder` does (without `size` they are opened twice);
    otherwise all other columns, without `drop`, must be numbers. Labels that are -1 or None are unlabeled.
    """
    if isinstance(dataset, Mapping):
        dataset, test, unlabeled = _parts(dataset, test, unlabeled)
    label = label or _label_column(dataset)
    if label not in dataset.column_names:
        raise DataError(f"no column {label!r} for the labels; the columns are {', '.join(dataset.column_names)}")
    classes = getattr(dataset.features[label], "names", None)
    image = image or _image_column(dataset)
    if image is None:
        if unlabeled is not None:
            raise DataError(f"{name}: an unlabeled part is read for images only; append it with labels of -1")
        frame, test_frame = (None if part is None else part.to_pandas() for part in (dataset, test))
        return from_frame(frame, label, test=test_frame, drop=drop, classes=classes, name=name)
    parts = {"train": dataset, "test": test, "unlabeled": unlabeled}
    form = Wanted(size, channels, fit).form(_headers(parts, image) if size is None or channels is None else ())
    rows = {part: None if rows is None else _pixels(rows, image, form, part) for part, rows in parts.items()}
    y_test = None if test is None else list(test[label])
    return from_arrays(
        rows["train"], list(dataset[label]), rows["test"], y_test, rows["unlabeled"], classes=classes, name=name
    )


def _parts(parts: Mapping[str, Any], test: Any, unlabeled: Any) -> tuple[Any, Any, Any]:
    if "train" not in parts:
        raise DataError(f"expected a part called train, found {', '.join(parts) or 'none'}; give one part itself")
    others = [parts[name] for name in UNLABELED_NAMES if name in parts]
    return (
        parts["train"],
        parts.get("test") if test is None else test,
        ((others[0] if others else None) if unlabeled is None else unlabeled),
    )


def _label_column(dataset: Any) -> str:
    found = [column for column in dataset.column_names if column.lower() in LABEL_NAMES]
    if len(found) != 1:
        raise DataError(f"which column holds the labels? say label=… (columns: {', '.join(dataset.column_names)})")
    return str(found[0])


def _image_column(dataset: Any) -> str | None:
    typed = [column for column, feature in dataset.features.items() if type(feature).__name__ == "Image"]
    named = [column for column in dataset.column_names if column.lower() in IMAGE_NAMES]
    if len(typed) > 1:
        raise DataError(f"several image columns, {', '.join(typed)}; say image=…")
    return (typed or named or [None])[0]


def _headers(parts: Mapping[str, Any], image: str) -> list[Header]:
    return [
        header for part, rows in parts.items() if rows is not None for header in _each(rows, image, part, header_of)
    ]


def _pixels(rows: Any, image: str, form: Form, part: str) -> np.ndarray:
    made = np.empty((len(rows), *form.shape), np.uint8)
    for k, row in enumerate(_each(rows, image, part, lambda opened_image: to_row(opened_image, form))):
        made[k] = row
    return made


def _each(rows: Any, image: str, part: str, work: Callable[[Image.Image], Any]) -> Iterator[Any]:
    for k in range(len(rows)):
        try:
            value = rows[k][image]
            if isinstance(value, Mapping) and value.get("bytes"):
                with opened(BytesIO(value["bytes"])) as found:
                    result = work(found)
            else:
                result = work(value if isinstance(value, Image.Image) else Image.fromarray(np.asarray(value)))
        except (ImageFault, OSError, TypeError, ValueError, KeyError) as error:
            raise DataError(f"row {k} of the {part} part: {image!r} holds no usable image: {error}") from error
        yield result
