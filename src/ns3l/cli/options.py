"""Options that several commands share, and what they mean."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ns3l.data import DATASETS, TABLES, Dataset, load
from ns3l.errors import UserError
from ns3l.methods import METHODS


def examples(*lines: str, exits: bool = False) -> str:
    """The end of a help page: commands that can be copied, perhaps what exit codes mean."""
    shown = ["Examples:", *(f"[cyan]$ {line}[/cyan]" for line in lines)]
    codes = ["Exit codes: 0 fine, 1 a run failed, 2 wrong use, 130 interrupted."] if exits else []
    return "\n\n".join([*shown, *codes])


def complete_data(incomplete: str) -> list[str]:
    """Known data sets, and files and folders here, that begin like this."""
    folder, _, start = incomplete.rpartition("/")
    here = Path(folder or ("/" if incomplete.startswith("/") else "."))
    prefix = incomplete[: len(incomplete) - len(start)]
    paths = [f"{prefix}{entry.name}" for entry in sorted(here.iterdir())] if here.is_dir() else []
    return [name for name in (*DATASETS, *paths) if name.startswith(incomplete)]


def complete_method(incomplete: str) -> list[str]:
    """Sums that begin like this: a method's name, or another summand."""
    before, plus, start = incomplete.rpartition("+")
    return [f"{before}{plus}{name}" for name in METHODS if name.startswith(start)]


DATA_HELP = "A known data set (see `ns3l list data`), a folder of images, or an .npz, .npy, Parquet or CSV file."
Data = Annotated[str, typer.Argument(metavar="DATA", help=DATA_HELP, autocompletion=complete_data, show_default=False)]
ModelPath = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A run folder, or the model.safetensors in it.", show_default=False)
]
Method = Annotated[
    str,
    typer.Option("--method", "-m", help="Names joined by +, see `ns3l list methods`.", autocompletion=complete_method),
]
Labels = Annotated[
    str | None,
    typer.Option("--labels", "-n", metavar="N|SHARE", help="How many labels to keep: a count, or a share below 1."),
]
Root = Annotated[
    Path | None, typer.Option("--root", help="Where known data sets lie; else NS3L_DATA, else the user's cache.")
]
LabelColumn = Annotated[str | None, typer.Option("--label-column", help="The column of a table that holds the labels.")]
Size = Annotated[
    str | None, typer.Option("--size", metavar="N|HxW", help="Bring images of a folder to this size, in pixels.")
]
Channels = Annotated[int | None, typer.Option("--channels", help="1: grey images, 3: color.")]
FitOption = Annotated[
    str | None, typer.Option("--fit", metavar="crop|stretch", help="How images of another shape are made to fit.")
]
SkipDamaged = Annotated[bool, typer.Option("--skip-damaged", help="Leave out image files that cannot be read.")]
Protocol = Annotated[
    str | None, typer.Option("--protocol", metavar="A|B|own", help="Whose settings: of the papers, or our defaults.")
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on standard output, for programs.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Change a setting, for example ns3l.negatives.threshold=0.03."),
]
Fast = Annotated[
    bool,
    typer.Option("--fast", help="Half precision and channels last, for GPUs; record and report say so."),
]
Seeds = Annotated[str | None, typer.Option("--seeds", help="How many (5 means 0 to 4), or a list: 0,2,7.")]
Seed = Annotated[int | None, typer.Option("--seed", help="One seed.")]
Schedule = Annotated[
    float, typer.Option("--schedule", help="Scale all step counts: 0.25 is a quarter of the recipe's.")
]
Replicas = Annotated[int | None, typer.Option("--replicas", min=1, help="Runs side by side on one GPU.")]
Shown = Annotated[
    str, typer.Option("--progress", metavar="auto|plain|live|quiet", help="A live table in a terminal, else lines.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="The same as --progress quiet.")]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:1 …")]


def read_data(
    data: str,
    root: Path | None = None,
    label: str | None = None,
    size: str | tuple[int, int] | None = None,
    channels: int | None = None,
    fit: str | None = None,
    skip_damaged: bool = False,
) -> Dataset:
    """Load DATA with the options that its kind takes; others are refused."""
    return load(data, root, **load_options(data, label, size, channels, fit, skip_damaged))


