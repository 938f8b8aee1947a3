"""A folder of images as a store: how many cores decode it, and how fast its rows are read back.

    python benchmarks/store.py [--images 2000] [--rounds 5] [--json FILE]

Random JPEG files of 256 x 256 are decoded to 64 x 64; the loop beside it decodes and resizes the same files by PIL, one
after the other. Rows are read through the data set and, in turns, through a plain memory map of a file with the same
bytes; both lie in the system's cache.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import ns3l
from ns3l.environment import cpu_model


def write_images(folder: Path, count: int) -> list[Path]:
    """Random files of two classes."""
    draw = np.random.default_rng(0)
    paths = []
    for k in range(count):
        path = folder / "labeled" / ("even", "odd")[k % 2] / f"{k}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw.integers(0, 256, (256, 256, 3), dtype=np.uint8)).save(path)
        paths.append(path)
    return paths


def seconds(call: Callable[[], Any]) -> float:
    """Of one call."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def measured(count: int, rounds: int, folder: Path) -> dict[str, Any]:
    """Images a second by store and by loop, gigabytes a second by store and by memory map; medians."""
    paths = write_images(folder / "pictures", count)
    built = seconds(lambda: ns3l.load(folder / "pictures", size=64))
    alone = seconds(lambda: [np.asarray(Image.open(path).convert("RGB").resize((64, 64))) for path in paths])
    rows = ns3l.load(folder / "pictures", size=64).x
    np.asarray(rows).tofile(folder / "plain")
    plain = np.memmap(folder / "plain", np.uint8, mode="r", shape=rows.shape)
    order = np.random.default_rng(0).permutation(count)
    times: dict[str, list[float]] = {"store": [], "memory map": []}
    for _ in range(rounds):
        for name, x in (("store", rows), ("memory map", plain)):
            times[name].append(seconds(lambda x=x: [x[i].sum(dtype=np.uint32) for i in order]))  # type: ignore[misc]
    told: dict[str, Any] = {"images": count, "cores": os.cpu_count(), "cpu": cpu_model(), "n": rounds}
    told |= {"decoded_per_s": count / built, "loop_per_s": count / alone}
    return told | {f"{name} GB/s": rows.nbytes / statistics.median(taken) / 1e9 for name, taken in times.items()}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        told = measured(asked.images, asked.rounds, Path(folder))
    print(json.dumps(told, indent=1))
    if asked.json:
        asked.json.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
