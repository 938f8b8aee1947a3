"""Ranks of classes against a plain double loop, in any block size, with ties and classes without examples."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ns3l.neighbors import class_ranks


def brute_force(labeled_x, labeled_y, pool_x, classes) -> list[list[int]]:
    """Python integers and sorted()."""
    flat = [[int(v) for v in row.flatten()] for row in labeled_x]
    out = []
    for row in pool_x:
        here = [int(v) for v in row.flatten()]
        nearest = [float("inf")] * classes
        for other, label in zip(flat, labeled_y, strict=True):
            nearest[label] = min(nearest[label], sum((a - b) ** 2 for a, b in zip(here, other, strict=True)))
        order = sorted(range(classes), key=lambda k: (nearest[k], k))
        out.append([order.index(k) for k in range(classes)])
    return out


def example(seed: int, labeled: int = 9, pool: int = 7, classes: int = 5, high: int = 256):
    rng = np.random.default_rng(seed)
    images = rng.integers(0, high, (labeled + pool, 4, 3, 2), dtype=np.uint8)
    return images[:labeled], rng.integers(0, classes, labeled), images[labeled:], classes


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**20), st.sampled_from([2, 4, 256]), st.integers(1, 12))
def test_equals_brute_force(seed, high, block):
    """`high=2` makes many ties; some classes have no labeled example."""
    given_data = example(seed, high=high)
    ranks = class_ranks(*given_data, block=block)
    assert ranks.dtype == torch.int16
    assert ranks.tolist() == brute_force(*given_data)
    assert torch.equal(ranks, class_ranks(*given_data))


def test_golden_value():
    """Labeled points 0, 1 and 10 of classes 2, 0, 1 (class 3 has none); pool points 2 and 9."""
    x = np.array([[0.0], [1.0], [10.0]], dtype=np.float32)
    assert class_ranks(x, np.array([2, 0, 1]), np.array([[2.0], [9.0]], dtype=np.float32), 4).tolist() == [
        [0, 2, 1, 3],
        [1, 0, 2, 3],
    ]


def test_arrays_tensors_and_memory_maps_are_alike(tmp_path):
    labeled_x, labeled_y, pool_x, classes = example(3)
    np.save(tmp_path / "pool.npy", pool_x)
    mapped = np.load(tmp_path / "pool.npy", mmap_mode="r")
    ranks = class_ranks(labeled_x, labeled_y, pool_x, classes)
    assert torch.equal(ranks, class_ranks(labeled_x, labeled_y, mapped, classes))
    tensors = torch.from_numpy(labeled_x), torch.from_numpy(labeled_y), torch.from_numpy(pool_x)
    assert torch.equal(ranks, class_ranks(*tensors, classes))


def test_float_features_far_from_the_origin():
    """A common offset leaves the ranks alone: float32 distances would not."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 20)).astype(np.float32).round(2)
    near = class_ranks(x[:20], np.arange(20) % 5, x[20:], 5)
    far = class_ranks(x[:20] + np.float64(1e4), np.arange(20) % 5, x[20:] + np.float64(1e4), 5)
    assert torch.equal(near, far)


def test_bad_arguments():
    labeled_x, labeled_y, pool_x, classes = example(0)
    with pytest.raises(ValueError, match=r"one shape, but have \(4, 3, 2\) and \(4, 3, 1\)"):
        class_ranks(labeled_x, labeled_y, pool_x[..., :1], classes)
    with pytest.raises(ValueError, match="one label for each of 9 labeled rows"):
        class_ranks(labeled_x, labeled_y[:-1], pool_x, classes)
    with pytest.raises(ValueError, match=r"in 0 \.\. 4, but go from -1 to -1; leave unlabeled rows out"):
        class_ranks(labeled_x, np.full(9, -1), pool_x, classes)
    with pytest.raises(ValueError, match="2 to 32,768 classes, but got 1"):
        class_ranks(labeled_x, np.zeros(9, dtype=np.int64), pool_x, 1)
    with pytest.raises(ValueError, match=r"classes, but got 5\.0"):
        class_ranks(labeled_x, labeled_y, pool_x, 5.0)
    with pytest.raises(TypeError, match=r"labels must be whole numbers, but they are torch\.float64; pass"):
        class_ranks(labeled_x, labeled_y + 0.5, pool_x, classes)
    for block in (0, -1, 1.5):
        with pytest.raises(ValueError, match=f"number of rows, at least 1, or None, but got {block}"):
            class_ranks(labeled_x, labeled_y, pool_x, classes, block=block)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf, 1e200])
@pytest.mark.parametrize("side", ["labeled", "pool"])
@pytest.mark.parametrize("other", [0.0, 1.0, -1.0])
def test_numbers_that_are_not_finite_are_refused(side, wrong, other):
    """Their distances would order the classes at random: not all of them come out as NaN."""
    rows = {"labeled": np.full((4, 2), other), "pool": np.full((6, 2), other)}
    rows[side][3, 1] = wrong
    with pytest.raises(ValueError, match=f"{side} row 3 has a number that is not finite, or whose square is not"):
        class_ranks(rows["labeled"], np.arange(4), rows["pool"], 4, block=2)


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "labeled", "features"), [(20_000, 2_000, 784), (1_200, 1_200, 27_648)])
def test_memory_stays_bounded(rows, labeled, features):
    """Under 200 MB more, where distances and rows in float64 would take 320 and 125, or 12 and twice 265."""
    script = f"""
import resource
import numpy as np
from ns3l.neighbors import class_ranks
pool = np.random.default_rng(0).integers(0, 256, ({rows}, {features}), dtype=np.uint8)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
class_ranks(pool[:{labeled}], np.arange({labeled}) % 10, pool, 10)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert float(told) < 200
