"""The program `ns3l`: its commands put together, and how it ends."""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

import ns3l.cli.data as data_commands
from ns3l.cli import models, results, studies, training
from ns3l.cli.ending import ending
from ns3l.cli.options import examples
from ns3l.errors import UserError

app = typer.Typer(
    name="ns3l",
    help="Semi-supervised learning: few labels, many unlabeled examples, methods as sums of terms.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=examples(
        "ns3l demo",
        "ns3l train digits --labels 30 --method vat+ns3l --seeds 5",
        "ns3l report runs --html report.html",
        exits=True,
    ),
)
for group in (training, studies, results, data_commands, models):
    group.add_to(app)


def _version(shown: bool) -> None:
    if shown:
        from ns3l import __version__

        typer.echo(f"ns3l {__version__}")
        raise typer.Exit


@app.callback()
def _program(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say the version and exit.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error; may stand anywhere in the line.")
    ] = False,
) -> None:
    pass


def _refuse_empty(words: Sequence[str]) -> None:
    """An empty path would mean the current folder, and is most often a variable of the shell that is not set."""
    for before, word in zip(["ns3l", *words], words, strict=False):
        if not word:
            raise UserError(f"expected a word after {before}, got an empty one; is a variable not set?")


def main(words: Sequence[str] | None = None) -> None:
    """Run the command line (of this process unless `words` are given) and exit with its code.

    0: fine; 1: a run failed; 2: wrong use; 130 and 143: interrupted by SIGINT or SIGTERM.
    """
    given = list(sys.argv[1:] if words is None else words)
    debug = "--debug" in given
    with ending(debug):
        _refuse_empty(given)
        app([word for word in given if word != "--debug"], prog_name="ns3l")
