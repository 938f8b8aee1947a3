"""The 1,797 handwritten digits that come with scikit-learn: the default that needs no network."""

import os

import numpy as np

from ns3l.data.dataset import Dataset


def load_digits(root: str | os.PathLike[str] | None = None) -> Dataset:  # noqa: ARG001 (as every known set)
    """Digits: 1,797 images, 8x8 in gray, without an official test part; they are installed with scikit-learn.

    Their 17 gray levels 0..16 are spread over 0..255 (level * 255 / 16, rounded), so that they are scaled like any
    other uint8 image. `root` is not needed.
    """
    from sklearn.datasets import load_digits as bundled

    images, labels = bundled(return_X_y=True)
    x = np.rint(images * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8, 1)
    return Dataset("digits", x, labels.astype(np.int64), tuple("0123456789"))
