"""Worker processes: the same numbers as one after the other, also where a worker is lost or all are stopped."""

import os
import signal
import threading
import time
from dataclasses import replace
from functools import partial

import pytest
import torch
from tests.executors.small_study import kill_always, kill_once, small, weights

import ns3l
from ns3l.errors import UserError
from ns3l.executors import Local, Processes
from ns3l.record import read_json
from ns3l.study import execute, plan_of
from ns3l.train import Stopped

QUIET = ns3l.How(device="cpu", progress="quiet")


def quiet(message: str) -> None:
    """Says nothing."""


def test_lost_workers_and_all_others_end_as_one_after_the_other(tmp_path, capfd):
    how = replace(QUIET, progress="plain", watch=partial(kill_once, str(tmp_path / "marker"), 20))
    result = execute(small(tmp_path / "many"), Processes(2, 1), how, quiet)
    assert result.succeeded, result.to_dict()
    assert (tmp_path / "marker").exists()
    execute(small(tmp_path / "one"), Local(1), QUIET, quiet)
    assert weights(tmp_path / "many") == weights(tmp_path / "one")
    environment = read_json(tmp_path / "many" / "ns3l" / "default" / "seed-0" / "environment.json")
    assert environment["threads"] == 1
    assert "step 20/20" in capfd.readouterr().out


@pytest.mark.slow
def test_a_run_that_ends_every_worker_fails_alone(tmp_path):
    result = execute(small(tmp_path, baseline=False), Processes(2), replace(QUIET, watch=kill_always), quiet)
    assert [(cell.run.seed, outcome.reason) for cell, outcome in result.failed] == [
        (1, "its worker process was lost twice, at last with exit code -9")
    ]
    assert [run.status for run in plan_of(small(tmp_path, baseline=False)).runs] == ["complete", "failed"]


@pytest.mark.slow
def test_a_signal_saves_every_worker(tmp_path):
    one = small(tmp_path / "many", settings={"steps": 2000, "evaluation.every": 100})

    def signal_soon() -> None:
        while not list((tmp_path / "many").rglob("metrics.jsonl")):
            time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=signal_soon)
    thread.start()
    with pytest.raises(Stopped) as stopped:
        execute(one, Processes(2, 1), QUIET, quiet)
    thread.join()
    assert stopped.value.code == 143
    assert "begun" in {run.status for run in plan_of(one).runs}
    assert execute(one, Processes(2, 1), QUIET, quiet).succeeded
    same = small(tmp_path / "one", settings={"steps": 2000, "evaluation.every": 100})
    execute(same, Local(1), QUIET, quiet)
    assert weights(tmp_path / "many") == weights(tmp_path / "one")


def test_mistakes_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(UserError, match="workers >= 1 and threads >= 1"):
        Processes(0)
    with pytest.raises(UserError, match="worker processes are for CPUs"):
        next(Processes(1).execute([], small(tmp_path).data, ns3l.How(device="cuda:0")))
    with pytest.raises(UserError, match="functions of a module, not lambdas"):
        next(Processes(1).execute([], small(tmp_path).data, ns3l.How(device="cpu", watch=lambda plan, metrics: True)))


def test_workers_are_as_many_as_cores_allow(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert Processes(threads=2).abreast(100) == 4
    assert Processes(threads=16).abreast(100) == 1
    assert Processes(6).abreast(3) == 3
