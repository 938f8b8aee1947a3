"""One process of a job for tests/test_distributed.py: python -m tests.ranks SCENARIO FOLDER, as torchrun starts it."""

import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import torch
from tests.training import QUIET, clouds, recipe

from ns3l.distributed import job
from ns3l.errors import RunError
from ns3l.recipe import Execution
from ns3l.run import Run
from ns3l.shared import How
from ns3l.train import fit


def trained(out: Path, synchronized: bool, steps: int = 8, how: How = QUIET) -> None:
    """VAT + NS3L on the clouds."""
    made = recipe("vat+ns3l", steps=steps, every=4, execution=Execution(synchronized=synchronized))
    fit(made, clouds(), out=out, how=how)


def together(out: Path) -> None:
    """Both kinds of batch norm, an uneven batch, a signal that only one process has seen."""
    with job("cpu") as place:
        trained(out / "synchronized", True)
        trained(out / "local", False)
        trained(out / "whole", True, 12)
        try:
            uneven = recipe(batch=replace(recipe().batch, labeled=5))
            fit(uneven, clouds(), out=out / "uneven", how=QUIET)
        except RunError as problem:
            (out / f"refused-{place.rank}").write_text(str(problem))
        (out / f"agreed-{place.rank}").write_text(str(place.agree(15 * (1 - place.rank))))


def lost(out: Path) -> None:
    """Rank 1 dies at its seventh step."""
    if os.environ["RANK"] == "1":
        step = Run.__init__

        def dying(run: Run, *given: object, **named: object) -> None:
            step(run, *given, **named)
            take = run.replica.step

            def once() -> None:
                if int(run.replica.count) == 6:
                    os.kill(os.getpid(), signal.SIGKILL)
                take()

            run.replica.step = once

        Run.__init__ = dying
    try:
        trained(out, True, steps=12)
    except RunError as problem:
        (out / "said.json").write_text(json.dumps(str(problem)))
        sys.exit(3)


if __name__ == "__main__":
    torch.set_num_threads(1)
    {"together": together, "lost": lost, "whole": lambda out: trained(out, True, 12)}[sys.argv[1]](Path(sys.argv[2]))
