"""One image file becomes one uint8 row: decoded safely, turned upright, made flat, cut and resized."""

import stat
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np
from PIL import Image, UnidentifiedImageError

from ns3l.errors import DataError

Fit = Literal["crop", "stretch"]

FORMATS = ("PNG", "JPEG", "MPO", "BMP", "DIB", "GIF", "WEBP", "TIFF", "PPM", "AVIF")
"""What is tried on a file, whatever it is called. Formats that start other programs (EPS) are not among them."""

SUFFIXES = frozenset(
    f".{ending}"
    for ending in "png apng jpg jpeg jpe jfif mpo bmp dib gif webp tif tiff ppm pgm pbm pnm avif".split()  # noqa: SIM905
)
MAX_PIXELS = 89_478_485
"""Larger images (about 9,500 pixels square) are taken for decompression bombs."""

COMMON_SIZE_LIMIT = 96
DEFAULT_SIZE = (32, 32)


class ImageFault(Exception):
    """Why one file cannot be used as an image; collected into one `DataError` by the callers."""


@dataclass(frozen=True)
class Header:
    """What the file says of itself: the size as it is looked at (EXIF rotation counted), and whether it is grey."""

    width: int
    height: int
    grey: bool


@dataclass(frozen=True)
class Form:
    """What every image is brought to."""

    height: int
    width: int
    channels: int
    fit: Fit = "crop"

    def __post_init__(self) -> None:
        if self.height < 1 or self.width < 1 or self.height * self.width > MAX_PIXELS:
            raise DataError(f"size: expected positive numbers of pixels, got {self.height} x {self.width}")
        if self.channels not in (1, 3):
            raise DataError(f"channels: expected 1 (grey) or 3 (color), got {self.channels}")
        if self.fit not in ("crop", "stretch"):
            raise DataError(f"fit: expected 'crop' or 'stretch', got {self.fit!r}")

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of a row."""
        return self.height, self.width, self.channels


@dataclass(frozen=True)
class Wanted:
    """What the caller asked for; None leaves it to the images.

    Without a size: the size that all images have, if it is at most 96 pixels, else 32. Without channels: 1 where all
    images are grey, else 3.
    """

    size: int | tuple[int, int] | None = None
    channels: int | None = None
    fit: Fit = "crop"

    @property
    def open(self) -> bool:
        """Whether the form depends on the headers of the images."""
        return self.size is None or self.channels is None

    def form(self, headers: Iterable[Header] = ()) -> Form:
        """The form of every row."""
        found = list(headers) if self.open else []
        height, width = self._size(found)
        grey = bool(found) and all(header.grey for header in found)
        return Form(height, width, self.channels if self.channels is not None else 1 if grey else 3, self.fit)

    def _size(self, found: list[Header]) -> tuple[int, int]:
        if self.size is None:
            sizes = {(header.height, header.width) for header in found}
            common = next(iter(sizes)) if len(sizes) == 1 else DEFAULT_SIZE
            return common if max(common) <= COMMON_SIZE_LIMIT else DEFAULT_SIZE
        size = (self.size, self.size) if isinstance(self.size, int) else tuple(self.size)
        if len(size) != 2 or not all(isinstance(side, int) for side in size):
            raise DataError(f"size: expected one whole number or (height, width), got {self.size!r}")
        return size


@contextmanager
def quiet_decoder() -> Iterator[None]:
    """Silence Pillow's warnings about single files: faults are reported by name instead. Not for worker threads."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\b")
        yield


@cache
def _formats() -> tuple[str, ...]:
    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)


@contextmanager
def opened(source: Path | BinaryIO) -> Iterator[Image.Image]:
    """The lazily opened image; whatever goes wrong inside becomes an `ImageFault` with the reason."""
    try:
        if isinstance(source, Path) and not stat.S_ISREG(source.stat().st_mode):
            raise ImageFault("not a regular file")
        with Image.open(source, formats=_formats()) as image:
            _refuse_size(image)
            yield image
    except ImageFault:
        raise
    except Exception as error:  # decoders of hostile files raise anything: struct.error, SyntaxError, KeyError …
        raise ImageFault(_reason(error)) from error


