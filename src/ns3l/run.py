"""One run while it is trained: begun or taken up, evaluated, recorded, saved, ended."""

import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ns3l.data.dataset import Dataset
from ns3l.distributed import Job, synchronize
from ns3l.draw import Draw
from ns3l.engine import Fault, Replica
from ns3l.environment import environment, hardware
from ns3l.errors import RecipeError, RunError
from ns3l.evaluate import Errors, evaluate, logits_of
from ns3l.model import Model, load_model
from ns3l.networks import build
from ns3l.progress import EventWriter, Progress
from ns3l.record import RunFolder, read_json
from ns3l.shared import How, Plan, Shared


@dataclass(frozen=True)
class Trained:
    """The end of one run."""

    plan: Plan
    result: dict[str, Any]
    model: Model | None


@dataclass
class Run:
    """A run while it is trained: its replica, folder, history and best weights so far."""

    plan: Plan
    replica: Replica
    preprocess: nn.Module
    data: Dataset
    folder: RunFolder | None = None
    errors: Errors = field(default_factory=Errors)
    best: dict[str, Tensor] | None = None
    before: float = 0.0  # seconds of training in earlier processes
    began: float = field(default_factory=time.monotonic)
    first_step: int = 0
    done: bool = False
    fault: Fault | None = None
    events: EventWriter | None = None

    @property
    def network(self) -> nn.Module:
        """What is evaluated: the student or its average."""
        if self.plan.recipe.evaluation.weights == "average":
            assert self.replica.average is not None
            return self.replica.average.network
        return self.replica.student

    @property
    def seconds(self) -> float:
        """Training time so far, over all processes that worked on it."""
        return self.before + time.monotonic() - self.began


def begin(plan: Plan, shared: Shared) -> Run:
    """A run at its first step, or where its checkpoint left it."""
    recipe, data, place = plan.recipe, shared.data, shared.place
    plan.split.check(data)
    recipe.augmentation.check(recipe.preprocessing, data.x.shape[1:])
    if recipe.network.name == "mlp" and (recipe.batch.labeled + recipe.batch.unlabeled) < 2:
        raise RecipeError("batch norm over features needs at least 2 rows a batch; give batch.labeled of 2 or more")
    if len(data.classes) != recipe.classes:
        raise RecipeError(f"the recipe is for {recipe.classes} classes, {data.name} has {len(data.classes)}")
    factory = shared.how.network or (lambda: recipe.network_for(data.x.shape[1:]))
    network = build(factory, Draw(plan.seed).stream("initialization"))
    if recipe.execution.synchronized and place.world > 1:
        synchronize(network)
    replica = Replica(recipe, shared.source(plan), network, plan.seed, shared.device, place)
    run = Run(plan, replica, shared.preprocess(recipe), data)
    if plan.path is not None and place.first:
        told = {**environment(), "threads": torch.get_num_threads(), "device": str(shared.device)}
        run.folder = RunFolder.open(plan.path, recipe.to_dict(), plan.split.to_dict(), plan.seed, told)
        if shared.how.tensorboard:
            run.events = EventWriter(plan.path / "events")
    try:
        _resume(run, place)
    except BaseException:
        close(run)  # or this process would hold the folder's lock
        raise
    return run


def _resume(run: Run, place: Job) -> None:
    found = run.folder.load_checkpoint() if run.folder else None
    if found is not None:
        tensors, meta = found
        if missing := run.replica.state().keys() - tensors.keys():
            raise RunError(
                f"The checkpoint in {run.plan.path} lacks {', '.join(sorted(missing)[:3])}: another version of ns3l "
                "wrote it. Finish the run with that version, or train anew in another folder."
            )
        run.replica.load(tensors)
        run.replica.fault.fill_(-1)
        run.errors = Errors(tuple((step, validation, test) for step, validation, test in meta["history"]))
        run.before = meta["seconds"]
        best = {name.removeprefix("best."): value for name, value in tensors.items() if name.startswith("best.")}
        run.best = best or None
    if place.world > 1:
        for value in run.replica.state().values():
            torch.distributed.broadcast(value, 0)
    run.first_step = int(run.replica.count)


def save(runs: list[Run], step: int) -> None:
    """A checkpoint of every run that is under way."""
    for run in runs:
        if run.folder is not None and not run.done:
            tensors = run.replica.state() | {f"best.{name}": value for name, value in (run.best or {}).items()}
            meta = {"step": step, "history": list(run.errors.history), "seconds": run.seconds}
            run.folder.save_checkpoint(tensors, meta)


def look(run: Run, step: int, place: int, progress: Progress, how: How) -> None:
    """Evaluate a run, record what is seen, keep the best weights, notice what ends it."""
    run.fault = run.replica.found_fault()
    if run.fault is not None:
        run.done = True
        run.replica.rest()
        _fail(run, progress)
        return
    validation, test = _error(run, "validation"), _error(run, "test")
    metrics = _metrics(run, step, validation, test)
    run.errors = run.errors.after(step, validation, test)
    if validation is not None and run.errors.best_step == step:
        run.best = {name: value.detach().clone() for name, value in run.network.state_dict().items()}
    if run.folder is not None:
        run.folder.append(metrics)
    if run.events is not None:
        run.events.write(step, metrics)
    progress.update(place, step, metrics)
    patience, best = run.plan.recipe.evaluation.patience, run.errors.best_step
    run.done = patience is not None and best is not None and step - best >= patience * run.plan.recipe.evaluation.every
    run.done = (how.watch is not None and how.watch(run.plan, metrics)) or run.done
    if run.done:
        run.replica.rest()


