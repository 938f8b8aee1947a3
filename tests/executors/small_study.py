"""A study small enough for tests: two methods on digits by a small MLP, twenty steps."""

import os
import signal
from contextlib import suppress
from pathlib import Path

import numpy as np

import ns3l
from ns3l.study import Study, study

SMALL = {
    "network": {"name": "mlp", "options": {"hidden": [16]}},
    "augmentation.steps": [],
    "steps": 20,
    "evaluation.every": 10,
    "split.validation": 100,
    "batch.labeled": 20,
}


def small(out: Path, methods=("ns3l",), seeds=2, settings=(), **more) -> Study:
    """Methods, and supervised beside them, on digits with 30 labels."""
    return study(list(methods), "digits", 30, seeds=seeds, out=out, settings=SMALL | dict(settings), **more)


def weights(root: Path) -> dict[str, bytes]:
    """The bytes of every model below a folder, by run."""
    return {str(path.parent.relative_to(root)): path.read_bytes() for path in root.rglob("model.safetensors")}


def tiny_data(rows: int = 60) -> ns3l.Dataset:
    """Features of three classes that anything separates, without a test part."""
    y = np.arange(rows) % 3
    x = (y[:, None] == np.arange(3)).astype(np.float32) + np.linspace(0, 0.1, rows * 3, dtype=np.float32).reshape(-1, 3)
    return ns3l.Dataset("tiny", x, y, ("a", "b", "c"))


def kill_once(marker: str, step: int, plan, metrics) -> bool:
    """A watch that kills its process with SIGKILL at an evaluation, once for a marker file."""
    with suppress(FileExistsError):
        if metrics["step"] == step:
            Path(marker).touch(exist_ok=False)
            os.kill(os.getpid(), signal.SIGKILL)
    return False


def kill_always(plan, metrics) -> bool:
    """A watch that kills the process of seed 1 at every evaluation."""
    if plan.seed == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return False
