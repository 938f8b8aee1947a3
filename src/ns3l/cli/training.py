"""`ns3l demo` and `ns3l train`."""

import re
import shlex
import statistics
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from ns3l.cli import options, say
from ns3l.cli.ending import RunFailed, running
from ns3l.cli.options import examples
from ns3l.data import Dataset
from ns3l.errors import UserError
from ns3l.progress import Mode
from ns3l.recipe import Recipe
from ns3l.record import differences, read_json, refuse_file
from ns3l.run import Trained
from ns3l.shared import How, Plan
from ns3l.split import make_split

HELD_OUT = 0.2
"""The share of data without a test part that is held out where labels are held back anyway."""


def add_to(app: typer.Typer) -> None:
    """Register the commands of this file."""
    app.command("demo", epilog=examples("ns3l demo", "ns3l demo --seeds 5 --out my-demo"))(demo)
    app.command(
        "train",
        epilog=examples(
            "ns3l train digits --labels 30 --method vat+ns3l --seeds 5",
            "ns3l train cifar10 --labels 4000 --method ns3l --schedule 0.15 --device cuda",
            "ns3l train photos/ --size 64 --method ns3l --validation 0.1 --out runs/photos",
            "ns3l train table.csv --label-column species --set optimizer.lr=0.001",
            "torchrun --nproc-per-node 2 -m ns3l train cifar10 --labels 4000 --method vat",
        ),
    )(train)


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for report, picture and runs.")] = Path("ns3l-demo"),
    seeds: Annotated[str, typer.Option("--seeds", help="How many splits (two or more), or a list: 0,2,7.")] = "3",
    quick: Annotated[bool, typer.Option("--quick", help="A quarter of the steps: to see that all works.")] = False,
    data: Annotated[str, typer.Option("--data", metavar="digits|fashion-mnist", help="What to learn.")] = "digits",
    root: options.Root = None,
    processes: Annotated[int | None, typer.Option("--processes", min=1, help="Runs at the same time.")] = None,
) -> None:
    """The whole job in about two minutes: five methods on digits with 30 labels, a table, a picture, an HTML report."""
    from ns3l.demo import demo as shown

    shown(out, options.seeds_of(seeds, None), quick, data, root, processes)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Asked:
    """What changes the recipe."""

    labels: str | None = None
    validation: str | None = None
    steps: int | None = None
    schedule: float = 1.0
    protocol: str | None = None
    precision: str | None = None
    settings: Sequence[str] = ()
    fast: bool = False


def train(
    data: options.Data,
    labels: options.Labels = None,
    method: options.Method = "ns3l",
    seeds: options.Seeds = None,
    seed: options.Seed = None,
    steps: Annotated[
        int | None, typer.Option("--steps", min=1, help="Steps; schedules of weights stay as they are.")
    ] = None,
    schedule: options.Schedule = 1.0,
    protocol: options.Protocol = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder of the run, or of seed-0, seed-1 … with several seeds.")
    ] = None,
    settings: options.Settings = None,
    validation: Annotated[
        str | None, typer.Option("--validation", metavar="N|SHARE", help="Labeled examples to hold out.")
    ] = None,
    device: options.Device = "auto",
    precision: Annotated[
        str | None, typer.Option("--precision", metavar="float32|bf16", help="Precision of a step.")
    ] = None,
    fast: options.Fast = False,
    replicas: options.Replicas = None,
    progress: options.Shown = "auto",
    quiet: options.Quiet = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write event files into the run folder.")] = False,
    root: options.Root = None,
    label_column: options.LabelColumn = None,
    size: options.Size = None,
    channels: options.Channels = None,
    fit: options.FitOption = None,
    skip_damaged: options.SkipDamaged = False,
    json: options.AsJson = False,
) -> None:
    """Train a method on data, once for every seed.

    The same command on a folder that was begun continues it, bit for bit; on a complete one it says so.
    The default folder is runs/DATA/METHOD/seed-N.
    """
    numbers = options.seeds_of(seeds, seed)
    how = How(device_of(device), mode_of(progress, quiet), replicas=replicas, tensorboard=tensorboard)
    loaded = options.read_data(data, root, label_column, size, channels, fit, skip_damaged)
    asked = Asked(labels, validation, steps, schedule, protocol, precision, tuple(settings or ()), fast)
    recipe = recipe_for(method, data, loaded, asked)
    plans = _plans(recipe, loaded, numbers, out)
    with redirect_stdout(sys.stderr) if json else nullcontext():
        trained = _trained(plans, loaded, how, say_done=not quiet)
    _tell(trained, json, quiet)


def device_of(text: str) -> str:
    """A device that is there."""
    try:
        How(text).where()
    except UserError as problem:
        raise UserError(f"--device: {problem}") from None
    return text


def mode_of(progress: str, quiet: bool) -> Mode:
    """How visibly to train."""
    match "quiet" if quiet else progress:
        case ("auto" | "plain" | "live" | "quiet") as mode:
            return mode
    raise UserError(f"--progress is auto, plain, live or quiet, got {progress!r}")


def recipe_for(method: str, name: str, data: Dataset, asked: Asked) -> Recipe:
    """The method's recipe for the data, with what was asked for."""
    from ns3l.recipes import FAST, recipe

    if not 0 < asked.schedule < float("inf"):
        raise UserError(f"--schedule is a factor above 0, for example 0.25, got {asked.schedule}")
    labels, validation = options.labels_of(asked.labels), options.held_out(asked.validation)
    settings = options.settings_of(list(asked.settings))
    made = recipe(
        method, options.name_of(name), labels, len(data.classes), data.x.shape[1:], asked.schedule, asked.protocol
    )
    chosen = validation is not None or "split.validation" in settings or made.split.validation
    if not chosen and labels is not None and data.x_test is None:
        say.note(f"{data.name} has no test part: {HELD_OUT:.0%} is held out for validation (--validation 0: nothing)")
        validation = HELD_OUT
    wanted: dict[str, Any] = {
        "split.validation": validation,
        "steps": asked.steps,
        "execution.precision": asked.precision,
    }
    wanted = {path: value for path, value in wanted.items() if value is not None}
    return changed(made, (FAST if asked.fast else {}) | wanted | settings)


