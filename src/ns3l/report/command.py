"""The exact command that repeats the run behind a number."""

import itertools
import json
import shlex
import warnings
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from ns3l.report.group import Group, spoken
from ns3l.report.run import Run, plain, spoken_path

_DOORS = ("train", "study", "reproduce", "search")
_SKIP = "--skip-damaged"
_LOADING = ("--root", "--label-column", "--size", "--channels", "--fit")
_BY_OTHER_WORDS = ("method", "data", "classes", "protocol", "schedule", "sources")


def command(run: Run, group: Group) -> str:
    """`ns3l train …` with every setting that differs from the method's own recipe, quoted for a POSIX shell."""
    words = ["ns3l", "train", f"./{data}" if (data := _data(run)).startswith("-") else data, *_loading(run)]
    if run.labels is not None:
        words += ["--labels", repr(run.labels)]
    words += [f"--method={run.method}"] if run.method.startswith("-") else ["--method", run.method]
    words += ["--protocol", asked] if (asked := _protocol(run.protocol)) else []
    words += ["--seed", str(run.seed)] if run.seed is not None else []
    words += ["--schedule", repr(run.schedule)] if run.schedule != 1 else []
    return shlex.join(words + [word for setting in _settings(run, group) for word in ("--set", setting)])


def _data(run: Run) -> str:
    """DATA as it was named, which for one's own is a path."""
    return plain(run.recipe.get("data") or run.data)


def _protocol(name: str) -> str | None:
    """How `--protocol` says it; None where it goes without saying."""
    from ns3l.recipes import PROTOCOLS

    return next((asked for asked, said in PROTOCOLS.items() if said == name), None)


def _loading(run: Run) -> list[str]:
    """How the data were loaded, from the command line that the run recorded."""
    said = run.environment.get("command")
    words = [word for word in said if isinstance(word, str)] if isinstance(said, list) else []
    if not words[1:] or words[1] not in _DOORS:
        return []
    apart = [word for pair in itertools.pairwise(words) if pair[0] in _LOADING for word in pair]
    whole = [word for word in words if word.startswith(tuple(f"{option}=" for option in _LOADING)) or word == _SKIP]
    return list(map(plain, [*apart, *whole]))


def _settings(run: Run, group: Group) -> list[str]:
    """What `--set` must say: all that differs from the default recipe, or the grid point where there is no default."""
    default = _default_of(run, _protocol(run.protocol))
    if default is None:
        return [f"{path}={spoken(value)}" for path, value in group.grid]
    return [f"{path}={_exactly(value)}" for path, value in _departing(run, default)]


def departures(run: Run) -> tuple[str, ...]:
    """What of a run is not as in the recipe under which its method was published on its data, by path."""
    default = _default_of(run, None)
    if default is None or default["protocol"] != run.protocol:
        return ("protocol",)
    return tuple(path for path, _ in _departing(run, default) if not path.startswith("execution."))


def _departing(run: Run, default: Mapping[str, Any]) -> list[tuple[str, Any]]:
    own = {name: value for name, value in run.recipe.items() if name not in _BY_OTHER_WORDS}
    found = (pair for name, value in own.items() for pair in _differing(default.get(name), value, (name,)))
    return [(spoken_path(path), value) for path, value in found if path != ("split", "labels")]


def _default_of(run: Run, protocol: str | None) -> dict[str, Any] | None:
    classes = run.recipe.get("classes")
    classes = classes if isinstance(classes, int) else None
    return _default(run.method, _data(run), run.labels, classes, run.shape, run.schedule, protocol)


@lru_cache(maxsize=256)
def _default(
    method: str,
    data: str,
    labels: int | float | None,
    classes: int | None,
    shape: tuple[int, ...] | None,
    schedule: float,
    protocol: str | None,
) -> dict[str, Any] | None:
    """The recipe that the command starts from, as JSON values; None where the library has none for this run."""
    from ns3l.recipes import recipe

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = recipe(method, data, labels, classes, shape, schedule, protocol)
        return json.loads(json.dumps(made.to_dict()))
    except (TypeError, ValueError):
        return None


def _differing(default: Any, own: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Paths at which values differ; what is of another kind differs as a whole."""
    alike = isinstance(default, Mapping) and isinstance(own, Mapping) and default.keys() == own.keys()
    if alike and default.get("kind") == own.get("kind"):
        for name, value in own.items():
            yield from _differing(default[name], value, (*path, name))
    elif default != own or isinstance(default, bool) != isinstance(own, bool):
        bare = isinstance(default, Mapping) and "value" in default and not isinstance(own, Mapping)
        yield path, {"kind": "constant", "value": own} if bare else own  # a bare number would be the schedule's value


def _exactly(value: Any) -> str:
    """A value as `--set` reads it, every digit of it."""
    return value if isinstance(value, str) else json.dumps(value)
