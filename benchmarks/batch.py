"""Drawing and augmenting a batch (50 + 50, CIFAR size, shift + flip + noise) against a DataLoader of PIL transforms.

    python benchmarks/batch.py [--rounds 9] [--threads 1] [--json FILE] [--no-compile] [--network]

Everything is timed in turns in one run, so that a busy machine slows all rows alike. Pixels are random: no value
changes the time. The loader gets one batch of 100 instead of two of 50, which favors it; by default ours has one
thread, as the loader without workers has. On a GPU the batch is compiled and captured in a CUDA graph, and so is the
WRN-28-2 step (forward, backward, Adam, bfloat16) of which it is a share; on a CPU, where that step takes a thousand
times longer than the batch, `--network` adds it.
"""

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ns3l.augment import Augmentation, Flip, Noise, Shift
from ns3l.draw import Draw
from ns3l.networks import WideResNet
from ns3l.preprocess import Scale

ROWS, LABELED, BATCH = 50_000, 4_000, (50, 50)
NETWORK = "WRN-28-2 step"
AUGMENTATION = Augmentation((Shift(2), Flip(), Noise(0.15)))


class PilRows(torch.utils.data.Dataset):
    """What most training code does for each image: PIL in, reflect-pad crop, flip, tensor, normalize, noise."""

    def __init__(self, x: np.ndarray):
        self.x = x

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> Tensor:
        from PIL import Image, ImageOps

        padded = Image.fromarray(np.pad(self.x[i], ((2, 2), (2, 2), (0, 0)), mode="reflect"))
        top, left = torch.randint(0, 5, (2,)).tolist()
        image = padded.crop((left, top, left + 32, top + 32))
        if torch.rand(()) < 0.5:
            image = ImageOps.mirror(image)
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous().float().div_(255)
        pixels = pixels.sub_(0.5).div_(0.5)
        return pixels.add_(torch.randn(pixels.shape), alpha=0.15)


def loader(x: np.ndarray, workers: int) -> Callable[[], Tensor]:
    """The next batch of an endless DataLoader."""
    sampler = torch.utils.data.RandomSampler(range(len(x)), replacement=True, num_samples=10**9)
    rows = torch.utils.data.DataLoader(PilRows(x), batch_size=sum(BATCH), sampler=sampler, num_workers=workers)
    batches: Iterator[Tensor] = iter(rows)
    return lambda: next(batches)


def ours(x: np.ndarray, device: torch.device) -> Callable[[int | Tensor], Tensor]:
    """A batch as a function of the step: indices, gather, scale, augmentation, all on the device."""
    images = torch.from_numpy(x).to(device)
    scale = Scale().empty(x.shape[1:]).to(device)
    parts = (torch.arange(LABELED, device=device), torch.arange(ROWS, device=device))

    def batch(step: int | Tensor) -> Tensor:
        draw = Draw(0, step, device)
        chosen = [
            part[draw.stream(f"rows-{k}").integers(0, len(part), size)]
            for k, (part, size) in enumerate(zip(parts, BATCH, strict=True))
        ]
        return AUGMENTATION(scale(images[torch.cat(chosen)]), draw.stream("augmentation"))

    return batch


def stepped(batch: Callable[[Tensor], Tensor], device: torch.device) -> Callable[[], Tensor]:
    """Every call makes the batch of the next step; the counter lives on the device."""
    step = torch.zeros((), dtype=torch.int64, device=device)

    def call() -> Tensor:
        out = batch(step)
        step.add_(1)
        return out

    return call


def network_step(device: torch.device) -> Callable[[], None]:
    """Forward, backward and Adam of WRN-28-2 on 100 images."""
    network = WideResNet(classes=10, depth=28, width=2).to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-4, capturable=device.type == "cuda")
    x, y = torch.zeros(sum(BATCH), 3, 32, 32, device=device), torch.zeros(sum(BATCH), dtype=torch.int64, device=device)

    def run() -> None:
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
            loss = torch.nn.functional.cross_entropy(network(x).float(), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return run


def captured(call: Callable[[], Any]) -> Callable[[], None]:
    """The work of a call as one CUDA graph."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(5):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def seconds(call: Callable[[], Any], least: float) -> float:
    """Time of one call: repeated until `least` seconds are over."""
    wait = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    wait()
    start, count, chunk = time.perf_counter(), 0, 20 if torch.cuda.is_available() else 1
    while count == 0 or time.perf_counter() - start < least:
        for _ in range(chunk):
            call()
        wait()
        count += chunk
    return (time.perf_counter() - start) / count


def contenders(device: torch.device, compile_: bool, network: bool) -> dict[str, Callable[[], Any]]:
    """Every row of the table, by name."""
    x = np.random.default_rng(0).integers(0, 256, (ROWS, 32, 32, 3), dtype=np.uint8)
    batch = ours(x, device)
    calls: dict[str, Callable[[], Any]] = {"ours, eager": stepped(batch, device)}
    if compile_:
        calls["ours, compiled"] = stepped(torch.compile(batch), device)
    calls |= {f"DataLoader of PIL transforms, {workers} workers": loader(x, workers) for workers in (0, 2)}
    if device.type == "cuda":
        calls["ours, captured"] = captured(calls.get("ours, compiled", calls["ours, eager"]))
        calls[NETWORK] = captured(network_step(device))
    elif network:
        calls[NETWORK] = network_step(device)
    return calls


def measure(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Milliseconds of every row in every round; the first round warms up and is left out."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for k in range(rounds + 1):
        for name, call in calls.items():
            taken = 1e3 * seconds(call, 0.3)
            if k:
                times[name].append(taken)
    return times


def hardware(device: torch.device) -> str:
    """The device in words."""
    if device.type == "cuda":
        return torch.cuda.get_device_name()
    names = [
        line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line
    ]
    return f"{names[0] if names else platform.processor()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads"


def summary(times: dict[str, list[float]], device: torch.device) -> dict[str, Any]:
    """Median and spread of every row, and how it was made."""
    rows = {
        name: {"median_ms": statistics.median(taken), "least_ms": min(taken), "greatest_ms": max(taken)}
        for name, taken in times.items()
    }
    versions = {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__}
    n = len(next(iter(times.values())))
    return {"benchmark": "batch", "hardware": hardware(device), "versions": versions, "n": n, "rows": rows}


def table(result: dict[str, Any]) -> str:
    """The rows as text, each beside the loaders and, where that was timed, as a share of the network's step."""
    rows = result["rows"]
    others = [name for name in rows if name.startswith("DataLoader")]
    head = f"{'':40}{'median ms':>11}{'least':>9}{'greatest':>10}"
    lines = [head + "".join(f"{'x ' + name[-9:]:>13}" for name in others)]
    step = rows.get(NETWORK, {"median_ms": float("nan")})["median_ms"]
    for name, row in rows.items():
        ratios = "".join(f"{rows[other]['median_ms'] / row['median_ms']:>13.1f}" for other in others)
        share = f"{100 * row['median_ms'] / step:>10.2f} % of a step" if step == step else ""
        times = f"{row['median_ms']:>11.3f}{row['least_ms']:>9.3f}{row['greatest_ms']:>10.3f}"
        lines.append(f"{name:40}{times}{ratios}{share}")
    return "\n".join([*lines, f"n = {result['n']} rounds; {result['hardware']}; {result['versions']}"])


def main() -> None:
    """Measure, print the table, write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--network", action="store_true")
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_num_threads(options.threads)
    calls = contenders(device, not options.no_compile, options.network)
    result = summary(measure(calls, options.rounds), device)
    print(table(result))
    print(json.dumps(result))
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
