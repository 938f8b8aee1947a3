"""The exact command that repeats the run behind a number."""

import json
import shlex
import warnings
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from ns3l.report.collect import Run, spoken_path
from ns3l.report.group import Group, spoken

PROTOCOLS = ("A", "B", "own")
_BY_OTHER_WORDS = ("method", "data", "classes", "protocol", "schedule", "sources")


def command(run: Run, group: Group) -> str:
    """`ns3l train …` with every setting that differs from the method's own recipe, quoted for a POSIX shell."""
    words = ["ns3l", "train", f"./{run.data}" if run.data.startswith("-") else run.data]
    if run.labels is not None:
        words += ["--labels", repr(run.labels)]
    words += [f"--method={run.method}"] if run.method.startswith("-") else ["--method", run.method]
    words += ["--protocol", run.protocol] if run.protocol in PROTOCOLS else []
    words += ["--seed", str(run.seed)] if run.seed is not None else []
    words += ["--schedule", repr(run.schedule)] if run.schedule != 1 else []
    return shlex.join(words + [word for setting in _settings(run, group) for word in ("--set", setting)])


def _settings(run: Run, group: Group) -> list[str]:
    """What `--set` must say: all that differs from the default recipe, or the grid point where there is no default."""
    classes = run.recipe.get("classes")
    classes = classes if isinstance(classes, int) else None
    default = _default(run.method, run.data, run.labels, classes, run.shape, run.schedule, run.protocol)
    if default is None:
        return [f"{path}={spoken(value)}" for path, value in group.grid]
    own = {name: value for name, value in run.recipe.items() if name not in _BY_OTHER_WORDS}
    found = _differing({name: default.get(name) for name in own}, own, ())
    return [f"{spoken_path(path)}={_exactly(value)}" for path, value in found if path != ("split", "labels")]


@lru_cache(maxsize=256)
def _default(
    method: str,
    data: str,
    labels: int | float | None,
    classes: int | None,
    shape: tuple[int, ...] | None,
    schedule: float,
    protocol: str,
) -> dict[str, Any] | None:
    """The recipe that the command starts from, as JSON values; None where the library has none for this run."""
    from ns3l.recipes import recipe

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            known = protocol if protocol in PROTOCOLS else None
            made = recipe(method, data, labels, classes, shape, schedule, known)
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
