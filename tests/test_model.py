"""Models: saved and loaded without running code, refused where they do not fit."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.training import QUIET, clouds, recipe
from torch import nn

from ns3l.errors import RunError
from ns3l.model import load_model
from ns3l.recipe import Network
from ns3l.train import fit


@pytest.fixture(scope="module")
def model():
    return fit(recipe(), clouds(), how=QUIET).models[0]


def test_a_saved_model_predicts_the_same(model, tmp_path):
    model.save(tmp_path / "m")
    x = clouds().x
    for path in (tmp_path / "m", tmp_path / "m/model.safetensors", str(tmp_path / "m")):
        loaded = load_model(path)
        np.testing.assert_array_equal(loaded.probabilities(x), model.probabilities(x))
    assert loaded.classes == ("a", "b", "c") and loaded.shape == (5,)
    assert not loaded.network.training


def test_probabilities_are_of_the_logits_whatever_the_batch(model):
    x = clouds().x
    p = model.probabilities(x)
    np.testing.assert_allclose(p.sum(1), 1, rtol=1e-6)
    torch.testing.assert_close(model.logits(x, batch=7), model.logits(x))
    torch.testing.assert_close(model.module()(torch.from_numpy(x)), model.logits(x))


def test_rows_of_another_shape_are_refused(model):
    with pytest.raises(ValueError, match=r"takes rows of shape \(5,\), got \(4,\)"):
        model.logits(np.zeros((2, 4), np.float32))


def test_what_is_no_model_is_refused(model, tmp_path):
    with pytest.raises(RunError, match="there is no model in"):
        load_model(tmp_path)
    model.save(tmp_path)
    told = json.loads((tmp_path / "model.json").read_text())
    for change, message in [
        ({"shape": [6]}, r"does not describe the model beside it: body.0.weight should have the shape \[8, 6\]"),
        ({"recipe": {}}, "does not describe a model"),
    ]:
        (tmp_path / "model.json").write_text(json.dumps({**told, **change}))
        with pytest.raises(RunError, match=message):
            load_model(tmp_path)
    (tmp_path / "model.json").write_text("{}")
    with pytest.raises(RunError, match="does not describe a model: it has no 'recipe'; name a folder that a run"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("labels",), [1, 2], "2 labels for 3 classes"),
        (("classes",), ["a", "b"], "2 class names, 3 classes"),
        (("recipe", "network", "options"), {"hidden": [10**12]}, "a larger network than"),
        (("recipe", "network", "options"), {"hidden": [1] * 1000}, "a larger network than"),
        (("recipe", "preprocessing"), {"kind": "gcn-zca"}, "whitening of rows of shape"),
    ],
)
def test_a_description_that_asks_for_more_than_there_is_is_refused(model, tmp_path, place, value, message):
    model.save(tmp_path)
    told = json.loads((tmp_path / "model.json").read_text())
    told["shape"] = [40] if "preprocessing" in place else told["shape"]
    within = told
    for name in place[:-1]:
        within = within[name]
    within[place[-1]] = value
    (tmp_path / "model.json").write_text(json.dumps(told))
    with pytest.raises(RunError, match=message):
        load_model(tmp_path)


def test_labels_that_are_numbers_stay_numbers(model, tmp_path):
    replace(model, labels=(3, 5, 8)).save(tmp_path)
    assert set(load_model(tmp_path).predict(clouds().x).tolist()) <= {3, 5, 8}


def test_a_network_of_ones_own_must_be_given_to_load(tmp_path):
    made = recipe("ns3l", network=Network("own"))
    how = QUIET.__class__(**{**QUIET.__dict__, "network": lambda: nn.Linear(5, 3)})
    trained = fit(made, clouds(), out=tmp_path, how=how).models[0]
    with pytest.raises(RunError, match="network of your own class"):
        load_model(tmp_path / "seed-0")
    loaded = load_model(tmp_path / "seed-0", network=nn.Linear(5, 3))
    np.testing.assert_array_equal(loaded.probabilities(clouds().x), trained.probabilities(clouds().x))
