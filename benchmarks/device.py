"""The riskiest assumptions of the engine, tried on a GPU in one go; writes device.json into the folder given by --out.

    CUBLAS_WORKSPACE_CONFIG=:4096:8 python benchmarks/device.py --out FOLDER

1. Stateless draws, compiled, in parallel branches of one graph: ms of a replica-step of NS3L with one pass, WRN-28-2,
   50 + 50, bf16, for 1 and 5 replicas, and the parts of the step's kernels that take the time.
2. In deterministic mode the weights after 200 steps hash the same for 1 and 5 replicas.
3. VAT's direction with passes in bf16 against the one in float64, on the same augmentation: mean cosine.
"""

import argparse
import hashlib
import json
import time
from pathlib import Path
from typing import Any

import torch

from ns3l.distributed import Job
from ns3l.draw import Draw
from ns3l.engine import Engine, Replica, settings
from ns3l.environment import environment
from ns3l.networks import build
from ns3l.objective import Forward
from ns3l.passes import Passes
from ns3l.recipe import Execution
from ns3l.shared import How, Plan, Shared
from ns3l.split import make_split
from ns3l.terms.vat import VirtualAdversarial
from step import CIFAR


def replicas(method: str, execution: Execution, count: int) -> list[Replica]:
    """Seeds 0 … of a method on images of CIFAR size."""
    data, recipe = CIFAR.data(), CIFAR.recipe(method, execution)
    shared, made = Shared(data, How(device="cuda"), Job()), []
    for seed in range(count):
        plan = Plan(recipe, make_split(data, recipe.split, seed), seed)
        network = build(lambda: recipe.network_for(data.x.shape[1:]), Draw(seed).stream("initialization"))
        made.append(Replica(recipe, shared.source(plan), network, seed, shared.device, Job()))
    return made


def speed(count: int) -> dict[str, Any]:
    """ms of a replica-step by round, and the longest kernels."""
    execution = Execution(precision="bf16", deterministic=False, channels_last=True)
    with settings(execution, torch.device("cuda")):
        began = time.perf_counter()
        engine = Engine(replicas("ns3l-one-pass", execution, count), execution)
        engine.advance(0, 50)
        torch.cuda.synchronize()
        ready, rounds = time.perf_counter() - began, []
        for turn in range(9):
            began = time.perf_counter()
            engine.advance(50 + 100 * turn, 100)
            torch.cuda.synchronize()
            rounds.append((time.perf_counter() - began) * 10 / count)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            engine.advance(950, 10)
            torch.cuda.synchronize()
    table = profile.key_averages().table(sort_by="cuda_time_total", row_limit=15, max_name_column_width=60)
    return {"ms": rounds, "ready_s": ready, "mode": engine.mode, "note": engine.reason, "kernels": table.splitlines()}


def hashed(count: int) -> dict[str, str]:
    """sha256 of the first replica's weights after 200 deterministic steps."""
    execution = Execution(precision="bf16", deterministic=True, channels_last=True)
    with settings(execution, torch.device("cuda")):
        made = replicas("vat+ns3l", execution, count)
        engine = Engine(made, execution)
        engine.advance(0, 200)
    weights = made[0].flat.vector.cpu().numpy().tobytes()
    return {"hash": hashlib.sha256(weights).hexdigest(), "mode": engine.mode, "note": engine.reason}


def direction(precision: torch.dtype | None, dtype: torch.dtype, replica: Replica) -> torch.Tensor:
    """VAT's direction on one batch."""
    student, draw = replica.student.to(dtype), Draw(0, 0, "cuda")
    batch = replica.source.batch(draw)
    x = {view: rows.to(dtype) for view, rows in batch.x.items()}
    passes = Passes(student, None, type(batch)(x, batch.y, batch.augment), draw, precision)
    logits = passes.named(("labeled", "unlabeled"), passes.run(passes.render("first")))
    found = VirtualAdversarial(augmentation="same").direction(passes, Forward(passes.batch, logits, draw))
    return found.double().flatten(1)


def cosine() -> float:
    """Mean cosine of the direction in bf16 and in float64, on a net trained for 300 steps."""
    execution = Execution(precision="bf16", deterministic=False)
    with settings(execution, torch.device("cuda")):
        replica = replicas("vat", execution, 1)[0]
        Engine([replica], execution).advance(0, 300)
        half = direction(torch.bfloat16, torch.float32, replica)
        return float((half * direction(None, torch.float64, replica)).sum(1).mean())


def tried(question: Any, *given: Any) -> Any:
    """An answer, or why there is none."""
    try:
        return question(*given)
    except Exception as problem:  # the other questions are still worth asking
        return {"failed": f"{type(problem).__name__}: {problem}"[:500]}


def main() -> None:
    """Ask all three, write what came."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build"))
    out = parser.parse_args().out
    if not torch.cuda.is_available():
        print("nothing to try: these questions need a CUDA device")
        return
    found = {"environment": environment(), "speed": {n: tried(speed, n) for n in (1, 5)}}
    found |= {"hashes": {n: tried(hashed, n) for n in (1, 5)}, "vat_cosine": tried(cosine)}
    out.mkdir(parents=True, exist_ok=True)
    (out / "device.json").write_text(json.dumps(found, indent=1, default=str) + "\n")
    print(json.dumps({name: value for name, value in found.items() if name != "environment"}, indent=1)[:8000])


if __name__ == "__main__":
    main()