def changed(recipe: Recipe, settings: Mapping[str, Any]) -> Recipe:
    """A recipe with settings overridden, a choice of kind (optimizer=sgd) before what it contains (optimizer.lr)."""
    from ns3l.recipes import override

    outer = {path for path in settings if any(other.startswith(f"{path}.") for other in settings)}
    first = {path: value for path, value in settings.items() if path in outer}
    return override(override(recipe, first), {path: value for path, value in settings.items() if path not in outer})


def _plans(recipe: Recipe, data: Dataset, seeds: Sequence[int], out: Path | None) -> list[Plan]:
    folder = out if out is not None else Path("runs") / _file_name(data.name) / _file_name(recipe.method)
    alone = out is not None and len(seeds) == 1 and not any(folder.glob("seed-*"))
    if not alone and ((folder / "recipe.json").exists() or (folder / "result.json").exists()):
        raise UserError(f"{folder} holds one run, so it cannot hold a folder for each seed; give another --out")
    paths = [folder if alone else folder / f"seed-{seed}" for seed in seeds]
    return [Plan(recipe, make_split(data, recipe.split, s), s, path) for s, path in zip(seeds, paths, strict=True)]


def _file_name(text: str) -> str:
    """A name that is a folder on any system: other characters become `_`."""
    return re.sub(r"[^\w.+-]", "_", text).lstrip(".") or "data"


def _trained(plans: Sequence[Plan], data: Dataset, how: How, say_done: bool) -> list[Trained]:
    from ns3l.train import train as train_plans

    done = [p.path for p in plans if p.path and (p.path / "result.json").exists()]
    done = [path for path in done if read_json(path / "result.json").get("status") == "complete"]
    _refuse_other_runs(plans)
    with running():
        trained = train_plans(plans, data, how)
    for path in done if say_done else ():
        print(f"{path} is complete; nothing was trained there.")
    return trained


def _refuse_other_runs(plans: Sequence[Plan]) -> None:
    """A file, or a folder of another recipe, split or seed, is wrong use, seen before anything is trained."""
    for plan in plans:
        if plan.path:
            refuse_file(plan.path)
        wanted = {"recipe": plan.recipe.to_dict(), "split": plan.split.to_dict()}
        found = []
        for name, value in wanted.items():
            if plan.path and (plan.path / f"{name}.json").exists():
                found += differences(read_json(plan.path / f"{name}.json", 2**30), value, f"{name}.")
        if found:
            listed = "\n  ".join([*found[:10], *([f"and {len(found) - 10} more"] if len(found) > 10 else [])])
            raise UserError(
                f"{plan.path} holds another run:\n  {listed}\n"
                "Give the same settings to continue it, or another --out. Nothing was changed."
            )


def _tell(trained: Sequence[Trained], json: bool, quiet: bool) -> None:
    failed = [run for run in trained if run.result["status"] != "complete"]
    if json:
        errors = {f"{part}_error": _summary(trained, part) for part in ("test", "validation")}
        say.as_json({"runs": [_as_plain(run) for run in trained], **errors})
    elif not quiet:
        _show(trained)
    if failed:
        path = failed[0].plan.path
        stored = read_json(path / "result.json") if path else {}
        raise RunFailed(f"{len(failed)} of {len(trained)} runs failed; {path}: {stored.get('reason')}")


def _as_plain(run: Trained) -> dict[str, Any]:
    held = {name: value for name, value in run.result.items() if name != "evaluation"}
    return {"path": str(run.plan.path), **held}


def _chosen(run: Trained, part: str) -> float | None:
    return (run.result.get(f"{part}_error") or {}).get(run.plan.recipe.evaluation.rule)


def _summary(trained: Sequence[Trained], part: str) -> dict[str, Any]:
    """Mean and standard deviation over the seeds, by the recipe's own rule."""
    found = [e for run in trained if run.result["status"] == "complete" and (e := _chosen(run, part)) is not None]
    return {
        "rule": trained[0].plan.recipe.evaluation.rule,
        "n": len(found),
        "mean": statistics.fmean(found) if found else None,
        "std": statistics.stdev(found) if len(found) > 1 else None,
    }


def _show(trained: Sequence[Trained]) -> None:
    recipe = trained[0].plan.recipe
    rows = [
        (
            run.plan.seed,
            len(run.plan.split.labeled),
            say.per_cent(_chosen(run, "validation")),
            say.per_cent(_chosen(run, "test")),
            run.result["status"],
            run.plan.path,
        )
        for run in trained
    ]
    title = f"{recipe.method} on {recipe.data}, {recipe.steps:,} steps, error in % ({recipe.evaluation.rule})"
    columns = ("seed", "labels", "validation", "test", "status", "folder")
    say.table(title, columns, rows, numbers=columns[:4])
    for part in ("validation", "test"):
        found = _summary(trained, part)
        if found["std"] is not None:
            print(f"{part} error {found['mean']:.2f} ± {found['std']:.2f} % over {found['n']} seeds")
    folder = trained[0].plan.path
    if folder is not None:
        print(f"More: ns3l report {shlex.quote(str(folder.parent if len(trained) > 1 else folder))}")
