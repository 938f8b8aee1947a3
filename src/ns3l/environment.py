"""What a number was made with: versions, hardware, the state of the source, the command line."""

import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch

PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "safetensors")
SOURCE = Path(__file__).resolve().parent


def environment() -> dict[str, Any]:
    """Versions, hardware, git state of the ns3l source and the command line, as JSON-safe data; no network."""
    from ns3l import __version__

    return {
        "ns3l": __version__,
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES}
        | {"torch": str(torch.__version__), "numpy": np.__version__},
        "platform": platform.platform(),
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpus": gpus(),
        "cuda": torch.version.cuda,
        "driver": driver() if torch.cuda.is_available() else None,
        "git": git_state(),
        "command": list(sys.argv),
    }


def hardware(found: Mapping[str, Any] | None = None) -> str:
    """The device of an environment in a few words, for tables."""
    found = found or environment()
    if found["gpus"]:
        names = sorted(set(map(str, found["gpus"])))
        return f"{len(found['gpus'])} x {', '.join(names)}"
    threads = found.get("threads")
    return f"{found['cpu']}, {threads} thread{'' if threads == 1 else 's'}"


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


@lru_cache
def cpu_model() -> str:
    """The processor's name as the system gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.lower().startswith("model name")]
    return names[0] if names and names[0] else platform.processor() or platform.machine()


@lru_cache
def gpus() -> list[str]:
    """Names of the CUDA devices that torch sees."""
    if not torch.cuda.is_available():
        return []
    return [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]


@lru_cache
def driver() -> str | None:
    """Version of the NVIDIA driver, where there is one."""
    answer = _answer("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    return answer.splitlines()[0].strip() if answer else None


@lru_cache
def git_state(source: Path = SOURCE) -> dict[str, Any] | None:
    """Commit of the source and whether it was changed since; None where the source is not tracked by git."""
    git = ("git", "--no-optional-locks", "-C", str(source))
    if not _answer(*git, "ls-files", "--", "."):
        return None
    commit = _answer(*git, "rev-parse", "HEAD")
    if not commit:
        return None
    return {"commit": commit.strip(), "dirty": bool(_answer(*git, "status", "--porcelain", "--", "."))}


def _answer(*command: str) -> str | None:
    """What a program prints; None where it is missing, fails or takes longer than five seconds."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
