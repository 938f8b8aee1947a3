"""From stored rows to network input: scaling, standardising, GCN and ZCA whitening.

A spec is a frozen dataclass: what to do. `spec.fit(x)` looks at rows and returns a module whose buffers are all its
state; `spec.empty(shape)` returns the same module unfitted, for a saved `state_dict`. A module maps uint8 images
[N, H, W, C] to float32 [N, C, H, W] and float features [N, D] to float32 [N, D]. Fitting reads rows in blocks, in
float64, so that a memory-mapped set is never held whole.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from ns3l.errors import DataError, RecipeError

BLOCK_BYTES = 1 << 26  # of float64 held at a time while fitting


class Preprocessing(ABC):
    """What every spec can do. `bounds` are the least and greatest value that it puts out, where they are known."""

    name: ClassVar[str]
    bounds: ClassVar[tuple[float, float] | None] = None

    @abstractmethod
    def fit(self, x: np.ndarray) -> nn.Module:
        """The module for rows like those of x."""

    @abstractmethod
    def empty(self, shape: Sequence[int]) -> nn.Module:
        """The module for rows of a shape, to be filled by `load_state_dict`."""


class Affine(nn.Module):
    """(x - mean) / scale, by channel of an image or by feature."""

    mean: Tensor
    scale: Tensor

    def __init__(self, shape: Sequence[int], mean: np.ndarray | float = 0.0, scale: np.ndarray | float = 1.0):
        super().__init__()
        self.shape = _row_shape(shape)
        size = self.shape[-1]
        self.register_buffer("mean", _single(np.broadcast_to(mean, size)))
        self.register_buffer("scale", _single(np.broadcast_to(scale, size)))

    def forward(self, x: Tensor) -> Tensor:
        """Network input of stored rows."""
        rows = _channels_first(_checked(x, self.shape)).to(self.mean.dtype)
        size = (-1, 1, 1) if rows.ndim == 4 else (-1,)
        return (rows - self.mean.view(size)) / self.scale.view(size)


class Whiten(nn.Module):
    """Global contrast normalisation to norm 55, then a fixed affine map of the flattened image (order C, H, W)."""

    mean: Tensor
    matrix: Tensor

    def __init__(self, shape: Sequence[int], mean: np.ndarray | None = None, matrix: np.ndarray | None = None):
        super().__init__()
        self.shape = _image_shape(shape, "gcn-zca")
        size = math.prod(self.shape)
        self.register_buffer("mean", _single(np.zeros(size) if mean is None else mean))
        self.register_buffer("matrix", _single(np.eye(size) if matrix is None else matrix))

    def forward(self, x: Tensor) -> Tensor:
        """Network input of stored rows."""
        rows = _channels_first(_checked(x, self.shape).to(self.mean.dtype)).flatten(1)
        rows = rows - rows.mean(1, keepdim=True)
        norm = rows.square().sum(1, keepdim=True).sqrt() / GcnZca.norm
        rows = rows / torch.where(norm < GcnZca.least_norm, 1.0, norm)
        height, width, channels = self.shape
        return ((rows - self.mean) @ self.matrix).unflatten(1, (channels, height, width))


@dataclass(frozen=True)
class Identity(Preprocessing):
    """Values as they are stored, as float32 (0 to 255 for images)."""

    name: ClassVar[str] = "none"

    def fit(self, x: np.ndarray) -> nn.Module:
        """Nothing is learned from x but its shape."""
        return self.empty(x.shape[1:])

    def empty(self, shape: Sequence[int]) -> nn.Module:
        """See `Preprocessing.empty`."""
        return Affine(shape)


@dataclass(frozen=True)
class Scale(Preprocessing):
    """0..255 to [-1, 1]. Images only: features have no known range, so they are refused."""

    name: ClassVar[str] = "scale"
    bounds: ClassVar[tuple[float, float] | None] = (-1.0, 1.0)

    def fit(self, x: np.ndarray) -> nn.Module:
        """Nothing is learned from x but its shape."""
        return self.empty(x.shape[1:])

    def empty(self, shape: Sequence[int]) -> nn.Module:
        """See `Preprocessing.empty`."""
        return Affine(_image_shape(shape, self.name), 127.5, 127.5)


@dataclass(frozen=True)
class Standardize(Preprocessing):
    """To mean 0 and standard deviation 1, per channel of images, per feature; constant ones are only centred.

    by: "all" divides every feature by one number, so that the mean square over all values is 1: right where they are
        in one unit (pixels, components, embeddings), whose small ones would be blown up to noise. "auto" does so where
        no feature's deviation is more than 20 times the median one. "feature" divides each by its own.
    """

    by: Literal["feature", "all", "auto"] = "feature"
    name: ClassVar[str] = "standardize"
    one_unit: ClassVar[float] = 20.0

    def __post_init__(self) -> None:
        if self.by not in ("feature", "all", "auto"):
            raise RecipeError(f'by of "standardize" must be feature, all or auto, got {self.by!r}')

    def fit(self, x: np.ndarray) -> nn.Module:
        """Mean and (population) standard deviation in two passes over x."""
        _check_enough(x, 1)
        values = x.size // x.shape[-1]
        mean = sum(_by_channel(block).sum(0) for block in _blocks(x)) / values
        variance = sum(np.square(_by_channel(block) - mean).sum(0) for block in _blocks(x)) / values
        deviation = self._joined(np.sqrt(variance))
        constant = deviation <= 1e-7 * np.abs(mean)  # what float32 cannot tell apart
        return Affine(x.shape[1:], mean, np.where(constant, 1.0, deviation))

    def _joined(self, deviation: np.ndarray) -> np.ndarray:
        together = self.by == "all" or deviation.max() <= self.one_unit * np.median(deviation)
        if self.by == "feature" or not together:
            return deviation
        return np.full_like(deviation, np.sqrt(np.square(deviation).mean()))

    def empty(self, shape: Sequence[int]) -> nn.Module:
        """See `Preprocessing.empty`."""
        return Affine(shape)


@dataclass(frozen=True)
class GcnZca(Preprocessing):
    """Global contrast normalisation and ZCA whitening (Oliver et al. 2018, after pylearn2).

    Of every image its mean is subtracted, then it is scaled to norm 55 (a constant image stays 0). Then
    (x - mean) U (S + 0.1)^(-1/2) U', with U S U' the covariance of the fitted images. Costs one product with a
    [D, D] matrix for D = H * W * C (CIFAR: 3072, 38 MB in a saved model; the fit takes 25 D^2 bytes).
    """

    name: ClassVar[str] = "gcn-zca"
    norm: ClassVar[float] = 55.0
    least_norm: ClassVar[float] = 1e-8
    regularisation: ClassVar[float] = 0.1
    largest: ClassVar[int] = 12_288  # 64 x 64 x 3; above, the matrix alone would take gigabytes

    def fit(self, x: np.ndarray) -> nn.Module:
        """Mean and covariance in two passes over x, one eigendecomposition, all in float64."""
        self._check_size(x.shape[1:])
        _check_enough(x, 2)
        mean = sum(self._normalised(block).sum(0) for block in _blocks(x)) / len(x)
        covariance = np.zeros((len(mean), len(mean)))
        for block in _blocks(x):
            centred = self._normalised(block) - mean
            covariance += centred.T @ centred
        values, vectors = np.linalg.eigh(covariance / (len(x) - 1))
        matrix = (vectors / np.sqrt(np.maximum(values, 0.0) + self.regularisation)) @ vectors.T
        return Whiten(x.shape[1:], mean, matrix)

    def empty(self, shape: Sequence[int]) -> nn.Module:
        """See `Preprocessing.empty`."""
        self._check_size(shape)
        return Whiten(shape)

    def _check_size(self, shape: Sequence[int]) -> None:
        size = math.prod(_image_shape(shape, self.name))
        if size > self.largest:
            raise RecipeError(
                f"gcn-zca needs a {size} x {size} matrix for images {tuple(shape)}; at most {self.largest} values an "
                'image are taken: use smaller images, or preprocessing "standardize" or "scale"'
            )

    def _normalised(self, block: np.ndarray) -> np.ndarray:
        rows = block.transpose(0, 3, 1, 2).reshape(len(block), -1)
        rows = rows - rows.mean(1, keepdims=True)
        norm = np.sqrt(np.square(rows).sum(1, keepdims=True)) / self.norm
        return rows / np.where(norm < self.least_norm, 1.0, norm)


PREPROCESSING: dict[str, type[Preprocessing]] = {spec.name: spec for spec in (Scale, Standardize, GcnZca, Identity)}


def _row_shape(shape: Sequence[int]) -> tuple[int, ...]:
    if len(shape) not in (1, 3) or min(shape) < 1:
        raise DataError(f"rows must be features (D,) or images (H, W, C), got a row of shape {tuple(shape)}")
    return tuple(int(size) for size in shape)


def _image_shape(shape: Sequence[int], name: str) -> tuple[int, ...]:
    if len(shape) != 3:
        raise DataError(f'preprocessing "{name}" is for images (H, W, C), got rows of shape {tuple(shape)}: '
                        'use "standardize" or "none"')  # fmt: skip
    return _row_shape(shape)


def _check_enough(x: np.ndarray, least: int) -> None:
    if len(x) < least:
        raise DataError(f"fitting needs {least} or more rows, got {len(x)}")


def _checked(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    if x.shape[1:] != shape:
        raise ValueError(f"expected rows of shape {shape} (stored order: H, W, C), got a batch {tuple(x.shape)}")
    return x


def _single(values: np.ndarray) -> Tensor:
    return torch.from_numpy(np.array(values, dtype=np.float32))


def _channels_first(x: Tensor) -> Tensor:
    return x.permute(0, 3, 1, 2).contiguous() if x.ndim == 4 else x


def _by_channel(block: np.ndarray) -> np.ndarray:
    return block.reshape(-1, block.shape[-1])


def _blocks(x: np.ndarray) -> Iterator[np.ndarray]:
    rows = max(1, BLOCK_BYTES // (8 * math.prod(x.shape[1:])))
    for start in range(0, len(x), rows):
        yield x[start : start + rows].astype(np.float64)