def _refuse_size(image: Image.Image) -> None:
    width, height = image.size
    if width < 1 or height < 1:
        raise ImageFault(f"has no pixels ({width} x {height})")
    if width * height > MAX_PIXELS:
        raise ImageFault(f"too large ({width} x {height} pixels, at most {MAX_PIXELS} allowed)")


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "not an image, or of an unknown format"
    if isinstance(error, Image.DecompressionBombError):
        return f"too large (at most {MAX_PIXELS} pixels allowed)"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"cannot be decoded: {str(error) or type(error).__name__}"


def read_header(path: Path) -> Header:
    """Size and greyness without decoding the pixels; raises `ImageFault`."""
    with opened(path) as image:
        return header_of(image)


def decode(path: Path, form: Form) -> tuple[Header, np.ndarray]:
    """The header and the uint8 row [H, W, C] of one file; raises `ImageFault`."""
    with opened(path) as image:
        header = header_of(image)
        image.draft("RGB" if form.channels == 3 else "L", (2 * form.width, 2 * form.height))
        return header, to_row(image, form)


def to_row(image: Image.Image, form: Form) -> np.ndarray:
    """The uint8 row of an image: first frame, transparent parts over white, turned upright, resized."""
    mode = "RGB" if form.channels == 3 else "L"
    turn = _turn(image)
    flat = _eight_bit(image)
    if flat.has_transparency_data:
        flat = flat.convert("RGBA")
        flat = Image.alpha_composite(Image.new("RGBA", flat.size, "white"), flat)
    if flat.mode not in ("L", "RGB"):
        flat = flat.convert("RGB")
    flat = flat if flat.mode == mode else flat.convert(mode)
    upright = flat.transpose(turn) if turn is not None else flat
    return np.asarray(_resized(upright, form), dtype=np.uint8).reshape(form.shape)


def _resized(image: Image.Image, form: Form) -> Image.Image:
    target = (form.width, form.height)
    if image.size == target:
        return image
    width, height = image.size
    box = (0.0, 0.0, float(width), float(height))
    if form.fit == "crop":
        scale = min(width / form.width, height / form.height)
        left, top = (width - form.width * scale) / 2, (height - form.height * scale) / 2
        box = (max(left, 0.0), max(top, 0.0), min(width - left, width), min(height - top, height))
    return image.resize(target, Image.Resampling.BICUBIC, box=box, reducing_gap=2.0)


def _eight_bit(image: Image.Image) -> Image.Image:
    """Deeper grey images are scaled, not clipped: 16 bits by their high byte, floats in [0, 1] times 255."""
    if image.mode == "F":
        values = np.asarray(image)
        if not (np.isfinite(values).all() and values.min() >= 0 and values.max() <= 1):
            raise ImageFault("floating-point pixels outside 0 to 1")
        return Image.fromarray(np.rint(values * 255).astype(np.uint8))
    if image.mode == "I" or image.mode.startswith("I;16"):
        deep = np.asarray(image).astype(np.int64)
        if deep.min() < 0 or deep.max() > 65535:
            raise ImageFault("grey values outside 16 bits")
        return Image.fromarray((deep >> 8).astype(np.uint8))
    return image


def header_of(image: Image.Image) -> Header:
    """What an opened image says of itself."""
    width, height = image.size
    turn = _turn(image)
    if turn is not None and turn not in (
        Image.Transpose.FLIP_LEFT_RIGHT,
        Image.Transpose.FLIP_TOP_BOTTOM,
        Image.Transpose.ROTATE_180,
    ):
        width, height = height, width
    return Header(width, height, _is_grey(image))


def _is_grey(image: Image.Image) -> bool:
    if image.mode == "P":
        palette = np.array(image.getpalette("RGB") or [], dtype=np.uint8).reshape(-1, 3)
        return bool((palette == palette[:, :1]).all())
    return image.mode in ("1", "L", "LA", "La", "I", "F") or image.mode.startswith("I;16")


def _turn(image: Image.Image) -> Image.Transpose | None:
    """How EXIF wants the pixels turned; an unreadable EXIF block counts as none."""
    turns = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_270,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_90,
    }
    try:
        return turns.get(image.getexif().get(0x0112, 1))
    except Exception:  # a damaged EXIF block says nothing about the pixels
        return None
