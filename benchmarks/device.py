"""The riskiest assumptions of the engine, tried on a GPU in one go; writes device.json into the folder given by --out.

    python benchmarks/device.py --out FOLDER

0. What it costs to start a kernel: a graph of empty ones, in one branch, five and ten.
1. Which kernels take the time of a step: NS3L with one pass and VAT, WRN-28-2, 50 + 50, bf16, one replica and five.
2. In deterministic mode the weights after 200 steps hash the same for 1 and 5 replicas.
3. VAT's direction on a net trained for 300 steps, with passes in bf16, against the one in float64, both with the same
   draws: mean cosine, under the same and under fresh augmentation.
"""

import argparse
import hashlib
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ns3l.draw import Draw
from ns3l.engine import Engine, Replica, settings
from ns3l.environment import environment
from ns3l.objective import Forward
from ns3l.passes import Passes
from ns3l.recipe import Execution
from ns3l.terms.vat import VirtualAdversarial
from step import CIFAR, FAST, Made, Row

KINDS = {
    "convolution, gradient of weights": "wgrad|ReduceSplitK|init_device_workspace|ImplicitGemmConvolution",
    "convolution, gradient of inputs": "dgrad",
    "convolution, forward": "fprop|convolve_common",
    "batch norm and leaky ReLU": "batch_norm",
    "draws and augmentation": "rshift|bitwise",
    "Adam and the latch": "to_copy_add|lerp|where|fused_sum",
    "rounding weights and gradients": "to_copy",
}
"""Patterns in the names of kernels, the first that is found counts."""


def empty(branches: int) -> float:
    """Microseconds a kernel in a graph of 500 kernels for every branch that do next to nothing."""
    numbers = [torch.zeros(64, device="cuda") for _ in range(branches)]
    streams = [torch.cuda.Stream() for _ in numbers]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        main = torch.cuda.current_stream()
        for stream in streams:
            stream.wait_stream(main)
        for stream, number in zip(streams, numbers, strict=True):
            with torch.cuda.stream(stream):
                for _ in range(500):
                    number.add_(1)
        for stream in streams:
            main.wait_stream(stream)
    graph.replay()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(20):
        graph.replay()
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / (20 * 500 * branches) * 1e6


def kernels(method: str, replicas: int) -> dict[str, Any]:
    """Every kernel of ten steps of some replicas, by kind and the longest first; of one replica, their time alone."""
    with settings(FAST, torch.device("cuda")):
        engine = Engine(Made(Row(CIFAR, method, replicas, FAST), torch.device("cuda")).replicas, FAST)
        engine.advance(0, 50)
        torch.cuda.synchronize()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            engine.advance(50, 10)
            torch.cuda.synchronize()
    steps = 10 * replicas
    found = sorted(
        ((e.key, e.count / steps, e.self_device_time_total / steps) for e in profile.key_averages()),
        key=lambda row: -row[2],
    )
    kinds: dict[str, list[float]] = {}
    for name, calls, us in found:
        kind = next((kind for kind, pattern in KINDS.items() if re.search(pattern, name)), "all others")
        before = kinds.get(kind, [0.0, 0.0])
        kinds[kind] = [before[0] + calls, before[1] + us]
    longest = [{"kernel": name[:120], "calls_a_step": calls, "us_a_step": us} for name, calls, us in found[:40]]
    ms, calls = sum(us for _, _, us in found) / 1e3, sum(calls for _, calls, _ in found)
    told = {"mode": engine.mode, "note": engine.reason, "ms_summed": ms, "calls": calls}
    return told | {"calls_and_us_by_kind": kinds, "longest": longest}


def hashed(count: int) -> dict[str, str]:
    """sha256 of the first replica's weights after 200 deterministic steps."""
    with settings(FAST, torch.device("cuda")):
        made = Made(Row(CIFAR, "vat+ns3l-one-pass", count, FAST), torch.device("cuda")).replicas
        engine = Engine(made, FAST)
        engine.advance(0, 200)
    weights = made[0].flat.vector.cpu().numpy().tobytes()
    return {"hash": hashlib.sha256(weights).hexdigest(), "mode": engine.mode, "note": engine.reason}


def direction(augmentation: Any, precision: torch.dtype | None, dtype: torch.dtype, replica: Replica) -> torch.Tensor:
    """VAT's direction on one batch."""
    student, draw = replica.student.to(dtype), Draw(0, 0, "cuda")
    batch = replica.source.batch(draw)
    x = {view: rows.to(dtype) for view, rows in batch.x.items()}
    passes = Passes(student, None, type(batch)(x, batch.y, batch.augment), draw, precision)
    logits = passes.named(("labeled", "unlabeled"), passes.run(passes.render("first")))
    found = VirtualAdversarial(augmentation=augmentation).direction(passes, Forward(passes.batch, logits, draw))
    return found.double().flatten(1)


def cosine(augmentation: Any) -> float:
    """Mean cosine of the direction in bf16 and in float64, on a net trained for 300 steps."""
    execution = Execution(precision="bf16", mode="eager")
    with settings(execution, torch.device("cuda")):
        replica = Made(Row(CIFAR, "vat", 1, execution), torch.device("cuda")).replicas[0]
        Engine([replica], execution).advance(0, 300)
        half = direction(augmentation, torch.bfloat16, torch.float32, replica)
        return float((half * direction(augmentation, None, torch.float64, replica)).sum(1).mean())


def tried(question: Any, *given: Any) -> Any:
    """An answer, or why there is none."""
    try:
        return question(*given)
    except Exception as problem:  # the other questions are still worth asking
        return {"failed": f"{type(problem).__name__}: {problem}"[:500]}


QUESTIONS: tuple[tuple[Callable[..., Any], tuple[Any, ...]], ...] = (
    *((empty, (branches,)) for branches in (1, 5, 10)),
    (kernels, ("ns3l-one-pass", 1)),
    (kernels, ("ns3l-one-pass", 5)),
    (kernels, ("vat", 5)),
    (hashed, (1,)),
    (hashed, (5,)),
    (cosine, ("same",)),
    (cosine, ("fresh",)),
)


def main() -> None:
    """Ask, write what came after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build"))
    parser.add_argument("--only", nargs="+", default=["empty", "kernels", "hashed", "cosine"])
    asked = parser.parse_args()
    if not torch.cuda.is_available():
        print("nothing to try: these questions need a CUDA device")
        return
    asked.out.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {"environment": environment()}
    for question, given in QUESTIONS:
        name = question.__name__  # type: ignore[attr-defined]
        if name in asked.only:
            found[f"{name} {' '.join(map(str, given))}"] = answer = tried(question, *given)
            print(name, *given, json.dumps(answer, indent=1)[:3000], flush=True)
            (asked.out / "device.json").write_text(json.dumps(found, indent=1, default=str) + "\n")


if __name__ == "__main__":
    main()
