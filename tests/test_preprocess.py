import copy

import numpy as np
import pytest
import torch

import ns3l.preprocess
from ns3l.errors import DataError, RecipeError
from ns3l.preprocess import PREPROCESSING, GcnZca, Identity, Scale, Standardize


def images(n=40, height=5, width=4, channels=3, seed=0):
    random = np.random.default_rng(seed)
    smooth = random.integers(0, 200, (n, 1, 1, channels)) + random.integers(0, 56, (n, height, width, channels))
    return smooth.astype(np.uint8)


def features(n=50, seed=0):
    x = np.random.default_rng(seed).normal(size=(n, 6)) * [1, 10, 1e-3, 1e3, 0, 0] + [0, 5, 1, 2000, 7.3, 0]
    return x.astype(np.float32)


def gcn_reference(x):
    """One image after the other, in the order H, W, C."""
    rows = []
    for image in x.astype(np.float64):
        flat = image.ravel() - image.mean()
        norm = np.linalg.norm(flat)
        rows.append(55 * flat / norm if norm > 1e-9 else flat)
    return np.array(rows)


def zca_reference(train, x):
    """By singular values of the covariance, as the protocol's authors do."""
    rows = gcn_reference(train)
    left, values, _ = np.linalg.svd(np.cov(rows, rowvar=False) + 0.1 * np.eye(rows.shape[1]))
    whitened = (gcn_reference(x) - rows.mean(0)) @ left @ np.diag(values**-0.5) @ left.T
    return whitened.reshape(x.shape).transpose(0, 3, 1, 2)


def test_scale_is_exact():
    x = np.arange(256, dtype=np.uint8).reshape(4, 8, 8, 1)
    out = Scale().fit(x)(torch.from_numpy(x))
    assert out.dtype == torch.float32 and out.shape == (4, 1, 8, 8)
    assert out.min() == -1 and out.max() == 1
    np.testing.assert_allclose(out.numpy().ravel(), np.arange(256) / 127.5 - 1, rtol=0, atol=1e-7)


def test_identity_keeps_values():
    x = images()
    assert np.array_equal(Identity().fit(x)(torch.from_numpy(x)).numpy(), x.transpose(0, 3, 1, 2))
    rows = features()
    assert np.array_equal(Identity().fit(rows)(torch.from_numpy(rows)).numpy(), rows)


def test_standardize_images_by_channel():
    x = images()
    out = Standardize().fit(x)(torch.from_numpy(x)).numpy()
    for channel in range(3):
        values = x[..., channel].astype(np.float64)
        np.testing.assert_allclose(out[:, channel], (values - values.mean()) / values.std(), atol=1e-5)


def test_standardize_features_with_constant_ones():
    x = features()
    out = Standardize().fit(x)(torch.from_numpy(x)).numpy()
    for j in range(4):
        column = x[:, j].astype(np.float64)
        np.testing.assert_allclose(out[:, j], (column - column.mean()) / column.std(), atol=2e-3)
    assert np.abs(out[:, 4:]).max() < 1e-6


def test_gcn_zca_against_singular_values():
    train, other = images(60, 3, 4, 2), images(7, 3, 4, 2, seed=1)
    other[3] = 9  # a constant image
    out = GcnZca().fit(train)(torch.from_numpy(other)).numpy()
    np.testing.assert_allclose(out, zca_reference(train, other), atol=2e-4)
    assert np.isfinite(out).all()


def test_whitened_covariance_is_the_identity_but_for_the_regularisation():
    train = images(4000, 3, 3, 2)
    out = GcnZca().fit(train)(torch.from_numpy(train)).flatten(1).double().numpy()
    before = np.linalg.eigvalsh(np.cov(gcn_reference(train), rowvar=False))
    after = np.linalg.eigvalsh(np.cov(out, rowvar=False))
    np.testing.assert_allclose(np.sort(after), np.sort(before / (before + 0.1)), atol=1e-4)


def test_golden_gcn_zca():
    x = (np.arange(5 * 2 * 2 * 1) * 37 % 251).astype(np.uint8).reshape(5, 2, 2, 1)
    out = GcnZca().fit(x)(torch.from_numpy(x))
    np.testing.assert_allclose(out[0].flatten(), [-0.373285, -0.274725, 0.091055, 0.556963], atol=1e-4)


