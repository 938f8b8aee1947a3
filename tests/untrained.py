"""Models without training: the right form at once, for tests of what is done with models."""

import numpy as np

from ns3l.draw import Draw
from ns3l.model import Model
from ns3l.networks import build
from ns3l.recipes import override, recipe


def untrained(shape, classes=("cat", "dog", "owl"), network=None, preprocessing=None):
    """A model for rows of a shape; its preprocessing is fitted on noise."""
    changes = {"network": network, "preprocessing": preprocessing}
    made = recipe("supervised", "noise", classes=len(classes), shape=shape)
    made = override(made, {path: value for path, value in changes.items() if value is not None})
    rows = noise(shape, 40)
    built = build(lambda: made.network_for(shape), Draw(0)).eval()
    return Model(built, made.preprocessing.fit(rows).eval(), made, tuple(classes), tuple(shape))


def noise(shape, rows, seed=0):
    """Rows as they are stored."""
    draw = np.random.default_rng(seed)
    if len(shape) == 3:
        return draw.integers(0, 256, (rows, *shape), dtype=np.uint8)
    return draw.standard_normal((rows, *shape)).astype(np.float32)
