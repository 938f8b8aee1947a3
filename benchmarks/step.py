"""Milliseconds of a training step by method, and its ratio to a plain eager PyTorch loop timed in turns with it.

    python benchmarks/step.py [--only WORDS …] [--warm 8] [--rounds 9] [--threads 1 2] [--json FILE]
    python benchmarks/step.py --table benchmarks/measured/step-*.json

On a CPU: digits with a small convolutional net and features with an MLP, 50 + 50 examples, one replica. On a GPU:
WRN-28-2 on images of CIFAR size, replicas 1 to 20, other forms of execution, growth of batch, classes and rows;
`--warm N` first compiles all rows in N processes at once, so that the rows themselves find their kernels on disk.
`--only` takes the rows whose names hold one of these words. The plain loop (plain.py) is what one writes by hand. A row
gives the median over rounds with their quartiles, and the part of the floor that is reached: the time that the counted
FLOPs, or the bytes that must move, take at the rates which this machine shows in the same run. `--table` writes the
table in docs/speed.md.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ns3l.augment import Augmentation, Flip, Noise, Shift
from ns3l.batch import BatchSize
from ns3l.data.dataset import Dataset
from ns3l.distributed import Job
from ns3l.draw import Draw
from ns3l.engine import Engine, Replica, settings
from ns3l.environment import environment, hardware
from ns3l.methods import terms_of
from ns3l.networks import build
from ns3l.optimize import Adam
from ns3l.preprocess import Scale, Standardize
from ns3l.recipe import Execution, Network, Recipe, Weighted
from ns3l.schedule import Ramp
from ns3l.shared import How, Plan, Shared
from ns3l.split import SplitRequest, make_split
from plain import Plain

METHODS = ("supervised", "ns3l-one-pass", "ns3l", "pi", "vat", "vat+ns3l-one-pass", "mixmatch", "mixmatch+ns3l")


@dataclass(frozen=True)
class Work:
    """What is trained on: rows, classes, network, batch."""

    name: str
    shape: tuple[int, ...]
    network: Network
    rows: int = 1797
    classes: int = 10
    batch: int = 50
    resident: bool = True

    def data(self) -> Dataset:
        """Random rows: no value changes the time."""
        draw = np.random.default_rng(0)
        some = draw.integers(0, 256, (min(self.rows, 50_000), *self.shape), dtype=np.uint8)
        x = np.resize(some, (self.rows, *self.shape))
        rows = x if len(self.shape) == 3 else x.astype(np.float32)
        y = np.arange(self.rows) % self.classes
        return Dataset(self.name, rows, y, tuple(map(str, range(self.classes))))

    def augmentation(self) -> Augmentation:
        """Of images of CIFAR size, of small ones, of features."""
        if len(self.shape) != 3:
            return Augmentation((Noise(0.1),))
        return Augmentation((Shift(2), Flip(), Noise(0.15)) if self.shape[0] == 32 else (Shift(1),))

    def recipe(self, method: str, execution: Execution) -> Recipe:
        """The method on this work."""
        terms, builder = terms_of(method, self.classes)
        weighted = {n: Weighted(1.0 if n == "supervised" else Ramp(1.0, 1000), t) for n, t in terms.items()}
        both = len(terms) > 1
        return Recipe(
            method, self.name, self.classes, weighted, builder, self.network,
            Scale() if len(self.shape) == 3 else Standardize(), self.augmentation(),
            BatchSize(self.batch if both else 2 * self.batch, self.batch if both else 0),
            Adam(6e-4), 100_000, statistics="first_interleaved" if builder else "joint",
            split=SplitRequest(labels=40 * self.classes if self.classes <= 1000 else self.classes), execution=execution,
        )  # fmt: skip


DIGITS = Work("digits", (8, 8, 1), Network("small-conv-net"))
FEATURES = Work("features", (30,), Network("mlp"))
CIFAR = Work("cifar", (32, 32, 3), Network("wide-resnet"), rows=50_000)


Steps = dict[str, tuple[Callable[[], None], int]]
FAST = Execution(precision="bf16", channels_last=True)
"""What `--fast` sets."""


@dataclass(frozen=True)
class Row:
    """One line of the table: a method on some work, how many replicas side by side, in which form of execution."""

    work: Work
    method: str
    replicas: int = 1
    execution: Execution = field(default_factory=Execution)
    threads: int = 1

    @property
    def name(self) -> str:
        """What tells it from the others."""
        work, how = self.work, self.execution
        told = [
            work.name,
            self.method,
            f"R={self.replicas}",
            f"threads={self.threads}" if how.precision != "bf16" else "",
        ]
        told += [f"batch={work.batch}" * (work.batch != 50), f"classes={work.classes}" * (work.classes != 10)]
        told += [
            f"rows={work.rows}" * (not work.resident),
            "free" * (not how.deterministic),
            "autotuned" * how.autotune,
        ]
        return " ".join(word for word in [*told, how.precision, how.mode * (how.mode != "auto")] if word)


def rows(device: torch.device, threads: list[int]) -> list[Row]:
    """Every row of the table."""
    if device.type == "cpu":
        made = [Row(work, m, 1, Execution(), n) for n in threads for work in (DIGITS, FEATURES) for m in METHODS]
        whole = Execution(mode="compiled")
        both = ("ns3l-one-pass", "vat+ns3l-one-pass")
        return made + [Row(work, m, 1, whole, n) for n in threads for work in (DIGITS, FEATURES) for m in both]
    one, forms = "ns3l-one-pass", [replace(FAST, deterministic=False), replace(FAST, autotune=True), Execution()]
    made = [Row(replace(CIFAR, batch=64) if "mixmatch" in m else CIFAR, m, 5, FAST) for m in METHODS]
    made += [Row(CIFAR, one, n, FAST) for n in (1, 2)]
    made += [Row(CIFAR, one, 5, form) for form in (*forms, replace(FAST, mode="eager"))]
    made += [Row(replace(CIFAR, batch=n), one, 1, FAST) for n in (200, 800)]
    made += [Row(replace(CIFAR, classes=n), one, 1, FAST) for n in (100, 1000, 10_000)]
    made += [Row(replace(CIFAR, rows=n, resident=False), one, 1, FAST) for n in (10**4, 10**6)]
    return [
        *made,  # what takes longest to make ready comes last
        *(Row(CIFAR, one, n, FAST) for n in (10, 20)),
        Row(replace(CIFAR, rows=10**7, resident=False), one, 1, FAST),
    ]


def timed(steps: Steps, rounds: int, device: torch.device) -> dict[str, list[float]]:
    """Milliseconds of each by round, in turns: of the clock, or on one CPU thread of the processor."""
    clock = time.process_time if device.type == "cpu" and torch.get_num_threads() == 1 else time.perf_counter
    taken: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(-2, rounds):
        for name, (step, count) in steps.items():
            _wait(device)
            begin = clock()
            for _ in range(count):
                step()
            _wait(device)
            if turn >= 0:
                taken[name].append((clock() - begin) / count * 1e3)
    return taken


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def rates(device: torch.device, precision: torch.dtype) -> tuple[float, float]:
    """FLOP/s of a large matrix product and bytes/s of a large copy, here and now."""
    size, words = (8192, 2**28) if device.type == "cuda" else (1024, 2**24)
    a, big = torch.randn(size, size, device=device, dtype=precision), torch.empty(words, device=device)
    steps = {"product": (lambda: a @ a, 5), "copy": (big.clone, 5)}
    best = {name: min(taken) / 1e3 for name, taken in timed(steps, 5, device).items()}
    return 2 * size**3 / best["product"], 8 * words / best["copy"]


def floor(replica: Replica, peak: tuple[float, float]) -> float:
    """Milliseconds that a step takes at least: its FLOPs, or its bytes if these take longer.

    Bytes: what convolutions and dense layers read and write, three times (forward, gradient to input, to weight) where
    a gradient is taken, and seven float32 for every weight (read w, g, m, v; write w, m, v).
    """
    from torch.utils.flop_counter import FlopCounterMode

    moved = [28 * len(replica.flat.vector)]

    def count(_: nn.Module, given: tuple[Tensor, ...], result: Tensor) -> None:
        width = 2 if replica.precision else 4
        moved[0] += (3 if torch.is_grad_enabled() else 1) * width * (given[0].numel() + result.numel())

    layers = [m for m in replica.student.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    marks = [layer.register_forward_hook(count) for layer in layers]
    with FlopCounterMode(display=False) as counter:
        replica.step()
    for mark in marks:
        mark.remove()
    return max(counter.get_total_flops() / peak[0], moved[0] / peak[1]) * 1e3


class Made:
    """A row made ready: its replicas, and what they are fed."""

    def __init__(self, row: Row, device: torch.device) -> None:
        data, self.recipe = row.work.data(), row.work.recipe(row.method, row.execution)
        self.shared = Shared(data, How(device=device, resident=row.work.resident or None), Job())
        self.plans = [
            Plan(self.recipe, make_split(data, self.recipe.split, seed), seed) for seed in range(row.replicas)
        ]
        self.replicas = [self._replica(plan) for plan in self.plans]

    def _replica(self, plan: Plan) -> Replica:
        shape, draw = self.shared.data.x.shape[1:], Draw(plan.seed).stream("initialization")
        network = build(lambda: self.recipe.network_for(shape), draw)
        return Replica(self.recipe, self.shared.source(plan), network, plan.seed, self.shared.device, Job())


def measured(row: Row, how: Any, peak: tuple[float, float]) -> dict[str, Any]:
    """Time a row: ours and the plain loop in turns."""
    began, step = time.perf_counter(), 0
    with settings(row.execution, how.device):
        made = Made(row, how.device)
        least = floor(made.replicas[0], peak)
        engine = Engine(made.replicas, row.execution)
    ready = time.perf_counter() - began

    def ours() -> None:
        nonlocal step
        with settings(row.execution, how.device):
            engine.advance(step, how.steps)
        step += how.steps

    plain = Plain(row.method, made.shared, made.plans[0], made.replicas[0].precision)
    taken = timed({"ours": (ours, 1), "plain": (plain.step, how.steps)}, how.rounds, how.device)
    ms, by_hand = summary([ms / how.steps / row.replicas for ms in taken["ours"]]), summary(taken["plain"])
    told = {"name": row.name, "work": row.work.name, "method": row.method, "replicas": row.replicas}
    told |= {"threads": torch.get_num_threads(), "mode": engine.mode, "note": engine.reason, "ready_s": ready}
    told |= {"ms": ms, "plain_ms": by_hand, "ratio": ms["median"] / by_hand["median"]}
    return told | {"floor_ms": least, "of_floor": least / ms["median"]}


def summary(values: list[float]) -> dict[str, float]:
    """Median and quartiles of the rounds."""
    low, middle, high = statistics.quantiles(values, n=4)
    return {"median": middle, "lower": low, "upper": high, "n": len(values)}


def warm(chosen: list[Row], how: Any) -> None:
    """Compile rows in processes side by side; what they compile stays on disk. Replicas share it, so one is enough."""
    kinds = list(dict.fromkeys(replace(row, replicas=1).name for row in chosen if row.execution.mode != "eager"))
    waiting, running = kinds[::-1], []
    while waiting or running:
        running = [process for process in running if process.poll() is None]
        while waiting and len(running) < how.warm:
            command = [sys.executable, __file__, "--compile", waiting.pop()]
            running.append(subprocess.Popen(command))
        time.sleep(0.1)


def compiled(name: str, how: Any) -> None:
    """Make one row of one replica ready, and nothing else."""
    known = {replace(row, replicas=1).name: replace(row, replicas=1) for row in rows(how.device, how.threads)}
    with settings(known[name].execution, how.device):
        engine = Engine(Made(known[name], how.device).replicas, known[name].execution)
    print(f"compiled: {name} ({engine.mode} {engine.reason})", flush=True)


def options() -> Any:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[""], help="rows whose names hold one of these")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2] if not torch.cuda.is_available() else [1])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warm", type=int, default=0, help="compile first, in so many processes")
    parser.add_argument("--compile", metavar="ROW", help="compile one row, time nothing")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--table", type=Path, nargs="+", help="write the table of these files, measure nothing")
    how = parser.parse_args()
    how.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return how


def table(files: list[Path]) -> None:
    """The committed measurements as the table of docs/speed.md."""
    page = Path(__file__).resolve().parent.parent / "docs" / "_speed.md"
    page.write_text("\n".join(section(json.loads(file.read_text())) for file in files))


def section(found: dict[str, Any]) -> str:
    """One machine's rows in Markdown."""
    lines = [
        f"### {hardware(found['environment'])}",
        "",
        f"`{found['command']}`, torch {found['torch']}, {found['day']}",
    ]
    lines += ["", "| row | ms a step and replica | plain loop | ratio | of the floor | mode |"]
    lines += ["|---|---:|---:|---:|---:|---|"]
    for row in found["rows"]:
        spread = [
            f"{one['median']:.2f} ({one['lower']:.2f}–{one['upper']:.2f})" for one in (row["ms"], row["plain_ms"])
        ]
        mode = row["mode"] + f": {row['note']}" * bool(row["note"])
        lines.append(f"| {row['name']} | {' | '.join(spread)} | {row['ratio']:.2f} | {row['of_floor']:.2f} | {mode} |")
    return "\n".join(lines) + "\n"


