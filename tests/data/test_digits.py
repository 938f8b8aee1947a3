"""The bundled digits."""

import numpy as np
from sklearn.datasets import load_digits

from ns3l.data import load


def test_digits() -> None:
    data = load("digits")
    truth = load_digits()
    assert data.x.shape == (1797, 8, 8, 1) and data.x.dtype == np.uint8 and data.x_test is None
    assert np.array_equal(data.y, truth.target) and data.classes == tuple("0123456789")
    assert data.x.max() == 255 and len(np.unique(data.x)) == 17
    assert np.abs(data.x[..., 0] / 255 - truth.images / 16).max() <= 0.5 / 255
    assert data.hash == load("digits", root="/nowhere").hash
