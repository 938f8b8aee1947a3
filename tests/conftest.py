"""What every test shares: one thread, a calm Hypothesis, marks that skip what this machine lacks."""

import os
import random
import shutil
from collections.abc import Iterator
from importlib import metadata

import numpy as np
import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("here", deadline=None, max_examples=30)
settings.register_profile("ci", settings.get_profile("here"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
LACKING = {
    "gpu": ("a CUDA device", torch.cuda.is_available),
    "realdata": ("NS3L_DATA naming a folder with real data", lambda: bool(os.environ.get("NS3L_DATA"))),
    "installed": ("ns3l installed by pip", lambda: any(metadata.distributions(name="ns3l"))),
    "browser": ("a Chromium on the path", lambda: any(map(shutil.which, BROWSERS))),
}


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a marked test, with the reason, where the machine lacks what the mark asks for."""
    for mark, (what, present) in LACKING.items():
        if item.get_closest_marker(mark) and not present():
            pytest.skip(f"needs {what}")


def random_states() -> dict[str, object]:
    """The global random states of Python, NumPy and torch, in a form that can be compared."""
    name, keys, *rest = np.random.get_state(legacy=True)  # noqa: NPY002 - the global state is what this looks at
    return {
        "random": random.getstate(),
        "numpy.random": (name, keys.tobytes(), *rest),
        "torch": torch.get_rng_state().numpy().tobytes(),
    }


@pytest.fixture
def untouched_random_state() -> Iterator[None]:
    """Fail the test that moves a global random state: all draws must come from `ns3l.draw`."""
    before = random_states()
    yield
    after = random_states()
    moved = [name for name in before if before[name] != after[name]]
    if moved:
        pytest.fail(f"the global random state of {', '.join(moved)} moved: draw from ns3l.draw instead")
