"""How a command ends: messages instead of tracebacks, and an exit code for every kind of end."""

import errno
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from typing import TextIO

from ns3l.errors import RunError, UserError

FAILED, WRONG_USE, INTERRUPTED = 1, 2, 130
EXTRAS = {
    "pandas": "data",
    "pyarrow": "data",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "onnxscript": "onnx",
    "ray": "ray",
    "optuna": "search",
    "tensorboard": "tensorboard",
}
"""Which extra brings a package that is not there."""


class RunFailed(Exception):
    """A run, or what a command made, did not come out well: exit code 1."""


@contextmanager
def ending(debug: bool = False) -> Iterator[None]:
    """Turn what is raised inside into a message on standard error and an exit code; only the first process prints."""
    with ExitStack() as stack:
        stack.enter_context(_plain_warnings())
        messages = sys.stderr
        if _rank():
            nowhere = stack.enter_context(open(os.devnull, "w"))  # noqa: PTH123
            stack.enter_context(redirect_stdout(nowhere))
            stack.enter_context(redirect_stderr(nowhere))
        try:
            yield
        except (Exception, KeyboardInterrupt) as problem:
            if debug:
                raise
            code, message = told(problem)
            if message and (not _rank() or code == FAILED):
                print(message, file=messages, flush=True)
            sys.exit(code)


def told(problem: BaseException) -> tuple[int, str]:
    """The exit code for what was raised, and what to say."""
    from ns3l.train import Stopped

    match problem:
        case Stopped():
            return problem.code, f"ns3l: {problem}"
        case KeyboardInterrupt():
            return INTERRUPTED, "ns3l: interrupted"
        case RunFailed():
            return FAILED, _error(problem)
        case UserError():
            return WRONG_USE, _error(problem)
        case BrokenPipeError():
            _silence(sys.stdout)
            return FAILED, ""
        case OSError() if problem.filename is not None or problem.errno in (errno.ENOSPC, errno.EDQUOT):
            return WRONG_USE, _error(_about_file(problem))
        case ModuleNotFoundError() if (problem.name or "").partition(".")[0] in EXTRAS:
            name = str(problem.name).partition(".")[0]
            return WRONG_USE, _error(
                f"this needs the package {name}; install it with: pip install 'ns3l[{EXTRAS[name]}]'"
            )
    what = f"unexpected {type(problem).__name__}: {problem}" if str(problem) else f"unexpected {type(problem).__name__}"
    return FAILED, _error(f"{what}\nThe same command with --debug shows where it comes from.")


@contextmanager
def running() -> Iterator[None]:
    """Within it, a RunError is a failed run (exit code 1), no wrong use of the command line."""
    try:
        yield
    except RunError as problem:
        raise RunFailed(str(problem)) from problem


def _error(message: object) -> str:
    return f"ns3l: error: {message}"


def _about_file(problem: OSError) -> str:
    where = f"{os.fsdecode(problem.filename)}: " if problem.filename is not None else ""
    return f"{where}{(problem.strerror or str(problem)).lower()}"


def _rank() -> int:
    """The number of this process in a job of torchrun."""
    rank = os.environ.get("RANK", "0")
    return int(rank) if rank.isdigit() else 0


def _silence(stream: TextIO) -> None:
    """Let Python's own flush at exit find an open file where the reader of a pipe has gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Say each warning once, as one line on standard error, without the place in the code."""
    said: set[str] = set()

    def show(message: Warning | str, *_: object, **__: object) -> None:
        if not _rank() and str(message) not in said:
            said.add(str(message))
            print(f"ns3l: warning: {message}", file=sys.stderr, flush=True)

    before = warnings.showwarning
    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = before
