"""A real Ray cluster on this machine: a node is killed while it trains, and the study ends as a local one does."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest
from tests.executors.small_study import small, weights

import ns3l
from ns3l.errors import UserError
from ns3l.executors import Local, Ray
from ns3l.executors.ray import LOOPBACK
from ns3l.study import execute, plan_of
from ns3l.train import Stopped

QUIET = ns3l.How(device="cpu", progress="quiet", checkpoint_steps=50)
LONG = {"steps": 1500, "evaluation.every": 50}
pytestmark = [
    pytest.mark.ray,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def quiet(message: str) -> None:
    """Says nothing."""


def when_begun(root: Path, runs: int, act) -> threading.Thread:
    """Act in a thread of its own once so many runs have been evaluated."""

    def wait() -> None:
        while len(list(root.rglob("metrics.jsonl"))) < runs:
            time.sleep(0.1)
        act()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


@pytest.fixture
def cluster(monkeypatch):
    """Two nodes of one CPU each, and this process connected to them."""
    monkeypatch.setenv(LOOPBACK, "0")
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    before = signal.getsignal(signal.SIGTERM)
    made = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False, "node_ip_address": "127.0.0.1"}
    )
    made.second = made.add_node(num_cpus=1, node_ip_address="127.0.0.1")
    ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
    yield made
    ray.shutdown()
    made.shutdown()
    signal.signal(signal.SIGTERM, before)


def test_a_study_outlives_a_node(tmp_path, cluster):
    nodes = []

    def kill_second() -> None:
        import ray

        nodes.append(sum(node["Alive"] for node in ray.nodes()))
        cluster.remove_node(cluster.second, allow_graceful=False)

    one = small(tmp_path / "ray", settings=LONG)
    thread = when_begun(tmp_path, 2, kill_second)
    result = execute(one, Ray(retries=3), QUIET, quiet)
    thread.join()
    assert nodes == [2]
    assert result.succeeded, result.to_dict()
    execute(small(tmp_path / "local", settings=LONG), Local(1), QUIET, quiet)
    assert weights(tmp_path / "ray") == weights(tmp_path / "local")


def test_a_signal_saves_the_runs_of_the_cluster(tmp_path, cluster):
    one = small(tmp_path, settings=LONG, baseline=False)
    thread = when_begun(tmp_path, 2, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(Stopped) as stopped:
        execute(one, Ray(), QUIET, quiet)
    thread.join()
    assert stopped.value.code == 130
    plan = plan_of(one)
    assert [run.status for run in plan.runs] == ["begun", "begun"]
    assert all(0 < run.left < 1500 for run in plan.runs)


def test_a_cluster_of_its_own_listens_to_this_machine_only(tmp_path, monkeypatch):
    ray = pytest.importorskip("ray")
    before = signal.getsignal(signal.SIGTERM)
    addresses = []
    one = small(tmp_path, seeds=1, baseline=False)

    def tell(message: str) -> None:
        if "[1/1]" in message:
            addresses.extend(node["NodeManagerAddress"] for node in ray.nodes())

    assert execute(one, Ray(), QUIET, tell).succeeded
    signal.signal(signal.SIGTERM, before)
    assert addresses == ["127.0.0.1"]
    assert not ray.is_initialized()


def test_mistakes_are_refused():
    with pytest.raises(UserError, match="cpus >= 1"):
        Ray(cpus=0)
