"""The command line as a test uses it: words in; exit code, output and messages out."""

import contextlib
import io
from dataclasses import dataclass

from ns3l.cli import main


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


def ns3l(*words: object) -> Ended:
    """Run the command line in this process."""
    out, err = io.StringIO(), io.StringIO()
    code = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main([str(word) for word in words])
        except SystemExit as end:
            code = int(end.code or 0)
    return Ended(code, out.getvalue(), err.getvalue())
