"""How a step runs: one replica or many, eager, compiled, or all of it in one captured CUDA graph."""

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
import torch.utils.deterministic as _guards
from torch import Tensor, nn

from ns3l.batch import Source
from ns3l.distributed import Job
from ns3l.draw import Draw
from ns3l.errors import RecipeError
from ns3l.flat import Flat, FromVector
from ns3l.networks import NETWORKS, Average
from ns3l.passes import Compile, as_written
from ns3l.precision import rounding, widest
from ns3l.recipe import Execution, Recipe


@dataclass(frozen=True)
class Fault:
    """The first step whose numbers were not finite, and what was not: a term, "gradient" or "weights"."""

    step: int
    what: str


class Held:
    """The buffers of a network, running statistics above all: copied out in one piece, put back in one piece."""

    def __init__(self, network: nn.Module) -> None:
        buffers = list(network.buffers())
        self.parts = [[b for b in buffers if b.dtype == dtype] for dtype in dict.fromkeys(b.dtype for b in buffers)]

    def copy(self) -> list[Tensor]:
        """Their values, those of one dtype as one vector."""
        return [torch.cat([b.reshape(-1) for b in part]) for part in self.parts]

    @torch.no_grad()
    def put(self, values: list[Tensor]) -> None:
        """Values back into their places."""
        for part, value in zip(self.parts, values, strict=True):
            pieces = value.split([b.numel() for b in part])
            torch._foreach_copy_(part, [piece.view(b.shape) for piece, b in zip(pieces, part, strict=True)])


