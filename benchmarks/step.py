"""Milliseconds of a training step by method, and its ratio to a plain eager PyTorch loop timed in turns with it.

    python benchmarks/step.py [--quick] [--threads 1 2] [--rounds 9] [--json FILE]

`--quick` (the default where there is no GPU): digits with a small convolutional net and features with an MLP, 50 + 50
examples, one replica. On a GPU: WRN-28-2 on images of CIFAR size, replicas 1 to 20, growth of batch, classes and rows.
The plain loop is what one writes by hand: the same network, passes and augmentation, `torch.optim.Adam`, the default
generator. A row gives the median over rounds with their quartiles, and the part of the floor that is reached: the time
that the counted FLOPs, or the bytes that must move, take at the rates which this machine shows in the same run.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
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


class Plain:
    """A plain eager loop of one method."""

    def __init__(self, work: Work, method: str, shared: Shared, plan: Plan, precision: torch.dtype | None):
        self.work, self.method, self.precision, device = work, method, precision, shared.device
        self.x = torch.from_numpy(shared.data.x).to(device)
        self.y = torch.from_numpy(shared.data.y).to(device)
        self.labeled, self.pool = (torch.from_numpy(i).to(device) for i in (plan.split.labeled, plan.split.unlabeled))
        self.preprocess = shared.preprocess(plan.recipe)
        torch.manual_seed(0)
        self.model = plan.recipe.network_for(shared.data.x.shape[1:]).to(device).train()
        self.norms = [m for m in self.model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=6e-4)

    def step(self) -> None:
        """Draw, forward, backward, update."""
        both = self.method != "supervised"
        xl, y = self.drawn(self.labeled, self.work.batch if both else 2 * self.work.batch)
        xu = self.drawn(self.pool, self.work.batch)[0] if both else None
        with torch.autocast(xl.device.type, self.precision, enabled=self.precision is not None):
            loss = self.mixmatch(xl, y, xu) if "mixmatch" in self.method else self.loss(xl, y, xu)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def drawn(self, members: Tensor, n: int) -> tuple[Tensor, Tensor]:
        """Random examples, preprocessed."""
        index = members[torch.randint(len(members), (n,), device=members.device)]
        return self.preprocess(self.x[index]), self.y[index]

    def augment(self, x: Tensor) -> Tensor:
        """Shift (flip, noise), or noise."""
        if x.dim() == 2:
            return x + 0.1 * torch.randn_like(x)
        n, c, h, w = x.shape
        by = 2 if h == 32 else 1
        move = torch.randint(0, 2 * by + 1, (2, n, 1), device=x.device)
        rows, columns = (torch.arange(side, device=x.device) + m for side, m in zip((h, w), move, strict=True))
        padded = F.pad(x, (by, by, by, by), mode="reflect")
        x = padded.gather(2, rows[:, None, :, None].expand(n, c, h, w + 2 * by))
        x = x.gather(3, columns[:, None, None, :].expand(n, c, h, w))
        if h == 32:
            x = torch.where(torch.rand(n, 1, 1, 1, device=x.device) < 0.5, x.flip(3), x)
            x = x + 0.15 * torch.randn_like(x)
        return x

    @contextmanager
    def still(self) -> Iterator[None]:
        """No running statistics move."""
        for norm in self.norms:
            norm.track_running_stats = False
        yield
        for norm in self.norms:
            norm.track_running_stats = True

    def again(self, x: Tensor) -> Tensor:
        """A further pass."""
        with self.still():
            return self.model(x)

    def loss(self, xl: Tensor, y: Tensor, xu: Tensor | None) -> Tensor:
        """Cross-entropy, and by name what comes on top."""
        x, n = xl if xu is None else torch.cat([xl, xu]), len(xl)
        logits = self.model(self.augment(x))
        loss = F.cross_entropy(logits[:n], y)
        if "ns3l" in self.method:
            one = "one-pass" in self.method
            loss = loss + ns3l(logits[n:] if one else self.again(self.augment(x))[n:], logits[n:], self.work.classes)
        if self.method == "pi":
            target = self.again(self.augment(x))[n:].softmax(1).detach()
            loss = loss + F.mse_loss(logits[n:].softmax(1), target)
        return loss + self.vat(x, logits.detach())[n:].mean() if "vat" in self.method else loss

    def vat(self, x: Tensor, clean: Tensor) -> Tensor:
        """Probe and adversarial pass."""
        r = unit(torch.randn_like(x)).mul_(0.1).requires_grad_()
        probe = divergence(self.again(self.augment(x + r)), clean).sum()
        r = unit(torch.autograd.grad(probe, r)[0])
        return divergence(self.again(self.augment(x + 6 * r)), clean)

    def mixmatch(self, xl: Tensor, y: Tensor, xu: Tensor | None) -> Tensor:
        """Guess, sharpen, mix, three interleaved passes."""
        n, views = len(xl), [self.augment(torch.cat([xl, xu])) for _ in range(2)]
        with torch.no_grad():
            p = sum(self.again(v[n:]).softmax(1) for v in views) / 2
            p = p**2 / (p**2).sum(1, keepdim=True)
        x = torch.cat([views[0][:n], views[0][n:], views[1][n:]])
        targets = torch.cat([F.one_hot(y, self.work.classes).to(p.dtype), p, p])
        share = torch.from_numpy(np.random.beta(0.75, 0.75, len(x)).astype(np.float32)).to(x.device)  # noqa: NPY002
        share, partner = torch.maximum(share, 1 - share), torch.randperm(len(x), device=x.device)
        x = share.view(-1, *[1] * (x.dim() - 1)) * x + (1 - share).view(-1, *[1] * (x.dim() - 1)) * x[partner]
        targets = share[:, None] * targets + (1 - share)[:, None] * targets[partner]
        parts = [self.model(x[0::3]), self.again(x[1::3]), self.again(x[2::3])]
        logits = torch.stack(parts, 1).flatten(0, 1)
        loss = F.cross_entropy(logits[:n], targets[:n]) + F.mse_loss(logits[n:].softmax(1), targets[n:])
        return loss + (ns3l(logits, targets.log(), self.work.classes) if "ns3l" in self.method else 0)


def ns3l(scored: Tensor, chooser: Tensor, classes: int) -> Tensor:
    """-log(1 - sum of the improbable), as one writes it first."""
    negative = chooser.detach().softmax(1) < 0.4 / classes
    return -torch.log1p(-(scored.float().softmax(1) * negative).sum(1).clamp(max=1 - 1e-6)).mean()


def divergence(p: Tensor, q: Tensor) -> Tensor:
    """KL(p || q) by row."""
    p, q = p.float().log_softmax(1), q.float().log_softmax(1)
    return (p.exp() * (p - q)).sum(1)


def unit(x: Tensor) -> Tensor:
    """Rows of norm 1."""
    return x / (x.flatten(1).norm(dim=1).view(-1, *[1] * (x.dim() - 1)) + 1e-12)


Steps = dict[str, tuple[Callable[[], None], int]]


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


def row(work: Work, method: str, how: Any, peak: tuple[float, float], replicas: int = 1) -> dict[str, Any]:
    """Time one method on one work: ours and the plain loop in turns."""
    device, execution = how.device, how.execution
    data, recipe = work.data(), work.recipe(method, execution)
    shared = Shared(data, How(device=device, resident=work.resident or None), Job())
    plans = [Plan(recipe, make_split(data, recipe.split, seed), seed) for seed in range(replicas)]
    draws = [Draw(plan.seed).stream("initialization") for plan in plans]
    networks = [build(lambda: recipe.network_for(data.x.shape[1:]), draw) for draw in draws]
    pairs = zip(plans, networks, strict=True)
    with settings(execution, device):
        made = [Replica(recipe, shared.source(plan), net, plan.seed, device, Job()) for plan, net in pairs]
        least = floor(made[0], peak) * replicas
        engine = Engine(made, execution)
    step = 0

    def ours() -> None:
        nonlocal step
        with settings(execution, device):
            engine.advance(step, how.steps)
        step += how.steps

    plain = Plain(work, method, shared, plans[0], made[0].precision)
    taken = timed({"ours": (ours, 1), "plain": (plain.step, how.steps)}, how.rounds, device)
    each = [ms / how.steps / replicas for ms in taken["ours"]]
    result = {"work": work.name, "method": method, "batch": work.batch, "classes": work.classes, "rows": work.rows}
    result |= {
        "precision": execution.precision,
        "deterministic": execution.deterministic,
        "replicas": replicas,
        "threads": torch.get_num_threads(),
        "mode": engine.mode,
        "note": engine.reason,
    }
    result |= {"ms": summary(each), "plain_ms": summary(taken["plain"]), "floor_ms": least / replicas}
    result["ratio"] = result["ms"]["median"] / result["plain_ms"]["median"]
    result["of_floor"] = least / replicas / result["ms"]["median"]
    return result


def summary(values: list[float]) -> dict[str, float]:
    """Median and quartiles of the rounds."""
    low, middle, high = statistics.quantiles(values, n=4)
    return {"median": middle, "lower": low, "upper": high, "n": len(values)}


def rows(how: Any) -> Iterator[dict[str, Any]]:
    """Every row of the table, as it is done."""
    for threads in how.threads:
        torch.set_num_threads(threads)
        peak = rates(how.device, torch.bfloat16 if how.execution.precision == "bf16" else torch.float32)
        if how.quick:
            yield from (row(work, method, how, peak) for work in (DIGITS, FEATURES) for method in how.methods)
            continue
        yield from (row(CIFAR, method, how, peak, 5) for method in how.methods)
        yield from (row(CIFAR, "ns3l-one-pass", how, peak, n) for n in (1, 2, 10, 20))
        yield from (row(CIFAR, "ns3l-one-pass", changed(how, **changes), peak, 5) for changes in VARIANTS)
        yield from (row(replace(CIFAR, batch=n), "ns3l-one-pass", how, peak) for n in (200, 800))
        yield from (row(replace(CIFAR, classes=n), "ns3l-one-pass", how, peak) for n in (100, 1000, 10_000))
        yield from (row(replace(CIFAR, rows=n, resident=False), "ns3l", how, peak) for n in (10**4, 10**6, 10**7))


VARIANTS = ({"deterministic": True}, {"deterministic": True, "precision": "float32", "channels_last": False})


def changed(how: Any, **changes: Any) -> Any:
    """The same with another execution."""
    return argparse.Namespace(**{**vars(how), "execution": replace(how.execution, **changes)})


def options() -> Any:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", default=not torch.cuda.is_available())
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2] if not torch.cuda.is_available() else [1])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--json", type=Path)
    how = parser.parse_args()
    how.device = torch.device("cuda" if torch.cuda.is_available() and not how.quick else "cpu")
    fast = Execution(precision="bf16", deterministic=False, channels_last=True)
    how.execution = fast if how.device.type == "cuda" else Execution()
    return how


def main() -> None:
    """Time, print the table, write JSON."""
    how = options()
    print(f"{hardware()}, torch {torch.__version__}, load {os.getloadavg()[0]:.1f}")
    print(f"{'work':9} {'method':18} thr   R {'ms':>8} {'quartiles':>17} {'plain':>8} ratio  of floor")
    done = []
    for found in rows(how):
        ms = found["ms"]
        print(
            f"{found['work']:9} {found['method']:18} {found['threads']:3} {found['replicas']:3} {ms['median']:8.3f} "
            f"{ms['lower']:8.3f}-{ms['upper']:8.3f} {found['plain_ms']['median']:8.3f} {found['ratio']:5.2f} "
            f"{found['of_floor']:8.2f}  {found['note']}",
            flush=True,
        )
        done.append(found)
        if how.json:
            how.json.parent.mkdir(parents=True, exist_ok=True)
            how.json.write_text(json.dumps({"environment": environment(), "rows": done}, indent=1, default=str) + "\n")


if __name__ == "__main__":
    main()