def _fail(run: Run, progress: Progress) -> None:
    """Say and record where the numbers stopped being finite, with the state before that step."""
    assert run.fault is not None
    message = f"not finite at step {run.fault.step}: {run.fault.what}; weights stay as before that step"
    progress.say(f"{run.plan.recipe.method} seed {run.plan.seed}: {message}")
    if run.folder is not None:
        meta = {"step": run.fault.step, "history": list(run.errors.history), "seconds": run.seconds}
        best = {f"best.{name}": value for name, value in (run.best or {}).items()}
        run.folder.save_checkpoint(run.replica.state() | best, meta)
        run.folder.fail(message, _summary(run))


def _metrics(run: Run, step: int, validation: float | None, test: float | None) -> dict[str, Any]:
    weights, negatives = run.replica.objective.weights_at(step), run.replica.diagnose()
    told = {
        "step": step,
        "seconds": run.seconds,
        "loss": run.replica.losses(),
        "weights": weights,
        "validation_error": validation,
        "test_error": test,
        "steps_per_second": _pace(run, step),
        "memory_mb": memory_used(run.replica.device),
        "negatives": negatives,
    }
    return {name: value for name, value in told.items() if value not in (None, {})}


def _rows(run: Run, part: str) -> tuple[Any, Any] | None:
    data, split = run.data, run.plan.split
    if part == "validation":
        return (data.x[split.validation], data.y[split.validation]) if len(split.validation) else None
    return (data.x_test, data.y_test) if data.x_test is not None and len(data.x_test) else None


def _logits(run: Run, part: str, network: nn.Module) -> tuple[Tensor, Tensor] | None:
    rows = _rows(run, part)
    if rows is None:
        return None
    batch = 2000 if run.replica.device.type == "cuda" else 500
    logits = logits_of(network, run.preprocess, rows[0], batch, autocast=run.replica.precision)
    return logits, torch.as_tensor(rows[1])


def _error(run: Run, part: str) -> float | None:
    found = _logits(run, part, run.network)
    return None if found is None else evaluate(*found).error


def _pace(run: Run, step: int) -> float:
    return (step - run.first_step) / max(1e-9, time.monotonic() - run.began)


def memory_used(device: torch.device) -> float:
    """The most memory used so far, in megabytes: the GPU's, or this process's."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    status = Path("/proc/self/status")  # what getrusage tells on Linux is the parent's memory where that was more
    if status.exists() and (found := re.search(r"VmHWM:\s+(\d+)", status.read_text())):
        return int(found[1]) / 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _summary(run: Run) -> dict[str, Any]:
    """What result.json says of a run, whether it ended well or not."""
    recipe, plan = run.plan.recipe, run.plan
    return {
        "step": int(run.replica.count),
        "steps": recipe.steps,
        "seed": plan.seed,
        "method": recipe.method,
        "data": recipe.data,
        "labels": len(plan.split.labeled),
        "split": plan.split.hash,
        "test_error": run.errors.selected("test"),
        "validation_error": run.errors.selected("validation"),
        "rule": recipe.evaluation.rule,
        "evaluation_interval": recipe.evaluation.every,
        "schedule": recipe.schedule,
        "seconds": run.seconds,
        "steps_per_second": _pace(run, int(run.replica.count)),
        "memory_mb": memory_used(run.replica.device),
        "hardware": hardware(),
    }


def end(run: Run, mode: str) -> Trained:
    """Evaluate the chosen weights in full, write model and result."""
    if run.fault is not None:
        return Trained(run.plan, _summary(run) | {"status": "failed"}, None)
    recipe, network = run.plan.recipe, run.network
    if run.best is not None and recipe.evaluation.rule == "best_validation":
        network.load_state_dict(run.best)
    network.eval()
    model = Model(network, run.preprocess, recipe, run.data.classes, tuple(run.data.x.shape[1:]))
    parts = {part: _logits(run, part, network) for part in ("validation", "test")}
    full = {part: evaluate(*found).to_dict() for part, found in parts.items() if found is not None}
    result = _summary(run) | {"evaluation": full, "mode": mode}
    if run.folder is not None:
        run.folder.save_model(model.state(), model.description())
        run.folder.finish(result)
    return Trained(run.plan, result | {"status": "complete"}, model)


def close(run: Run) -> None:
    """Let go of the folder and the event files."""
    if run.events is not None:
        run.events.close()
    if run.folder is not None:
        run.folder.close()


def complete(plan: Plan, how: How) -> Trained | None:
    """A run that was trained before, as its folder has it."""
    if plan.path is None or not (plan.path / "result.json").exists():
        return None
    result = read_json(plan.path / "result.json")
    if result.get("status") != "complete":
        return None
    RunFolder.open(plan.path, plan.recipe.to_dict(), plan.split.to_dict(), plan.seed, environment()).close()
    network = how.network() if how.network else None
    return Trained(plan, result, load_model(plan.path, how.where(), network))