class Replica:
    """One run on a device: everything that a step changes, and the step. Nothing in the step asks the host.

    Eagerly on a CPU, where asking costs nothing, seed and step are plain numbers and nothing is copied in vain.
    """

    def __init__(self, recipe: Recipe, source: Source, network: nn.Module, seed: int, device: torch.device, job: Job):
        self.recipe, self.source, self.job = recipe, source, job
        self.objective, self.optimizer = recipe.objective(), recipe.optimizer
        self.device = device
        if recipe.execution.channels_last:
            network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.student = network.to(device).train()
        self.held = Held(self.student)
        average = recipe.average
        self.average = None if average is None else Average(self.student, average.decay, average.buffers)
        self.flat = Flat(self.student, rounds=type(network) in NETWORKS.values())
        self.decayed = self.flat.decayed(getattr(self.optimizer, "decays", "kernels"))
        self.moments = self.optimizer.start(self.flat.vector)
        self.seed = torch.tensor(seed, device=device)
        self.count = torch.zeros((), dtype=torch.int64, device=device)
        self.fault = torch.full((2,), -1, dtype=torch.int64, device=device)
        self.wide = widest(device)
        self.sums = torch.zeros(len(self.objective.terms) + 2, dtype=self.wide, device=device)  # the last: steps
        self.ones = torch.ones(1, dtype=self.wide, device=device)
        self.rests = torch.zeros((), dtype=torch.bool, device=device)
        self.resting = False
        self.asks = device.type == "cpu"
        self.plainly()

    def plainly(self) -> None:
        """Run every part of the step as it is written."""
        self.networks: tuple[Any, Any] = self.student, None if self.average is None else self.average.network
        self.batch, self.take, self.losses_of = self.source.batch, self._take, self.objective.losses
        self.compile: Compile = as_written

    def compiled(self, style: str) -> None:
        """Run the parts of the step compiled, with numbers on the device; evaluation stays eager."""
        self.asks = False  # a plain number that changes would be compiled anew in every step
        teacher = self.networks[1]
        self.compile = cache(partial(torch.compile, mode=style, dynamic=False))
        whole = FromVector(self.student, self.flat, self.compile)
        self.networks = whole, None if teacher is None else self.compile(teacher)
        self.batch, self.take = self.compile(self.source.batch), self.compile(self._take)
        self.losses_of = self.compile(self.objective.losses)

    def rest(self) -> None:
        """Stay as it is from now on, while replicas beside it go on."""
        self.rests.fill_(True)
        self.resting = True

    @property
    def precision(self) -> torch.dtype | None:
        """What the networks compute in, where that is not float32."""
        return torch.bfloat16 if self.recipe.execution.precision == "bf16" else None

    def draw(self) -> Draw:
        """The randomness of the coming step."""
        seed, count = (int(self.seed), int(self.count)) if self.asks else (self.seed, self.count)
        return Draw(seed, count, self.device, shard=(self.job.rank, self.job.world))

    def step(self) -> None:
        """Draw, objective, backward, step, average: all on the device."""
        draw = self.draw()
        before = self.held.copy()
        try:
            student, teacher = self.networks
            fwd = self.objective.forward(student, self.batch(draw), draw, teacher, self.precision, self.compile)
            losses = self.losses_of(fwd)
            gradient = self.job.mean(self.flat.gradient(losses.total))
            with torch.no_grad():
                numbers = torch.stack([part.to(self.wide) for part in (losses.total, *losses.parts.values())])
                self._follow(self.take(gradient, self.job.mean(numbers), draw.step), before)
        except BaseException:  # a lost process, say: leave the state as before this step
            self.held.put(before)
            raise

    def diagnose(self) -> dict[str, dict[str, float]]:
        """What the terms tell of themselves on the coming batch; nothing moves; asks the host."""
        draw = self.draw()
        before = self.held.copy()
        teacher = None if self.average is None else self.average.network
        try:
            fwd = self.objective.forward(self.student, self.source.batch(draw), draw, teacher, self.precision)
        finally:
            self.held.put(before)
        told = self.objective.diagnose(fwd)
        return {name: {key: float(v) for key, v in numbers.items()} for name, numbers in told.items()}

    def _take(self, gradient: Tensor, numbers: Tensor, step: int | Tensor) -> bool | Tensor:
        """Take the step, unless some number is not finite: then stay for good as before it. Whether it was taken."""
        weights, moments = self.optimizer.update(self.flat.vector, gradient, self.moments, step, self.decayed)
        ends = torch.stack([gradient.sum(), weights.sum()]).to(self.wide)
        faults = ~torch.cat([numbers[1:], ends]).isfinite()
        sums = self.sums + torch.cat([numbers, self.ones])
        if self.asks and not (faults.any() or self.resting or self.fault[0] >= 0):
            self.flat.vector.copy_(weights)
            self.sums.copy_(sums)
            self.moments = moments
            self.count += 1
            return True
        running = (self.fault[0] < 0) & ~self.rests
        fine = running & ~faults.any()
        self._settle(running & ~fine, [(self.fault, torch.stack([self.count, faults.int().argmax()]))])
        kept = [(self.moments[name], value) for name, value in moments.items()]
        self._settle(fine, [(self.flat.vector, weights), (self.sums, sums), (self.count, self.count + 1), *kept])
        return fine

    def _follow(self, taken: bool | Tensor, before: list[Tensor]) -> None:
        """After a step: running statistics stay where it was not taken, the average moves where it was."""
        if isinstance(taken, Tensor):
            now = self.held.copy()
            self.held.put([torch.where(taken, new, old) for new, old in zip(now, before, strict=True)])
        if self.average is not None:
            self.average.update(self.student, taken * (1 - self.average.decay))

    def _settle(self, when: Tensor, pairs: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Put new values in the place of old ones where a flag on the device is set."""
        for old, new in pairs:
            old.copy_(torch.where(when, new, old))

    def found_fault(self) -> Fault | None:
        """What the latch holds; asks the host."""
        step, what = self.fault.tolist()
        return None if step < 0 else Fault(step, [*self.objective.terms, "gradient", "weights"][what])

    def state(self) -> dict[str, Tensor]:
        """Everything that the coming steps depend on; the tensors themselves."""
        held = {"count": self.count, "fault": self.fault, "sums": self.sums, "vector": self.flat.vector}
        held |= {f"moments.{name}": value for name, value in self.moments.items()}
        held |= {f"buffers.{name}": value for name, value in self.student.named_buffers()}
        if self.average is not None:
            held |= {f"average.{name}": value for name, value in self.average.network.state_dict().items()}
        return held

    @torch.no_grad()
    def load(self, state: dict[str, Tensor]) -> None:
        """Take up a state, in place."""
        for name, value in self.state().items():
            value.copy_(state[name])

    def losses(self) -> dict[str, float]:
        """Mean total and parts since the last call; asks the host."""
        *sums, steps = self.sums.tolist()
        self.sums.zero_()
        means = [number / max(1.0, steps) for number in sums]
        return dict(zip(["total", *self.objective.terms], means, strict=True))


@contextmanager
def settings(execution: Execution, device: torch.device) -> Iterator[None]:
    """Global switches of PyTorch that a run needs, put back afterwards."""
    before = (
        torch.are_deterministic_algorithms_enabled(),
        torch.backends.cudnn.benchmark,
        torch.backends.cudnn.deterministic,
        _guards.fill_uninitialized_memory,  # type: ignore[attr-defined]
    )
    if device.type == "cuda" and execution.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when the first matrix product runs
    try:
        # filling fresh memory is a guard against bugs that halves the speed
        _guards.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        torch.use_deterministic_algorithms(execution.deterministic)
        torch.backends.cudnn.benchmark = not execution.deterministic
        torch.backends.cudnn.deterministic = execution.deterministic
        tf32 = device.type == "cuda" and execution.precision == "bf16"
        with rounding("tf32") if tf32 else nullcontext():
            yield
    except RuntimeError as problem:
        if "does not have a deterministic implementation" not in str(problem):
            raise
        raise RecipeError(
            f"{str(problem).split()[0]}, which the network uses, cannot be repeated bit for bit on this device: take "
            "execution.deterministic=False, or another layer in its place"
        ) from problem
    finally:
        torch.use_deterministic_algorithms(before[0])
        torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic = before[1:3]
        _guards.fill_uninitialized_memory = before[3]  # type: ignore[attr-defined]


class Engine:
    """Advances replicas step by step in the best way that the device allows; `mode` and `reason` say which and why."""

    def __init__(self, replicas: Sequence[Replica], execution: Execution) -> None:
        self.replicas = list(replicas)
        self.device = self.replicas[0].device
        self.mode, self.reason = _choose(execution.mode, self.device)
        self._replay: Callable[[], None] = self._eager
        if self.mode != "eager":
            self._prepare(execution)

    def advance(self, step: int, steps: int) -> None:
        """Run steps of every replica, the first of them number `step`."""
        for coming in range(step, step + steps):
            for replica in self.replicas:
                replica.source.store.stage(coming)
            self._replay()

    def _eager(self) -> None:
        for replica in self.replicas:
            if not replica.resting:
                replica.step()

    def _prepare(self, execution: Execution) -> None:
        """Compile and capture; where that fails, say why in a line and run eagerly."""
        kept = [{name: value.clone() for name, value in replica.state().items()} for replica in self.replicas]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the compiler's advice, such as another precision
                self._warm(execution)
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as problem:  # whatever a compiler or a user's network may raise
            said = (str(problem).strip() or type(problem).__name__).splitlines()[0][:200]
            self.mode, self.reason = "eager", f"{self.mode} failed: {said}"
            for replica in self.replicas:
                replica.asks = self.device.type == "cpu"
                replica.plainly()
        for replica, state in zip(self.replicas, kept, strict=True):
            replica.load(state)

    def _warm(self, execution: Execution) -> None:
        """A step as it is written, which makes the tables of draws once for all; then compiled, then captured."""
        from torch._dynamo import config  # only where something is compiled: it takes long to import
        from torch._inductor import config as inductor

        for replica in self.replicas:
            replica.source.store.stage(int(replica.count))
            replica.asks = False
        self._eager()
        style = "max-autotune-no-cudagraphs" if execution.autotune else "default"
        many = config.patch(recompile_limit=2**12, accumulated_recompile_limit=2**16)  # replicas differ in numbers
        known = ["deterministic"] * hasattr(inductor, "deterministic")  # without it, kernels are chosen by the clock
        with many, inductor.patch(dict.fromkeys(known, execution.deterministic)):
            for replica in self.replicas:
                replica.compiled(style)
            if self.mode == "captured":
                self._replay = _captured(self.replicas)
            else:
                self._eager()


def _choose(mode: str, device: torch.device) -> tuple[str, str]:
    if mode in ("captured", "auto") and device.type != "cuda":
        return "eager", "" if mode == "auto" else "a CUDA graph needs a CUDA device, steps run eagerly"
    return ("captured" if mode == "auto" else mode), ""


def _captured(replicas: Sequence[Replica]) -> Callable[[], None]:
    """One CUDA graph of a step of every replica, each a branch of its own: all forked first, joined at the end."""
    warm = torch.cuda.Stream()
    warm.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(warm):
        for replica in replicas:
            for _ in range(3):
                replica.step()
    torch.cuda.current_stream().wait_stream(warm)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    branches = [torch.cuda.Stream() for _ in replicas]
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # a thread may be staging rows
        main = torch.cuda.current_stream()
        for branch in branches:
            branch.wait_stream(main)
        for replica, branch in zip(replicas, branches, strict=True):
            with torch.cuda.stream(branch):
                replica.step()
        for branch in branches:
            main.wait_stream(branch)
    return graph.replay
