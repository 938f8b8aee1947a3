"""One picture of a data set: a row of examples for each class and one for the unlabeled part."""

from pathlib import Path
from typing import Any

import numpy as np

from ns3l.data.dataset import Dataset
from ns3l.errors import DataError

GAP = 4
LEAST_TILE = 48
LABEL_WIDTH = 170
MOST_CLASSES = 60
BACKGROUND, INK = (250, 250, 250), (30, 30, 30)


def contact_sheet(dataset: Dataset, path: str | Path, columns: int = 10, empty: bool = True) -> Path:
    """Write a PNG: for each class, then the unlabeled part, up to `columns` examples spread evenly over the set.

    Classes without an example have an empty row, or none where not `empty`.
    """
    from PIL import Image, ImageDraw, ImageFont

    if not dataset.is_image:
        raise DataError(f"{dataset.name}: a contact sheet shows images, and these are features")
    path = Path(path)
    rows = _rows(dataset, columns, empty)
    scale = max(1, -(-LEAST_TILE // max(dataset.x.shape[1:3])))
    height, width = (side * scale for side in dataset.x.shape[1:3])
    line = max(height, 32) + GAP
    sheet = Image.new("RGB", (LABEL_WIDTH + columns * (width + GAP) + GAP, len(rows) * line + GAP), BACKGROUND)
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(13)
    for k, (title, images) in enumerate(rows):
        top = GAP + k * line
        pen.text((GAP, top), title, fill=INK, font=font, spacing=3)
        for column, image in enumerate(images):
            sheet.paste(_tile(image, (width, height)), (LABEL_WIDTH + column * (width + GAP), top))
    part = path.with_name(f".{path.name}.part")
    try:
        sheet.save(part, format="PNG")
        part.replace(path)
    except OSError as error:
        raise DataError(f"{path}: the contact sheet cannot be written: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)
    return path


def _rows(dataset: Dataset, columns: int, empty: bool) -> list[tuple[str, list[np.ndarray]]]:
    rows = []
    for k, label in enumerate(dataset.classes[:MOST_CLASSES]):
        members = np.flatnonzero(dataset.y == k)
        if empty or len(members):
            rows.append((_title(label, len(members)), _spread(dataset.x, members, columns)))
    if len(dataset.classes) > MOST_CLASSES:
        rows.append((f"and {len(dataset.classes) - MOST_CLASSES} more classes", []))
    members = np.flatnonzero(dataset.y < 0)
    if len(members):
        rows.append((_title("(unlabeled)", len(members)), _spread(dataset.x, members, columns)))
    if dataset.x_extra is not None:
        everyone = np.arange(len(dataset.x_extra))
        rows.append((_title("(unlabeled, extra)", len(everyone)), _spread(dataset.x_extra, everyone, columns)))
    return rows


def _title(label: str, count: int) -> str:
    short = label if len(label) <= 22 else label[:21] + "…"
    printable = "".join(letter if letter.isprintable() else "?" for letter in short)
    return f"{printable}\n{count:,}"


def _spread(images: np.ndarray, members: np.ndarray, columns: int) -> list[np.ndarray]:
    chosen = members[np.unique(np.linspace(0, len(members) - 1, min(columns, len(members))).astype(int))]
    return [images[k] for k in chosen]


def _tile(image: np.ndarray, size: tuple[int, int]) -> Any:
    from PIL import Image

    shown = image if image.shape[2] in (3, 4) else image[:, :, 0]
    return Image.fromarray(np.ascontiguousarray(shown)).convert("RGB").resize(size, Image.Resampling.NEAREST)
