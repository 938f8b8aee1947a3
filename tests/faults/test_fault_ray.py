"""A Ray cluster of two nodes, one of which is lost, cannot write, or is slow: the study ends as a local one does."""

import os
import signal
import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from tests.executors.small_study import small, weights
from tests.executors.test_ray import LONG, QUIET, quiet, when_begun
from tests.faults.campaign import many, row

from ns3l.executors import Local, Ray
from ns3l.executors.ray import LOOPBACK
from ns3l.study import execute

pytestmark = [
    pytest.mark.ray,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
FULL = """
import errno, os, pathlib
def fsync(handle):
    pathlib.Path({told!r}).open("a").write("x")
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
os.fsync = fsync
"""
"""What Python runs first on a node whose disk is full; it leaves a mark for each write that failed."""


@pytest.fixture
def nodes(monkeypatch):
    """Two nodes of one CPU each, the second with variables of its own; this process is connected to them."""
    monkeypatch.setenv(LOOPBACK, "0")
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    before, made = signal.getsignal(signal.SIGTERM), []

    def start(**variables: str) -> Cluster:
        head = {"num_cpus": 1, "include_dashboard": False, "node_ip_address": "127.0.0.1"}
        made.append(Cluster(initialize_head=True, head_node_args=head))
        made[0].second = made[0].add_node(num_cpus=1, node_ip_address="127.0.0.1", env_vars=variables)
        ray.init(address=made[0].address, log_to_driver=False, logging_level="ERROR")
        return made[0]

    yield start
    ray.shutdown()
    for cluster in made:
        cluster.shutdown()
    signal.signal(signal.SIGTERM, before)


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> dict[str, bytes]:
    """The models of the same study on this machine alone."""
    root = tmp_path_factory.mktemp("alone")
    execute(small(root, seeds=many(2, 4), settings=LONG), Local(1), QUIET, quiet)
    return weights(root)


def ended(root: Path, alone: dict[str, bytes]) -> str:
    """Carry the study out on the cluster; what it says of itself where it ended as on one machine."""
    began = time.monotonic()
    result = execute(small(root, seeds=many(2, 4), settings=LONG), Ray(retries=3), QUIET, quiet)
    assert result.succeeded, result.to_dict()
    assert weights(root) == alone
    return f"{len(alone)} runs bit for bit as on one machine, {time.monotonic() - began:.0f} s"


def test_a_node_is_lost(tmp_path, nodes, alone):
    cluster = nodes()
    with row("scale", "Ray, two nodes: one is killed") as told, told.trying():
        thread = when_begun(tmp_path, 2, partial(cluster.remove_node, cluster.second, allow_graceful=False))
        told.note = ended(tmp_path, alone)
        thread.join()


def test_the_disk_of_a_node_is_full(tmp_path, nodes, alone):
    """Every task that the node takes fails there at its first write, and is carried out by the other node."""
    path, mark = tmp_path / "path", tmp_path / "mark"
    path.mkdir()
    (path / "sitecustomize.py").write_text(FULL.format(told=str(mark)))
    nodes(PYTHONPATH=str(path))
    with row("scale", "Ray, two nodes: the disk of one is full") as told, told.trying():
        told.note = ended(tmp_path / "study", alone)
        assert mark.stat().st_size
        told.note += f"; {mark.stat().st_size} writes failed on that node"


def children(parent: int) -> list[int]:
    """Processes of a process, itself among them."""
    ids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    stats = {pid: (Path("/proc") / str(pid) / "stat") for pid in ids}
    told = {pid: path.read_text().rpartition(")")[2].split() for pid, path in stats.items() if path.exists()}
    return [parent, *(pid for pid, fields in told.items() if int(fields[1]) == parent)]


def test_a_node_is_slow(tmp_path, nodes, alone):
    """The processes of a node stand still for nine tenths of the time."""
    cluster = nodes()
    raylet = cluster.second.all_processes["raylet"][0].process.pid
    over, stops = threading.Event(), Counter[int]()

    def signalled(number: int) -> None:
        for pid in children(raylet):
            try:
                os.kill(pid, number)
                stops[number] += 1
            except ProcessLookupError:
                continue

    def slow() -> None:
        while not over.is_set():
            signalled(signal.SIGSTOP)
            time.sleep(0.45)
            signalled(signal.SIGCONT)
            time.sleep(0.05)

    with row("scale", "Ray, two nodes: one is slow") as told, told.trying():
        thread = threading.Thread(target=slow)
        thread.start()
        try:
            told.note = ended(tmp_path, alone)
        finally:
            over.set()
            thread.join()
        told.note += f"; its processes stood still for nine tenths of the time ({stops[signal.SIGSTOP]} stops)"
        assert stops[signal.SIGSTOP]