@pytest.mark.parametrize("name", ["standardize", "gcn-zca"])
def test_blocks_do_not_matter(name, monkeypatch, tmp_path):
    x = images(33)
    whole = PREPROCESSING[name]().fit(x).state_dict()
    np.save(tmp_path / "x.npy", x)
    monkeypatch.setattr(ns3l.preprocess, "BLOCK_BYTES", 8 * 60 * 5)
    blocks = PREPROCESSING[name]().fit(np.load(tmp_path / "x.npy", mmap_mode="r")).state_dict()
    assert len(list(ns3l.preprocess._blocks(x))) == 7
    for key in whole:
        torch.testing.assert_close(blocks[key], whole[key], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", list(PREPROCESSING))
def test_state_is_all_in_the_buffers(name):
    x = images()
    fitted = PREPROCESSING[name]().fit(x)
    loaded = PREPROCESSING[name]().empty(x.shape[1:])
    loaded.load_state_dict(copy.deepcopy(fitted.state_dict()))
    assert not list(fitted.parameters())
    assert torch.equal(loaded(torch.from_numpy(x)), fitted(torch.from_numpy(x)))


@pytest.mark.parametrize("name", list(PREPROCESSING))
def test_exports_with_any_batch_size(name):
    x = images()
    fitted = PREPROCESSING[name]().fit(x).eval()
    batch = torch.export.Dim("batch", min=1)
    exported = torch.export.export(fitted, (torch.from_numpy(x[:3]),), dynamic_shapes=({0: batch},)).module()
    torch.testing.assert_close(exported(torch.from_numpy(x[:9])), fitted(torch.from_numpy(x[:9])))


@pytest.mark.parametrize("name", list(PREPROCESSING))
def test_rows_do_not_depend_on_their_batch(name):
    x = torch.from_numpy(images())
    fitted = PREPROCESSING[name]().fit(x.numpy())
    torch.testing.assert_close(
        torch.cat([fitted(x[i : i + 1]) for i in range(len(x))]), fitted(x), rtol=1e-4, atol=1e-4
    )


def test_fit_leaves_its_input_and_random_states_alone():
    x = images()
    kept, state = x.copy(), torch.get_rng_state()
    for spec in PREPROCESSING.values():
        spec().fit(x)
    assert np.array_equal(x, kept) and torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("spec", [Scale(), GcnZca()])
def test_image_specs_refuse_features(spec):
    with pytest.raises(DataError, match=f'"{spec.name}" is for images.*use "standardize" or "none"'):
        spec.fit(features())


def test_bad_input():
    with pytest.raises(ValueError, match=r"expected rows of shape \(5, 4, 3\).*got a batch \(40, 3, 5, 4\)"):
        Scale().fit(images())(torch.from_numpy(images()).permute(0, 3, 1, 2))
    with pytest.raises(RecipeError, match="27648 x 27648 matrix"):
        GcnZca().empty((96, 96, 3))
    with pytest.raises(DataError, match="2 or more rows, got 1"):
        GcnZca().fit(images(1))
    with pytest.raises(DataError, match=r"got a row of shape \(2, 2\)"):
        Identity().empty((2, 2))


@pytest.mark.parametrize("largest, together", [(19.0, True), (21.0, False)])
def test_features_in_one_unit_keep_their_proportions(largest, together):
    """Of deviations 1, 1 and 19 all are divided by one number; of 1, 1 and 21 each by its own."""
    x = np.array([[1, 1, largest], [-1, -1, -largest]], np.float32)
    scale = Standardize(by="auto").fit(x).scale.numpy()
    alone = np.array([1, 1, largest])
    np.testing.assert_allclose(scale, np.sqrt(np.square(alone).mean()) if together else alone, rtol=1e-6)
    np.testing.assert_allclose(Standardize(by="feature").fit(x).scale, alone, rtol=1e-6)
    np.testing.assert_allclose(Standardize(by="all").fit(x).scale, np.sqrt(np.square(alone).mean()), rtol=1e-6)
