"""Exported models compute what the model does, with any number of rows, and are refused where they do not."""

import json

import numpy as np
import pytest
import torch
from tests.untrained import noise, untrained

from ns3l import export as exporting
from ns3l.errors import UserError
from ns3l.export import ExportError, export
from ns3l.model import load_model

FORMS = [
    ((8, 8, 1), "small-conv-net", "standardize"),
    ((6, 6, 3), "small-conv-net", "gcn-zca"),
    ((4,), "mlp", "standardize"),
    ((4,), "mlp", "none"),
]
WIDE = [((9, 8, 3), {"name": "wide-resnet", "options": {"depth": 10, "width": 1}}, "scale")]


@pytest.mark.parametrize(("shape", "network", "preprocessing"), [*FORMS[2:3], *WIDE])
def test_onnx(tmp_path, shape, network, preprocessing):
    import onnx
    import onnxruntime

    model = untrained(shape, network=network, preprocessing=preprocessing)
    assert export(model, tmp_path / "m.onnx") < 1e-4
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    x = noise(shape, 11, seed=3)
    (logits,) = session.run(["logits"], {"rows": x})
    np.testing.assert_allclose(logits, model.logits(x).numpy(), atol=1e-4)
    kept = {entry.key: entry.value for entry in onnx.load(tmp_path / "m.onnx").metadata_props}
    assert json.loads(kept["classes"]) == ["cat", "dog", "owl"]
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "network", "preprocessing"), FORMS)
def test_onnx_of_every_preprocessing(tmp_path, shape, network, preprocessing):
    assert export(untrained(shape, network=network, preprocessing=preprocessing), tmp_path / "m.onnx") < 1e-4


@pytest.mark.parametrize(("shape", "network", "preprocessing"), [*FORMS, *WIDE])
def test_torch_export(tmp_path, shape, network, preprocessing):
    model = untrained(shape, network=network, preprocessing=preprocessing)
    assert export(model, tmp_path / "m.pt2", "torch-export") < 1e-6
    names = {"classes": ""}
    program = torch.export.load(tmp_path / "m.pt2", extra_files=names)
    assert json.loads(names["classes"]) == ["cat", "dog", "owl"]
    x = torch.from_numpy(noise(shape, 5))
    torch.testing.assert_close(program.module()(x), model.logits(x))


def test_weights(tmp_path):
    model = untrained((4,))
    assert export(model, tmp_path / "copy", "safetensors") == 0
    x = noise((4,), 5)
    assert np.array_equal(load_model(tmp_path / "copy").probabilities(x), model.probabilities(x))
    export(model, tmp_path / "copy" / "model.safetensors", "safetensors")
    with pytest.raises(UserError, match="name a folder"):
        export(model, tmp_path / "weights.safetensors", "safetensors")
    (tmp_path / "copy" / "recipe.json").write_text("{}")
    with pytest.raises(UserError, match="holds a run"):
        export(model, tmp_path / "copy", "safetensors")


def test_a_model_that_computes_something_else_is_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(exporting, "TOLERANCE", -1.0)
    with pytest.raises(ExportError, match="differ by"):
        export(untrained((4,)), tmp_path / "m.pt2", "torch-export")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("rows", [1, 7])
def test_logits_that_are_no_numbers_are_not_taken_for_equal(rows):
    model = untrained((4,))
    with pytest.raises(ExportError, match="differ by nan"):
        exporting._checked(model, lambda x: model.logits(x) * (float("nan") if len(x) == rows else 1))


def test_wrong_words(tmp_path):
    model = untrained((4,))
    with pytest.raises(UserError, match="formats are onnx"):
        export(model, tmp_path / "m", "tflite")
    with pytest.raises(UserError, match="is a folder"):
        export(model, tmp_path)
    with pytest.raises(UserError, match="no folder"):
        export(model, tmp_path / "none" / "m.onnx")
