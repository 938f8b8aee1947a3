"""`ns3l study`, `reproduce` and `search`: many runs and what they show."""

import json as json_module
import shlex
import sys
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ns3l.cli import options, say
from ns3l.cli.ending import RunFailed
from ns3l.cli.options import examples
from ns3l.cli.training import HELD_OUT, Asked, device_of, mode_of, recipe_for
from ns3l.errors import UserError
from ns3l.shared import How

if TYPE_CHECKING:
    from ns3l.executors import Executor
    from ns3l.study import Study

Out = Annotated[Path | None, typer.Option("--out", "-o", help="Folder for all runs.")]
Methods = Annotated[str, typer.Option("--methods", "-m", help="Methods, separated by commas.")]
Rows = Annotated[
    str | None,
    typer.Option("--rows", metavar="A,B,…", help="Only these rows, by label or method, and the supervised one."),
]
Grid = Annotated[
    list[str] | None,
    typer.Option("--grid", metavar="PATH=A,B,…", help="Values of a setting to try; may be given several times."),
]
Where = Annotated[str, typer.Option("--executor", metavar="local|processes|ray", help="Where runs are carried out.")]
Address = Annotated[str | None, typer.Option("--address", help="Of a Ray cluster; default: one on this machine alone.")]
Workers = Annotated[int | None, typer.Option("--workers", min=1, help="How many processes; default: by cores.")]
Threads = Annotated[int, typer.Option("--threads", min=1, help="Threads of each process or Ray task.")]
Gpus = Annotated[float, typer.Option("--gpus", min=0, help="GPUs of each Ray task.")]
NoBaseline = Annotated[bool, typer.Option("--no-baseline", help="Do not add a supervised row of the same budget.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the plan; train nothing.")]
Measure = Annotated[
    bool, typer.Option("--measure", help="With --dry-run: take the time of a few steps of each kind of run.")
]


def add_to(app: typer.Typer) -> None:
    """Register the commands of this file."""
    app.command(
        "study",
        epilog=examples(
            "ns3l study digits --labels 30 --methods pl,ns3l,vat+ns3l --seeds 5",
            "ns3l study cifar10 --labels 4000 --methods ns3l --grid ns3l.negatives.threshold=0.02,0.04 --dry-run",
            "ns3l study table.csv --methods ns3l,vat --executor processes --out runs/table",
        ),
    )(study)
    app.command(
        "reproduce",
        epilog=examples(
            "ns3l list items",
            "ns3l reproduce fashion-mnist --schedule 0.02 --seeds 2",
            "ns3l reproduce table1-cifar10 --rows vat,vat+ns3l --fast --device cuda",
            "ns3l reproduce table1-cifar10 --dry-run",
        ),
    )(reproduce)
    app.command(
        "search",
        epilog=examples(
            "ns3l search digits --labels 30 --method ns3l --trials 20",
            "ns3l search cifar10 --method vat+ns3l --space vat.weight=0.03..3:log --space optimizer.lr=3e-4,3e-3",
        ),
    )(search)


def study(
    data: options.Data,
    methods: Methods = "ns3l",
    labels: options.Labels = None,
    grid: Grid = None,
    seeds: options.Seeds = "5",
    schedule: options.Schedule = 1.0,
    protocol: options.Protocol = None,
    settings: options.Settings = None,
    fast: options.Fast = False,
    out: Out = None,
    no_baseline: NoBaseline = False,
    dry_run: DryRun = False,
    measure: Measure = False,
    executor: Where = "local",
    address: Address = None,
    workers: Workers = None,
    threads: Threads = 1,
    gpus: Gpus = 0,
    device: options.Device = "auto",
    replicas: options.Replicas = None,
    progress: options.Shown = "auto",
    quiet: options.Quiet = False,
    root: options.Root = None,
    label_column: options.LabelColumn = None,
    size: options.Size = None,
    channels: options.Channels = None,
    json: options.AsJson = False,
) -> None:
    """Compare methods on the same seeds and splits, over a grid of settings if given.

    Safe to stop and to start again: what is done is skipped, what is begun continued, what failed tried again.
    """
    made = _study(
        options.name_of(data),
        labels,
        options.load_options(data, label_column, size, channels),
        root,
        _changed(settings, fast),
        _names(methods, "--methods"),
        grid=grid_of(grid),
        seeds=options.seeds_of(seeds, None),
        out=out or Path("runs") / f"study-{Path(data).stem}",
        schedule=schedule,
        protocol=protocol,
        baseline=not no_baseline,
    )
    place = executor_of(executor, address, workers, threads, gpus)
    how = How(device_of(device), mode_of(progress, quiet), replicas=replicas)
    _carry_out(made, place, how, dry_run, measure, json, quiet)


