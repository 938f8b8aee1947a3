"""`ns3l data fetch`, `check` and `info`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ns3l.cli import options, say
from ns3l.cli.options import examples
from ns3l.data import fetch as fetch_data
from ns3l.data import info as info_of
from ns3l.data import load

if TYPE_CHECKING:
    from ns3l.data.check import Report

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="A known data set, see `ns3l list data`.", show_default=False)
]


def add_to(app: typer.Typer) -> None:
    """Register the commands of this file."""
    group = typer.Typer(
        help="Get, check and describe data.",
        no_args_is_help=True,
        rich_markup_mode="rich",
        epilog=examples("ns3l data fetch cifar10", "ns3l data check photos/ --sheet photos.png"),
    )
    group.command("fetch", epilog=examples("ns3l data fetch cifar10", "ns3l data fetch svhn --extra --root /data"))(
        fetch
    )
    group.command(
        "check", epilog=examples("ns3l data check photos/ --sheet photos.png", "ns3l data check table.csv --json")
    )(check)
    group.command("info", epilog=examples("ns3l data info digits", "ns3l data info fashion-mnist --json"))(info)
    app.add_typer(group, name="data")


def fetch(
    name: Name,
    root: options.Root = None,
    extra: Annotated[bool, typer.Option("--extra", help="svhn: also its 531,131 further images.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
) -> None:
    """Download a known data set, unless it is on disk, and check that it is complete."""
    folder = fetch_data(name, root, progress=not quiet, extra=extra)
    if name == "digits":
        say.note("digits comes with scikit-learn; nothing has to be downloaded")
    else:
        print(folder)


def check(
    data: options.Data,
    sheet: Annotated[
        Path | None, typer.Option("--sheet", metavar="PNG", help="Also a picture with examples of each class.")
    ] = None,
    root: options.Root = None,
    label_column: options.LabelColumn = None,
    size: options.Size = None,
    channels: options.Channels = None,
    fit: options.FitOption = None,
    json: options.AsJson = False,
) -> None:
    """What data hold and what may be wrong with them: counts, imbalance, duplicates, damaged files."""
    from ns3l.data.check import check as look
    from ns3l.data.contact_sheet import contact_sheet

    folder = options.is_folder(data)
    asked = options.load_options(data, label_column, size, channels, fit, skip_damaged=folder)
    loaded = load(data, root, **asked)
    found = look(data, **asked) if folder else look(loaded)
    if sheet is not None:
        contact_sheet(loaded, sheet)
    if json:
        say.as_json(found.to_dict())
    else:
        _show(found, sheet)


def _show(found: "Report", sheet: Path | None) -> None:
    counts = {
        "kind": f"{found.kind} {' x '.join(map(str, found.shape))}",
        "labeled": f"{found.labeled:,}",
        "unlabeled": f"{found.unlabeled + found.extra:,}",
        "test": f"{found.test:,}",
        "repeated rows": f"{found.repeated:,}",
        "test rows also in training": f"{found.leaked:,}",
        "sizes": ", ".join(f"{size} ({n:,})" for size, n in found.sizes.items()),
        "picture": "" if sheet is None else str(sheet),
    }
    say.table(found.name, ("", "found"), [(k, v) for k, v in counts.items() if v])
    rows = [(name, f"{n:,}", f"{found.per_class_test.get(name, 0):,}") for name, n in found.per_class.items()]
    say.table("", ("class", "labeled", "test"), rows, numbers=("labeled", "test"))
    for name, reason in found.damaged.items():
        print(f"damaged: {name}: {reason}")
    for warning in found.warnings:
        print(f"look at: {warning}")
    if not found.warnings:
        print("nothing to complain about")


def info(
    data: options.Data,
    root: options.Root = None,
    label_column: options.LabelColumn = None,
    size: options.Size = None,
    channels: options.Channels = None,
    json: options.AsJson = False,
) -> None:
    """What a data set is: sizes, classes, mean and spread of each channel, content hash."""
    found = info_of(options.read_data(data, root, label_column, size, channels))
    if json:
        say.as_json(found)
        return
    per_class = found.pop("per_class")
    found["classes"] = ", ".join(found["classes"][:20]) + (" …" if len(found["classes"]) > 20 else "")
    for name in ("mean", "std"):
        some = ", ".join(f"{value:.4f}" for value in found[name][:8])
        found[name] = some + (" …" if len(found[name]) > 8 else "")
    found["shape"] = " x ".join(map(str, found["shape"]))
    counted = {k: f"{v:,}" if isinstance(v, int) else str(v) for k, v in found.items()}
    counted["labels of a class"] = f"{min(per_class.values()):,} to {max(per_class.values()):,}"
    say.table("", ("", "value"), list(counted.items()))