def record(how: Any, done: list[dict[str, Any]], peak: tuple[float, float]) -> None:
    """What was measured so far, as JSON."""
    told = {"command": " ".join(["python benchmarks/step.py", *sys.argv[1:]]), "torch": torch.__version__}
    told |= {"day": time.strftime("%Y-%m-%d"), "flops": peak[0], "bytes_per_s": peak[1], "load": os.getloadavg()[0]}
    about = {name: value for name, value in environment().items() if name != "command"}
    how.json.parent.mkdir(parents=True, exist_ok=True)
    how.json.write_text(json.dumps(told | {"environment": about, "rows": done}, indent=1, default=str) + "\n")


def main() -> None:
    """Time, print the table, write JSON."""
    how = options()
    if how.table or how.compile:
        table(how.table) if how.table else compiled(how.compile, how)
        return
    chosen = [row for row in rows(how.device, how.threads) if any(word in row.name for word in how.only)]
    if how.warm:
        warm(chosen, how)
    print(f"{hardware()}, torch {torch.__version__}, load {os.getloadavg()[0]:.1f}")
    print(f"{'row':50} {'ms':>8} {'quartiles':>17} {'plain':>8} ratio  of floor  ready in s")
    peaks = {
        dtype: rates(how.device, dtype)
        for dtype in {torch.bfloat16 if r.execution.precision == "bf16" else torch.float32 for r in chosen}
    }
    done: list[dict[str, Any]] = []
    for row in chosen:
        torch.set_num_threads(row.threads)
        peak = peaks[torch.bfloat16 if row.execution.precision == "bf16" else torch.float32]
        try:
            done.append(found := measured(row, how, peak))
        except RuntimeError as problem:  # out of memory, say: the other rows are still worth their time
            print(f"{row.name:50} failed: {problem}", flush=True)
            continue
        ms, plain = found["ms"], found["plain_ms"]["median"]
        print(
            f"{row.name:50} {ms['median']:8.3f} {ms['lower']:8.3f}-{ms['upper']:8.3f} {plain:8.3f} "
            f"{found['ratio']:5.2f} {found['of_floor']:8.2f} {found['ready_s']:11.0f} {found['note']}",
            flush=True,
        )
        if how.json:
            record(how, done, peak)


if __name__ == "__main__":
    main()