def reproduce(
    item: Annotated[
        str, typer.Argument(metavar="ITEM", help="A table or figure, see `ns3l list items`.", show_default=False)
    ],
    rows: Rows = None,
    schedule: options.Schedule = 1.0,
    seeds: options.Seeds = None,
    settings: options.Settings = None,
    fast: options.Fast = False,
    out: Out = None,
    no_baseline: NoBaseline = False,
    dry_run: DryRun = False,
    measure: Measure = False,
    executor: Where = "local",
    address: Address = None,
    workers: Workers = None,
    threads: Threads = 1,
    gpus: Gpus = 0,
    device: options.Device = "auto",
    replicas: options.Replicas = None,
    progress: options.Shown = "auto",
    quiet: options.Quiet = False,
    root: options.Root = None,
    json: options.AsJson = False,
) -> None:
    """Repeat a table, a row or a figure of the paper, and put our numbers beside the published ones."""
    from ns3l.study import reproduction

    if item == "toy":
        _toy(out or Path("runs/toy"), json)
        return
    numbers = None if seeds is None else options.seeds_of(seeds, None)
    names = None if rows is None else _names(rows, "--rows")
    more: dict[str, Any] = {"names": names, "settings": _changed(settings, fast), "baseline": not no_baseline}
    made = reproduction(item, numbers, schedule, out, root=root, **more)
    place = executor_of(executor, address, workers, threads, gpus)
    how = How(device_of(device), mode_of(progress, quiet), replicas=replicas)
    _carry_out(made, place, how, dry_run, measure, json, quiet)


def search(
    data: options.Data,
    method: options.Method = "ns3l",
    labels: options.Labels = None,
    space: Annotated[
        list[str] | None,
        typer.Option(
            "--space", metavar="PATH=LOW..HIGH[:log]", help="What to vary (or choices: PATH=A,B); else the usual."
        ),
    ] = None,
    trials: Annotated[int, typer.Option("--trials", min=1, help="How many, those of an earlier start included.")] = 20,
    seeds: options.Seeds = None,
    validation: Annotated[
        str | None, typer.Option("--validation", metavar="N|SHARE", help="Labeled examples to judge on.")
    ] = None,
    schedule: options.Schedule = 1.0,
    protocol: options.Protocol = None,
    settings: options.Settings = None,
    fast: options.Fast = False,
    out: Out = None,
    device: options.Device = "auto",
    progress: options.Shown = "quiet",
    root: options.Root = None,
    label_column: options.LabelColumn = None,
    size: options.Size = None,
    channels: options.Channels = None,
    json: options.AsJson = False,
) -> None:
    """Search thresholds, weights and learning rate, judged on validation examples and never on test."""
    from ns3l.search import search as searched

    loaded = options.read_data(data, root, label_column, size, channels)
    words = list(settings or ())
    asked = Asked(labels, validation, None, schedule, protocol, None, tuple(words), fast)
    recipe = recipe_for(method, data, loaded, asked)
    if not recipe.split.validation and validation is None:
        words.append(f"split.validation={HELD_OUT}")
        say.note(f"{HELD_OUT:.0%} of the labeled examples are held out to judge by; --validation says otherwise")
        recipe = recipe_for(method, data, loaded, replace(asked, settings=tuple(words)))
    how = How(device_of(device), mode_of(progress, False))
    folder = out or Path("runs") / f"search-{Path(data).stem}"
    with redirect_stdout(sys.stderr) if json else nullcontext():
        found = searched(recipe, loaded, _space(space), trials, options.seeds_of(seeds, None), folder, how=how)
    say.as_json(found.to_dict()) if json else print(found.to_text())
    if found.best is None:
        raise RunFailed("no trial is complete; their folders say why")


def _changed(settings: list[str] | None, fast: bool) -> dict[str, Any]:
    """What `--fast` and `--set` change, the latter last."""
    from ns3l.recipes import FAST

    return (FAST if fast else {}) | options.settings_of(settings)