def load_options(
    data: str,
    label: str | None = None,
    size: str | tuple[int, int] | None = None,
    channels: int | None = None,
    fit: str | None = None,
    skip_damaged: bool = False,
) -> dict[str, Any]:
    """The options for `ns3l.load` that were given; those that the kind of DATA does not take are refused."""
    sides = sides_of(size) if isinstance(size, str) else size
    asked = {"size": sides, "channels": channels, "fit": fit, "skip_damaged": skip_damaged or None, "label": label}
    options: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    _refuse_misplaced(data, options)
    return options


def _refuse_misplaced(data: str, options: dict[str, Any]) -> None:
    path, folder = Path(data), is_folder(data)
    table = data not in DATASETS and path.is_file() and path.suffix.lower() in TABLES
    for name in options:
        if name == "label" and not table:
            raise UserError(f"--label-column is for CSV and Parquet files, and {data} is none")
        if name != "label" and not folder:
            raise UserError(f"--{name.replace('_', '-')} is for folders of images, and {data} is none")


def sides_of(text: str) -> tuple[int, int]:
    """`32` or `32x48` (height x width) as two numbers."""
    parts = text.lower().split("x")
    if len(parts) > 2 or not all(part.isdecimal() and int(part) for part in parts):
        raise UserError(f"--size must be a number of pixels or HEIGHTxWIDTH, for example 32 or 32x48; got {text!r}")
    return int(parts[0]), int(parts[-1])


def name_of(data: str) -> str:
    """How recipes call DATA: the known name, or the path."""
    return data if data in DATASETS else str(Path(data))


def is_folder(data: str) -> bool:
    """Whether DATA is a folder of images, not a known set."""
    return data not in DATASETS and Path(data).is_dir()


def labels_of(text: str | None) -> int | float | None:
    """`4000` as a count, `0.1` as a share."""
    if text is None:
        return None
    try:
        value = float(text) if "." in text else int(text)
    except ValueError:
        raise UserError(f"a number of labels is a count like 4000 or a share like 0.1, got {text!r}") from None
    if value <= 0 or (isinstance(value, float) and value >= 1):
        raise UserError(f"a number of labels is a count of at least 1 or a share between 0 and 1, got {text!r}")
    return value


def held_out(text: str | None) -> int | float | None:
    """`--validation`: a count, 0 for none, or a share."""
    return 0 if text == "0" else labels_of(text)


def seeds_of(seeds: str | None, seed: int | None) -> tuple[int, ...]:
    """`--seeds 5` means 0 to 4, `--seeds 1,3` these two; `--seed 3` one; neither: seed 0."""
    if seeds is not None and seed is not None:
        raise UserError("--seed is one seed, --seeds several; give one of them")
    if seeds is None:
        return (_seed(0 if seed is None else seed),)
    parts = [part.strip() for part in seeds.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise UserError(f"--seeds is how many (5 means 0 to 4) or a list (0,2,7), got {seeds!r}")
    numbers = tuple(int(part) for part in parts)
    if "," not in seeds:
        numbers = tuple(range(numbers[0]))
    if not numbers or len(set(numbers)) != len(numbers):
        raise UserError(f"--seeds must name at least one seed and none twice, got {seeds!r}")
    return tuple(map(_seed, numbers))


def _seed(seed: int) -> int:
    if not 0 <= seed < 2**31:
        raise UserError(f"a seed is a whole number from 0 to {2**31 - 1}, got {seed}")
    return seed


def settings_of(words: list[str] | None) -> dict[str, str]:
    """`path=value` words as a mapping; what a value means is for the recipe to say."""
    found: dict[str, str] = {}
    for word in words or ():
        path, equals, text = (part.strip() for part in word.partition("="))
        if not equals or not path:
            raise UserError(f"--set takes PATH=VALUE, for example steps=2000, got {word!r}")
        if path in found:
            raise UserError(f"--set names {path} twice")
        found[path] = {"True": "true", "False": "false", "None": "null"}.get(text, text)
    return found
