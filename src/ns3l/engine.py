"""How a step runs: one replica or many, eager, compiled, or all of it in one captured CUDA graph."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ns3l.batch import Source
from ns3l.distributed import Job
from ns3l.draw import Draw
from ns3l.networks import Average
from ns3l.objective import Losses
from ns3l.optimize import Flat
from ns3l.recipe import Execution, Recipe


@dataclass(frozen=True)
class Fault:
    """The first step whose numbers were not finite, and what was not: a term, "gradient" or "weights"."""

    step: int
    what: str


class Replica:
    """One run on a device: everything that a step changes, and the step. Nothing in the step asks the host."""

    def __init__(self, recipe: Recipe, source: Source, network: nn.Module, seed: int, device: torch.device, job: Job):
        self.recipe, self.source, self.job = recipe, source, job
        self.objective, self.optimizer = recipe.objective(), recipe.optimizer
        self.device = device
        if recipe.execution.channels_last:
            network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.student = network.to(device).train()
        average = recipe.average
        self.average = None if average is None else Average(self.student, average.decay, average.buffers)
        self.flat = Flat(self.student)
        self.decayed = self.flat.decayed(getattr(self.optimizer, "decays", "kernels"))
        self.moments = self.optimizer.start(self.flat.vector)
        self.seed = torch.tensor(seed, device=device)
        self.count = torch.zeros((), dtype=torch.int64, device=device)
        self.fault = torch.full((2,), -1, dtype=torch.int64, device=device)
        self.sums = torch.zeros(len(self.objective.terms) + 1, dtype=torch.float64, device=device)
        self.update = self.optimizer.update

    @property
    def precision(self) -> torch.dtype | None:
        """What the networks compute in, where that is not float32."""
        return torch.bfloat16 if self.recipe.execution.precision == "bf16" else None

    def draw(self) -> Draw:
        """The randomness of the coming step."""
        return Draw(self.seed, self.count, self.device, shard=(self.job.rank, self.job.world))

    def step(self) -> None:
        """Draw, objective, backward, step, average: all on the device."""
        draw = self.draw()
        statistics = [b.clone() for b in self.student.buffers()]
        average = None if self.average is None else self.average.network
        try:
            losses = self.objective(self.student, self.source.batch(draw), draw, average, self.precision)
            gradient = self.flat.gradient(losses.total)
            with torch.no_grad():
                self._apply(losses, gradient, statistics)
        except BaseException:  # a lost process, say: leave the state as before this step
            self._put_back(statistics)
            raise

    @torch.no_grad()
    def _put_back(self, statistics: list[Tensor]) -> None:
        for buffer, before in zip(self.student.buffers(), statistics, strict=True):
            buffer.copy_(before)

    def diagnose(self) -> dict[str, dict[str, float]]:
        """What the terms tell of themselves on the coming batch; nothing moves; asks the host."""
        draw = self.draw()
        statistics = [b.clone() for b in self.student.buffers()]
        average = None if self.average is None else self.average.network
        fwd = self.objective.forward(self.student, self.source.batch(draw), draw, average, self.precision)
        self._put_back(statistics)
        told = self.objective.diagnose(fwd)
        return {name: {key: float(v) for key, v in numbers.items()} for name, numbers in told.items()}

    def _apply(self, losses: Losses, gradient: Tensor, statistics: list[Tensor]) -> None:
        """Take the step, unless some number is not finite: then stay for good as before it."""
        parts = torch.stack([part.detach().double() for part in losses.parts.values()])
        shared = self.job.mean(torch.cat([gradient, (~parts.isfinite()).to(gradient.dtype)]))
        gradient, strange = shared.split([len(gradient), len(parts)])
        weights, moments = self.update(self.flat.vector, gradient, self.moments, self.count, self.decayed)
        faults = torch.cat([strange > 0, ~torch.stack([gradient.sum(), weights.sum()]).isfinite()])
        fine = ~faults.any() & (self.fault[0] < 0)
        news = torch.stack([self.count, faults.int().argmax()])
        self.fault.copy_(torch.where(faults.any() & (self.fault[0] < 0), news, self.fault))
        self.flat.vector.copy_(torch.where(fine, weights, self.flat.vector))
        for name, value in moments.items():
            self.moments[name].copy_(torch.where(fine, value, self.moments[name]))
        for buffer, before in zip(self.student.buffers(), statistics, strict=True):
            buffer.copy_(torch.where(fine, buffer, before))
        if self.average is not None:
            self.average.update(self.student)
        totals = torch.cat([losses.total.detach().double().reshape(1), parts])
        self.sums += torch.where(fine, totals, torch.zeros_like(totals))
        self.count += fine

    def found_fault(self) -> Fault | None:
        """What the latch holds; asks the host."""
        step, what = self.fault.tolist()
        return None if step < 0 else Fault(step, [*self.objective.terms, "gradient", "weights"][what])

    def state(self) -> dict[str, Tensor]:
        """Everything that the coming steps depend on; the tensors themselves."""
        held = {"count": self.count, "fault": self.fault, "sums": self.sums, "weights": self.flat.vector}
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
        count = max(1, int(self.count) - self._counted)
        self._counted = int(self.count)
        means = (self.sums / count).tolist()
        self.sums.zero_()
        return dict(zip(["total", *self.objective.terms], means, strict=True))

    _counted = 0


@contextmanager
def settings(execution: Execution, device: torch.device) -> Iterator[None]:
    """Global switches of PyTorch that a run needs, put back afterwards."""
    before = (
        torch.are_deterministic_algorithms_enabled(),
        torch.backends.cudnn.benchmark,
        torch.backends.cudnn.deterministic,
        torch.get_float32_matmul_precision(),
    )
    try:
        torch.use_deterministic_algorithms(execution.deterministic)
        torch.backends.cudnn.benchmark = not execution.deterministic
        torch.backends.cudnn.deterministic = execution.deterministic
        if device.type == "cuda" and execution.precision == "bf16":
            torch.set_float32_matmul_precision("high")
        yield
    finally:
        torch.use_deterministic_algorithms(before[0])
        torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic = before[1:3]
        torch.set_float32_matmul_precision(before[3])


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
            replica.step()

    def _prepare(self, execution: Execution) -> None:
        """Compile and capture; where that fails, say why in a line and run eagerly."""
        kept = [{name: value.clone() for name, value in replica.state().items()} for replica in self.replicas]
        try:
            if (self.mode in ("compiled", "captured") and self.device.type == "cuda") or execution.mode == "compiled":
                self._compile(execution)
            for replica in self.replicas:
                replica.source.store.stage(int(replica.count))
            if self.mode == "captured":
                self._replay = _captured(self.replicas)
            else:
                self._eager()
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as problem:  # whatever a compiler or a user's network may raise
            self.mode, self.reason = "eager", f"{self.mode} failed: {str(problem).strip().splitlines()[0][:200]}"
            self._uncompile()
            self._replay = self._eager
        for replica, state in zip(self.replicas, kept, strict=True):
            replica.load(state)

    def _compile(self, execution: Execution) -> None:
        style = "max-autotune-no-cudagraphs" if execution.autotune else "default"
        for replica in self.replicas:
            replica.student.compile(mode=style)
            if replica.average is not None:
                replica.average.network.compile(mode=style)
            replica.update = torch.compile(replica.optimizer.update, mode=style)

    def _uncompile(self) -> None:
        for replica in self.replicas:
            for network in (replica.student, replica.average.network if replica.average else None):
                if network is not None:
                    network._compiled_call_impl = None
            replica.update = replica.optimizer.update


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
    with torch.cuda.graph(graph):
        main = torch.cuda.current_stream()
        for branch in branches:
            branch.wait_stream(main)
        for replica, branch in zip(replicas, branches, strict=True):
            with torch.cuda.stream(branch):
                replica.step()
        for branch in branches:
            main.wait_stream(branch)
    return graph.replay
