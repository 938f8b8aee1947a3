"""The exact command that repeats the run behind a number."""

import shlex
from typing import Any

from ns3l.report.collect import Run
from ns3l.report.group import Group, spoken


def command(run: Run, group: Group) -> str:
    """`ns3l train …` with every setting that differs from the method's own recipe, quoted for a POSIX shell."""
    words = ["ns3l", "train", f"./{run.data}" if run.data.startswith("-") else run.data]
    if run.labels is not None:
        words += ["--labels", f"{run.labels:g}" if isinstance(run.labels, float) else str(run.labels)]
    words += [f"--method={run.method}"] if run.method.startswith("-") else ["--method", run.method]
    words += ["--seed", str(run.seed)] if run.seed is not None else []
    words += ["--schedule", f"{run.schedule:g}"] if run.schedule != 1 else []
    words += [word for path, value in group.grid for word in _option(path, value)]
    return shlex.join(words)


def _option(path: str, value: Any) -> tuple[str, str]:
    return ("--steps", spoken(value)) if path == "steps" else ("--set", f"{path}={spoken(value)}")
