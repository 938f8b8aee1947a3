"""A Ray cluster: one task for each group of runs; run folders lie on a path that all its nodes share."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from ns3l.data.reference import DataReference
from ns3l.errors import UserError
from ns3l.executors.follow import Follower
from ns3l.executors.local import threads
from ns3l.executors.task import Executor, Outcome, Outcomes, Task, perform, record_failure
from ns3l.record import Interruption
from ns3l.shared import How
from ns3l.train import MOST, Stopped

POLL = 1.0
PATIENCE = 60.0
"""Seconds that a run folder is waited for while the worker of a lost node goes down."""
LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""What Ray reads when it is imported: with 0 a cluster of this machine alone listens to the loopback address only."""
FAREWELL = 120.0
"""Seconds that tasks have for saving their runs after a signal."""


@dataclass(frozen=True)
class Ray(Executor):
    """A cluster at `address` ("auto": the one that this machine belongs to), or one on this machine alone.

    Each task asks for `cpus` (also its threads of torch) and `gpus`. A task whose node or process is lost, or whose
    node cannot write or has no data, is begun again up to `retries` times, on another node, from the last checkpoints.
    """

    address: str | None = None
    cpus: int = 1
    gpus: float = 0
    retries: int = 3

    def __post_init__(self) -> None:
        if self.cpus < 1 or self.gpus < 0 or self.retries < 0:
            raise UserError(f"Ray tasks need cpus >= 1, gpus >= 0 and retries >= 0, got {self}")

    def execute(self, tasks: Sequence[Task], data: DataReference, how: How) -> Outcomes:
        """Hand all tasks to the cluster and take outcomes as they come."""
        ray, follower = _ray(self.address), Follower(how.progress)
        how = replace(how, progress="quiet", device=how.device if self.gpus else "cpu")
        with _cluster(ray, self.address), Interruption() as stop:
            line = _Line(ray, self, ray.put(data), ray.put(how))
            for task in tasks:
                line.begin(task)
            while line.under_way and not stop.requested:
                for reference in ray.wait(list(line.under_way), timeout=POLL)[0]:
                    yield from line.take(reference)
                follower.look(run for task, _ in line.under_way.values() for run in task.runs)
            if stop.requested:
                _save(ray, list(line.under_way))
                raise Stopped(128 + stop.requested)

    def width(self, how: How) -> int:
        """As many as a GPU takes; on CPUs one."""
        return how.replicas or (MOST if self.gpus else 1)

    def abreast(self, tasks: int) -> int:
        """All: the cluster decides. On this machine alone, as many as it has cores for."""
        return tasks if self.address else min(tasks, max(1, (os.cpu_count() or 1) // self.cpus))


def _ray(address: str | None) -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address is None:
        os.environ.setdefault(LOOPBACK, "0")
    try:
        import ray
    except ImportError as problem:
        raise UserError("the Ray executor needs the package ray; install it with: pip install ns3l[ray]") from problem
    return ray


@contextmanager
def _cluster(ray: Any, address: str | None) -> Iterator[None]:
    """A connection to a cluster: the one that this process has, the one named, or one of this machine's own."""
    if ray.is_initialized():
        yield
        return
    if address is None:
        ray.init(_node_ip_address="127.0.0.1", include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        _refuse_network(ray)
    else:
        try:
            ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        except (ConnectionError, ValueError, RuntimeError) as problem:
            raise UserError(f"there is no Ray cluster at {address!r}: {problem}") from problem
    try:
        yield
    finally:
        ray.shutdown()


def _refuse_network(ray: Any) -> None:
    """No cluster of our own that other machines could reach."""
    reachable = [node["NodeManagerAddress"] for node in ray.nodes() if node["NodeManagerAddress"] != "127.0.0.1"]
    if reachable:
        ray.shutdown()
        raise UserError(
            f"Ray would listen on {reachable[0]}: it was imported too early. Set {LOOPBACK}=0 before Python starts, or "
            "start a cluster and give its address."
        )


class _Line:
    """What is under way on the cluster: each task with the nodes that it failed on for reasons of theirs."""

    def __init__(self, ray: Any, executor: Ray, data: Any, how: Any) -> None:
        self._ray, self._executor, self._held = ray, executor, (data, how)
        self.under_way: dict[Any, tuple[Task, tuple[str, ...]]] = {}

    def begin(self, task: Task, avoided: tuple[str, ...] = (), node: str | None = None) -> None:
        """Hand a task to the cluster, or rather to one node of it."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        asked = self._executor
        options: dict[str, Any] = {"num_cpus": asked.cpus, "num_gpus": asked.gpus, "max_retries": asked.retries}
        if node is not None:
            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(node, soft=True)
        remote = self._ray.remote(_perform).options(**options)
        self.under_way[remote.remote(task, *self._held, asked.cpus)] = task, avoided

    def take(self, reference: Any) -> Iterator[Outcome]:
        """The outcomes of a task that ended, but for the runs that another node takes up."""
        task, avoided = self.under_way.pop(reference)
        node, outcomes = _outcomes(self._ray, reference, task)
        avoided = (*avoided, node)
        others = self._others(avoided) if len(avoided) <= self._executor.retries else []
        left = {outcome.path for outcome in outcomes if outcome.local} if others else set()
        if left:
            runs = tuple(run for run in task.runs if run.path in left)
            self.begin(Task(runs), avoided, others[len(self.under_way) % len(others)])
        yield from (outcome for outcome in outcomes if outcome.path not in left)

    def _others(self, avoided: tuple[str, ...]) -> list[str]:
        """Nodes that are there, are not to be avoided, and have room for a task."""
        nodes = [node for node in self._ray.nodes() if node["Alive"] and node["NodeID"] not in avoided]
        asked = {"CPU": self._executor.cpus, "GPU": self._executor.gpus}
        return [n["NodeID"] for n in nodes if all(n["Resources"].get(what, 0) >= asked[what] for what in asked)]


def _perform(task: Task, data: DataReference, how: How, count: int) -> tuple[str, list[Outcome]]:
    """One task on a node of the cluster: which node, and the outcomes."""
    import ray

    with threads(count):
        return ray.get_runtime_context().get_node_id(), list(perform(task, data, how, PATIENCE))


def _outcomes(ray: Any, reference: Any, task: Task) -> tuple[str, list[Outcome]]:
    """What a task reports; where it was lost too often, or stopped from elsewhere, a failure of each of its runs."""
    try:
        node, outcomes = ray.get(reference)
        return str(node), list(outcomes)
    except ray.exceptions.RayError as problem:
        reason = f"its task was lost on the cluster: {type(problem).__name__}: {' '.join(str(problem).split())[:300]}"
    for run in task.runs:
        record_failure(run, reason)
    return "", [Outcome(run.path, "failed", reason) for run in task.runs]


def _save(ray: Any, under_way: list[Any]) -> None:
    """Ask every task to save and end, and wait until all have."""
    for reference in under_way:
        with suppress(ray.exceptions.RayError):
            ray.cancel(reference, force=False)
    ray.wait(under_way, num_returns=len(under_way), timeout=FAREWELL)
