"""`ns3l predict`, `evaluate`, `export` and `label`: what is done with a trained model."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from ns3l.cli import options, say
from ns3l.cli.ending import RunFailed
from ns3l.cli.options import examples
from ns3l.data import Dataset
from ns3l.errors import UserError
from ns3l.model import Model, load_model

if TYPE_CHECKING:
    from ns3l.evaluate import Evaluation


def add_to(app: typer.Typer) -> None:
    """Register the commands of this file."""
    app.command(
        "predict",
        epilog=examples(
            "ns3l predict runs/digits/ns3l/seed-0 new.npy",
            "ns3l predict runs/photos photos/new --out predictions.csv",
            "ns3l predict runs/table/model.safetensors rows.parquet > predictions.csv",
        ),
    )(predict)
    app.command(
        "evaluate",
        epilog=examples("ns3l evaluate runs/digits/ns3l/seed-0 digits", "ns3l evaluate runs/photos photos/ --json"),
    )(evaluate)
    app.command(
        "export",
        epilog=examples(
            "ns3l export runs/digits/ns3l/seed-0 --format onnx --out digits.onnx",
            "ns3l export runs/photos --format torch-export",
            "ns3l export runs/photos --format safetensors --out photos-model",
        ),
    )(export)
    app.command(
        "label",
        epilog=examples(
            "ns3l label runs/photos photos/ --count 40 --sheet next.png",
            "ns3l label runs/digits/ns3l/seed-0 digits --by entropy --out next.csv",
        ),
    )(label)


def predict(
    model: options.ModelPath,
    source: Annotated[
        Path,
        typer.Argument(
            metavar="INPUT", show_default=False, help="A folder of images, an image, .npy, .npz, CSV or Parquet."
        ),
    ],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="A CSV file; default: standard output.")] = None,
    device: options.Device = "auto",
    label_column: Annotated[
        str | None, typer.Option("--label-column", help="A column of a table that is no feature.")
    ] = None,
    fit: options.FitOption = None,
    skip_damaged: options.SkipDamaged = False,
) -> None:
    """Predict every example of an input of any size, as CSV.

    The columns are `example` (file name or row number), `predicted`, and the probability of each class. Names that a
    spreadsheet could take for a formula (= + - @ first) are prefixed with an apostrophe.
    """
    from ns3l import inference

    loaded = _model(model, device)
    damaged = _tell_damaged if skip_damaged else None
    blocks = inference.predict(loaded, source, label=label_column, fit=_fit(fit), damaged=damaged)
    with _target(out) as file:
        count = inference.write_predictions(blocks, loaded.classes, file)
    if out is not None:
        say.note(f"{count:,} predictions in {out}")


def _model(path: Path, device: str) -> Model:
    from ns3l.cli.training import device_of
    from ns3l.shared import How

    return load_model(path, How(device_of(device)).where())


def _fit(fit: str | None) -> Any:
    if fit not in (None, "crop", "stretch"):
        raise UserError(f"--fit is crop or stretch, got {fit!r}")
    return fit or "crop"


def _tell_damaged(name: str, reason: str) -> None:
    say.note(f"left out: {name}: {reason}")


@contextmanager
def _target(out: Path | None) -> Iterator[TextIO]:
    """Standard output, or a file that appears under its name when it is whole."""
    if out is None:
        yield sys.stdout
        sys.stdout.flush()
        return
    if out.is_dir():
        raise UserError(f"{out} is a folder; name a file in it")
    if not out.parent.is_dir():
        raise UserError(f"there is no folder {out.parent} to write {out.name} into")
    part = out.with_name(f".{out.name}.part")
    try:
        with part.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file:
            yield file
        part.replace(out)
    finally:
        part.unlink(missing_ok=True)


def evaluate(
    model: options.ModelPath,
    data: options.Data,
    device: options.Device = "auto",
    root: options.Root = None,
    label_column: options.LabelColumn = None,
    fit: options.FitOption = None,
    skip_damaged: options.SkipDamaged = False,
    json: options.AsJson = False,
) -> None:
    """How good a model is on the test part of data; where there is none, on all labeled examples, and says so."""
    from ns3l.evaluate import evaluate as scores
    from ns3l.evaluate import logits_of

    loaded = _model(model, device)
    found = _data_for(loaded, data, root, label_column, fit, skip_damaged)
    part, x, y = _labeled_part(found, loaded)
    result = scores(logits_of(loaded.network, loaded.preprocess, x), y)
    if json:
        say.as_json({"part": part, "classes": list(loaded.classes), **result.to_dict()})
    else:
        _show(result, loaded, f"{data}, {part}")


def _data_for(
    model: Model, data: str, root: Path | None, label: str | None, fit: str | None, skip_damaged: bool
) -> Dataset:
    """Data in the form that the model takes."""
    folder = options.is_folder(data) and len(model.shape) == 3
    size, channels = ((model.shape[0], model.shape[1]), model.shape[2]) if folder else (None, None)
    found = options.read_data(data, root, label, size, channels, fit, skip_damaged)
    if found.x.shape[1:] != model.shape:
        raise UserError(f"the model takes rows of shape {model.shape}, {data} has {found.x.shape[1:]}")
    return found


def _labeled_part(data: Dataset, model: Model) -> tuple[str, Any, Any]:
    import numpy as np
    import torch

    missing = [name for name in data.classes if name not in model.classes]
    if missing:
        raise UserError(
            f"{data.name} has classes that the model does not know: {', '.join(missing[:10])}; "
            f"it knows {', '.join(model.classes[:10])}"
        )
    place = np.array([model.classes.index(name) for name in data.classes])
    if data.x_test is not None and data.y_test is not None:
        return f"test part ({len(data.x_test):,} examples)", data.x_test, torch.from_numpy(place[data.y_test])
    known = np.flatnonzero(data.y >= 0)
    say.note(f"{data.name} has no test part: its labeled examples are evaluated, the model may have learned from them")
    return f"labeled part ({len(known):,} examples)", data.x[known], torch.from_numpy(place[data.y[known]])


def _show(result: "Evaluation", model: Model, title: str) -> None:
    told = [
        ("error", f"{result.error:.2f} %"),
        ("macro F1", f"{result.macro_f1:.4f}"),
        *((name, f"{value:.4f}") for name in ("nll", "brier", "ece") if (value := getattr(result, name)) is not None),
    ]
    say.table(title, ("score", "value"), told, numbers=("value",))
    rows = zip(model.classes, map(say.per_cent, result.per_class_error), strict=True)
    say.table("error of each class in %", ("class", "error"), rows, numbers=("error",))


def export(
    model: options.ModelPath,
    format: Annotated[
        str, typer.Option("--format", "-f", metavar="onnx|torch-export|safetensors", help="What to write.")
    ] = "onnx",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Default: model.onnx, model.pt2, or the folder model.")
    ] = None,
) -> None:
    """Write a model for other programs, preprocessing inside, and check that it computes the same.

    The exported model takes rows as they are stored (uint8 images [N, H, W, C] or float32 features [N, D]).
    """
    from ns3l import export as exporting

    if format not in exporting.ENDINGS:
        raise UserError(f"--format is {', '.join(exporting.ENDINGS)}, got {format!r}")
    target = out or Path(f"model{exporting.ENDINGS[format]}")
    try:
        difference = exporting.export(load_model(model), target, format)  # type: ignore[arg-type]
    except exporting.ExportError as problem:
        raise RunFailed(str(problem)) from problem
    print(f"{target} is written; its logits differ from the model's by at most {difference:.1e}")


def label(
    model: options.ModelPath,
    data: options.Data,
    by: Annotated[str, typer.Option("--by", metavar="margin|entropy", help="What being unsure means.")] = "margin",
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="How many examples.")] = 20,
    sheet: Annotated[Path | None, typer.Option("--sheet", metavar="PNG", help="Also a picture of them.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="CSV", help="Also a CSV file.")] = None,
    device: options.Device = "auto",
    root: options.Root = None,
    label_column: options.LabelColumn = None,
    fit: options.FitOption = None,
    skip_damaged: options.SkipDamaged = False,
    json: options.AsJson = False,
) -> None:
    """List the unlabeled examples that are most worth a label next: those of which the model is least sure."""
    from ns3l import inference

    if by not in ("margin", "entropy"):
        raise UserError(f"--by is margin or entropy, got {by!r}")
    loaded = _model(model, device)
    found = _data_for(loaded, data, root, label_column, fit, skip_damaged)
    run = model.parent if model.suffix == ".safetensors" else model
    rows = inference.unlabeled_rows(found, run)
    chosen = inference.worth_labeling(loaded, found, rows, by, count)  # type: ignore[arg-type]
    if sheet is not None:
        inference.sheet(loaded, found, chosen, sheet)
    if out is not None:
        _write_candidates(out, chosen)
    if json:
        say.as_json([asdict(candidate) for candidate in chosen])
    else:
        _list_candidates(chosen, len(rows), by)


COLUMNS = ("example", "row", "predicted", "probability", "second", "margin", "entropy")


def _cells(candidate: Any) -> list[str]:
    return [
        candidate.name,
        str(candidate.row),
        candidate.predicted,
        f"{candidate.probability:.4f}",
        candidate.second,
        f"{candidate.margin:.4f}",
        f"{candidate.entropy:.4f}",
    ]


def _list_candidates(chosen: Any, pool: int, by: str) -> None:
    title = f"{len(chosen)} of {pool:,} unlabeled examples, by {by}"
    say.table(title, COLUMNS, map(_cells, chosen), numbers=("row", "probability", "margin", "entropy"))


def _write_candidates(out: Path, chosen: Any) -> None:
    import csv

    from ns3l.inference import harmless

    with _target(out) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows([harmless(cell) for cell in _cells(candidate)] for candidate in chosen)
