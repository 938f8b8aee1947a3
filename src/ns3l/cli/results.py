"""`ns3l report`, `list` and `show`: what was found, what there is, what a recipe says."""

import difflib
import json as json_module
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ns3l.cli import options, say
from ns3l.cli.options import examples
from ns3l.errors import UserError

if TYPE_CHECKING:
    from ns3l.recipe import Recipe

FORMATS = ("text", "markdown", "latex", "csv", "json")
KINDS = ("methods", "data", "recipes", "items", "runs")


def add_to(app: typer.Typer) -> None:
    """Register the commands of this file."""
    app.command(
        "report",
        epilog=examples(
            "ns3l report runs",
            "ns3l report runs/digits --html report.html",
            "ns3l report runs --format latex --out table.tex",
            "ns3l report runs/fashion --save results/fashion.json",
            "ns3l report results/*.json",
            "ns3l report runs --serve",
        ),
    )(report)
    app.command("list", epilog=examples("ns3l list methods", "ns3l list runs runs --json"))(list_)
    app.command(
        "show",
        epilog=examples(
            "ns3l show vat+ns3l --data cifar10", "ns3l show table1/svhn/vat", "ns3l show runs/digits/ns3l/seed-0 --json"
        ),
    )(show)


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUNS", help="Folders with runs, or results that --save wrote.", show_default=False),
    ],
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="One self-contained HTML file.")] = None,
    format: Annotated[
        str | None, typer.Option("--format", "-f", metavar="|".join(FORMATS), help="Default: for this terminal.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="A file instead of standard output.")] = None,
    save: Annotated[
        Path | None,
        typer.Option("--save", metavar="FILE", help="Results as small JSON, without weights, for `ns3l report` later."),
    ] = None,
    title: Annotated[str | None, typer.Option("--title", help="Of the report and of what is saved.")] = None,
    rule: Annotated[
        str | None,
        typer.Option(
            "--rule", metavar="last|best_validation|median_20", help="Which evaluation counts; else each run's own."
        ),
    ] = None,
    serve: Annotated[
        bool, typer.Option("--serve", help="Serve the page to this machine, fresh while runs go on.")
    ] = False,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Of --serve; 0 takes a free one.")] = 8000,
    json: options.AsJson = False,
) -> None:
    """Tables and figures of every run at or below some folders, complete or not."""
    from ns3l import report as reporting

    if serve:
        reporting.serve(runs, port, rule=rule)
        return
    chosen = "json" if json else format
    if chosen not in (None, *FORMATS):
        raise UserError(f"--format is {', '.join(FORMATS)}, got {chosen!r}")
    made = reporting.report(runs, rule=rule, title=title)
    if save is not None:
        reporting.save_results(runs, save, title)
        say.note(f"{save} is written")
    if html is not None:
        reporting.write_html(made, html)
        say.note(f"{html} is written")
    if chosen is not None or out is not None:
        writers: dict[str, Callable[[Any], str]] = {name: getattr(reporting, f"to_{name}") for name in FORMATS}
        text = writers[chosen or "text"](made)
        say.write_text(out, text) if out is not None else print(text, end="")
    elif html is None and save is None:
        reporting.print_report(made, say.console())


def list_(
    what: Annotated[str, typer.Argument(metavar="[methods|data|recipes|items|runs]", help="What to list.")] = "methods",
    path: Annotated[Path, typer.Argument(metavar="[PATH]", help="Where runs are.")] = Path("runs"),
    json: options.AsJson = False,
) -> None:
    """What there is: methods, known data sets, recipes of papers, items of the paper, runs below a folder."""
    if what not in KINDS:
        near = difflib.get_close_matches(what, KINDS, 1)
        raise UserError(f"list takes {', '.join(KINDS)}, got {what!r}" + (f"; did you mean {near[0]}?" if near else ""))
    rows = (
        _runs(path)
        if what == "runs"
        else {"methods": _methods, "data": _data, "recipes": _recipes, "items": _items}[what]()
    )
    if json:
        say.as_json(rows)
    elif not rows:
        print(f"no {what}")
    else:
        columns = list(rows[0])
        say.table("", columns, [["–" if row[c] is None else row[c] for c in columns] for row in rows])


def _methods() -> list[dict[str, Any]]:
    import inspect

    from ns3l.methods import METHODS
    from ns3l.mixmatch import BUILDERS

    def said(name: str) -> str:
        kind = BUILDERS.get(name) or type(METHODS[name].term(10, (name,)))
        return (inspect.getdoc(kind) or "").split("\n")[0]

    return [{"method": name, "what": said(name)} for name in METHODS]


def _data() -> list[dict[str, Any]]:
    from ns3l.data import DATASETS, KNOWN
    from ns3l.recipes import SHAPES

    def shape(name: str) -> str:
        return " x ".join(map(str, SHAPES[name][1])) if name in SHAPES else ""

    return [
        {"data": name, "classes": SHAPES[name][0], "shape": shape(name), "on disk": _on_disk(KNOWN.get(name))}
        for name in DATASETS
    ]


def _on_disk(known: Any) -> str:

    if known is None:
        return "comes with scikit-learn"
    places = [place for place in known._places(None) if place.is_dir()]
    for place in places:
        for layout in known.layouts:
            for folder in known._folders(place, layout):
                if folder.is_dir() and not layout.missing(folder):
                    return str(folder)
    return f"no: ns3l data fetch {known.name}"


def _recipes() -> list[dict[str, Any]]:
    from ns3l.recipes import PUBLISHED

    made = {name: make() for name, make in PUBLISHED.items()}
    return [
        {
            "recipe": name,
            "method": recipe.method,
            "data": recipe.data,
            "labels": recipe.split.labels,
            "steps": recipe.steps,
            "protocol": recipe.protocol,
        }
        for name, recipe in made.items()
    ]


def _items() -> list[dict[str, Any]]:
    from ns3l.recipes import ITEMS

    return [
        {"item": name, "title": item.title, "data": item.data, "rows": len(item.rows), "seeds": item.seeds}
        for name, item in ITEMS.items()
    ]


def _runs(path: Path) -> list[dict[str, Any]]:
    from ns3l.record import index

    found = []
    for run in index(path):
        held = run.result
        errors, rule = held.get("test_error"), held.get("rule")
        found.append(
            {
                "run": str(run.path),
                "method": held.get("method"),
                "data": held.get("data"),
                "labels": held.get("labels"),
                "seed": held.get("seed"),
                "status": run.status,
                "step": held.get("step"),
                "steps": held.get("steps"),
                "test error": errors.get(rule) if isinstance(errors, dict) else None,
            }
        )
    return found


def show(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE", help="A method, a name of `ns3l list recipes`, or a run folder.", show_default=False
        ),
    ],
    data: Annotated[str | None, typer.Option("--data", help="A known data set; default: cifar10.")] = None,
    labels: options.Labels = None,
    schedule: Annotated[float, typer.Option("--schedule", help="Scale all step counts.")] = 1.0,
    protocol: options.Protocol = None,
    settings: options.Settings = None,
    json: options.AsJson = False,
) -> None:
    """A recipe with every setting resolved, and where its numbers come from."""
    from ns3l.cli.training import changed
    from ns3l.recipes import describe

    found = changed(_recipe(recipe, data, labels, schedule, protocol), options.settings_of(settings))
    if json:
        say.as_json(found.to_dict())
        return
    title = f"{found.method} on {found.data}, protocol {found.protocol}"
    rows = [(path, _spoken(value), source) for path, value, source in describe(found)]
    say.table(title, ("setting", "value", "from"), rows)


def _recipe(name: str, data: str | None, labels: str | None, schedule: float, protocol: str | None) -> "Recipe":
    """What RECIPE means: a run folder, a row of the paper, or a method on data."""
    from ns3l.recipe import Recipe
    from ns3l.recipes import PUBLISHED, recipe
    from ns3l.record import read_json

    fixed = (Path(name) / "recipe.json").is_file() or name in PUBLISHED
    if fixed and not (data is None and labels is None and protocol is None and schedule == 1):
        raise UserError(f"{name} is a whole recipe; --data, --labels, --schedule and --protocol are for methods")
    if name in PUBLISHED:
        return PUBLISHED[name]()
    if fixed:
        return Recipe.from_dict(read_json(Path(name) / "recipe.json"))
    if "/" in name:
        near = difflib.get_close_matches(name, PUBLISHED, 1)
        advice = f"did you mean {near[0]}?" if near else "see `ns3l list recipes`"
        raise UserError(f"there is no recipe and no run folder {name!r}; {advice}")
    return recipe(name, data or "cifar10", options.labels_of(labels), schedule=schedule, protocol=protocol)


def _spoken(value: Any) -> str:
    return value if isinstance(value, str) else json_module.dumps(value)