def _names(text: str, option: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names or len(set(names)) < len(names):
        raise UserError(f"{option} is a list like supervised,ns3l,vat+ns3l, each once; got {text!r}")
    return names


def grid_of(words: Sequence[str] | None) -> dict[str, list[Any]]:
    """`path=a,b` words as lists of values by path."""
    found: dict[str, list[Any]] = {}
    for word in words or ():
        path, equals, text = (part.strip() for part in word.partition("="))
        if not equals or not path or not text:
            raise UserError(f"--grid takes PATH=A,B,…, for example ns3l.weight=0.3,1,3; got {word!r}")
        if path in found:
            raise UserError(f"--grid names {path} twice")
        try:
            found[path] = json_module.loads(f"[{text}]")
        except ValueError:
            found[path] = [part.strip() for part in text.split(",")]
    return found


def _space(words: Sequence[str] | None) -> dict[str, Any] | None:
    from ns3l.search import parse_range

    found: dict[str, Any] = {}
    for word in words or ():
        path, equals, text = word.partition("=")
        if not equals:
            raise UserError(
                f"--space takes PATH=LOW..HIGH or PATH=A,B, for example ns3l.weight=0.1..10:log; got {word!r}"
            )
        found[path.strip()] = parse_range(text.strip())
    return found or None


def executor_of(name: str, address: str | None, workers: int | None, threads: int, gpus: float) -> "Executor":
    """The executor of that name with the options that it takes."""
    from ns3l.executors import Local, Processes, Ray

    placed = {"--address": (address, "ray"), "--gpus": (gpus or None, "ray"), "--workers": (workers, "processes")}
    wrong = [option for option, (value, owner) in placed.items() if value is not None and owner != name]
    if wrong:
        raise UserError(f"{wrong[0]} is for --executor {placed[wrong[0]][1]}")
    match name:
        case "local":
            return Local()
        case "processes":
            return Processes(workers, threads)
        case "ray":
            return Ray(address, threads, gpus)
    raise UserError(f"--executor is local, processes or ray, got {name!r}")


def _study(
    data: str,
    labels: str | None,
    asked: dict[str, Any],
    root: Path | None,
    settings: dict[str, Any],
    methods: Sequence[str],
    **more: Any,
) -> "Study":
    """The study of these methods, with a held-out part where no errors would be known otherwise."""
    from ns3l.study import study as described

    changed = _with_validation(data, root, asked, labels, settings)
    return described(methods, data, options.labels_of(labels), settings=changed, root=root, **more, **asked)


def _with_validation(
    data: str, root: Path | None, asked: dict[str, Any], labels: str | None, settings: dict[str, Any]
) -> dict[str, Any]:
    """Settings that hold examples out for validation where data have no test part."""
    from ns3l.data import load

    if labels is None or "split.validation" in settings or load(data, root, **asked).x_test is not None:
        return settings
    say.note(f"{data} has no test part: {HELD_OUT:.0%} is held out for validation (--set split.validation=… to change)")
    return {"split.validation": HELD_OUT, **settings}


def _carry_out(
    made: "Study", executor: "Executor", how: How, dry_run: bool, measure: bool, json: bool, quiet: bool
) -> None:
    from ns3l.study import execute, plan_of

    if dry_run:
        plan = plan_of(made, executor, how, measured=measure)
        say.as_json(plan.to_dict()) if json else print(plan.to_text())
        if plan.seconds is None and not json:
            say.note("--dry-run --measure takes the time of a few steps of each kind of run")
        return
    with redirect_stdout(sys.stderr) if json else nullcontext():
        done = execute(made, executor, how)
    if json:
        say.as_json(done.to_dict())
    elif not quiet:
        say.show_report([made.root])
        print(f"More: ns3l report {shlex.quote(str(made.root))} --html report.html")
    if not done.succeeded:
        raise RunFailed(f"{len(done.failed)} of {len(done.outcomes)} runs failed; the same command tries them again")


def _toy(out: Path, json: bool) -> None:
    """The experiment that trains no network: where each update puts the separating point, and a picture."""
    from ns3l.toy import picture

    out.mkdir(parents=True, exist_ok=True)
    found = picture(out / "toy.png")
    rows = [{"update": name, "point": way[-1], "slope": found.slope[name]} for name, way in found.path.items()]
    if json:
        say.as_json({"picture": str(out / "toy.png"), "begun": found.begun, "updates": rows})
        return
    told = [(row["update"], f"{row['point']:+.3f}", f"{row['slope']:.1f}") for row in rows]
    say.table("the separating point, 0 in truth", ("update", "point", "slope"), told, numbers=("point", "slope"))
    print(f"Picture: {out / 'toy.png'}")
