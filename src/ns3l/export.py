"""A trained model for other programs: ONNX, torch.export or plain weights, preprocessing inside, checked on the way."""

import json
import logging
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from ns3l.errors import UserError
from ns3l.model import Model

Format = Literal["onnx", "torch-export", "safetensors"]
ENDINGS: dict[str, str] = {"onnx": ".onnx", "torch-export": ".pt2", "safetensors": ""}
TOLERANCE = 1e-4
"""How far the exported model's logits may be from ours, as a share of the largest where that is above 1."""


class ExportError(UserError):
    """The exported model does not compute what the model does."""


def export(model: Model, path: Path | str, format: Format = "onnx") -> float:
    """Write a model and return the largest difference of its logits from ours, on batches of two sizes.

    `onnx` and `torch-export` map stored rows (uint8 images [N, H, W, C] or float32 features [N, D], any N) to logits;
    class names are in the file's metadata (`classes`, JSON). `safetensors` is a folder that `load_model` reads.
    """
    writers: dict[str, Callable[[Model, Path], float]] = {
        "onnx": _to_onnx,
        "torch-export": _to_program,
        "safetensors": _to_folder,
    }
    if format not in writers:
        raise UserError(f"the formats are {', '.join(writers)}, got {format!r}")
    path = Path(path)
    if format != "safetensors" and path.is_dir():
        raise UserError(f"{path} is a folder; name a file in it, for example {path / f'model{ENDINGS[format]}'}")
    if not path.parent.is_dir():
        raise UserError(f"there is no folder {path.parent} to write {path.name} into")
    return writers[format](model, path)


def _to_onnx(model: Model, path: Path) -> float:
    import onnx
    import onnxruntime
    import onnxscript  # noqa: F401 (what torch.onnx needs, named in the error where it is missing)

    module = model.module().cpu()
    rows = examples(model, 2)
    with _quietly(), torch.no_grad():
        program = torch.onnx.export(
            module, (rows,), dynamo=True, dynamic_shapes=({0: torch.export.Dim("batch")},),
            input_names=["rows"], output_names=["logits"], verbose=False,
        )  # fmt: skip
    assert program is not None
    proto = program.model_proto
    entry = proto.metadata_props.add()
    entry.key, entry.value = "classes", json.dumps(list(model.classes), ensure_ascii=False)
    onnx.checker.check_model(proto)
    with _replacing(path) as part:
        part.write_bytes(proto.SerializeToString())
        session = onnxruntime.InferenceSession(str(part), providers=["CPUExecutionProvider"])
        name = session.get_inputs()[0].name
        return _checked(model, lambda x: torch.from_numpy(session.run(None, {name: x.numpy()})[0]))


def _to_program(model: Model, path: Path) -> float:
    module = model.module().cpu()
    with _quietly(), torch.no_grad():
        batch = torch.export.Dim("batch", min=1)
        program = torch.export.export(module, (examples(model, 3),), dynamic_shapes=({0: batch},))
        with _replacing(path) as part:
            names = json.dumps(list(model.classes), ensure_ascii=False)
            torch.export.save(program, part, extra_files={"classes": names})
            loaded: nn.Module = torch.export.load(part).module()
            return _checked(model, loaded)


def _to_folder(model: Model, path: Path) -> float:
    from ns3l.model import load_model

    folder = path.parent if path.name == "model.safetensors" else path
    if path.suffix == ".safetensors" and folder is path:
        raise UserError(f"weights are kept as model.safetensors beside model.json; name a folder, not {path.name}")
    held = [name for name in ("result.json", "recipe.json") if (folder / name).exists()]
    if held:
        raise UserError(f"{folder} holds a run; name another folder for the copy of its model")
    model.save(folder)
    again = load_model(folder)
    return _checked(model, again.module())


def examples(model: Model, rows: int) -> Tensor:
    """Rows of the stored form to try a model on: noise, as wide as what its preprocessing was fitted on."""
    draw = np.random.default_rng(rows)
    if len(model.shape) == 3:
        return torch.from_numpy(draw.integers(0, 256, (rows, *model.shape), dtype=np.uint8))
    mean, scale = (getattr(model.preprocess, name).cpu().numpy() for name in ("mean", "scale"))
    return torch.from_numpy((draw.standard_normal((rows, *model.shape)) * scale + mean).astype(np.float32))


def _checked(model: Model, exported: Callable[[Tensor], Tensor]) -> float:
    differences = []
    for rows in (1, 7):
        x = examples(model, rows)
        with torch.no_grad():
            ours, theirs = model.logits(x), exported(x)
        if theirs.shape != ours.shape:
            raise ExportError(
                f"the exported model gives {tuple(theirs.shape)} for {rows} rows, not {tuple(ours.shape)}"
            )
        differences.append((theirs - ours).abs().max() / ours.abs().max().clamp(min=1))
    worst = float(torch.stack(differences).max())  # NaN where one is
    if not worst <= TOLERANCE:
        raise ExportError(
            f"the exported model's logits differ by {worst:.1e}, more than {TOLERANCE:g}; nothing is kept"
        )
    return worst


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A file beside the wanted one, renamed to it when all went well."""
    part = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        yield part
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def _quietly() -> Iterator[None]:
    """The exporters' own remarks left out."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stdout(None):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
