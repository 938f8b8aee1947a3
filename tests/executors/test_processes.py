"""Worker processes: the same numbers as one after the other, also where a worker is lost or all are stopped."""

import multiprocessing
import os
import re
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
from ns3l.executors import Local, Processes, Task
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
    ends = re.findall(r"(.+)  step 20/20", capfd.readouterr().out)
    assert ends and len(ends) == len(set(ends)), "what workers do is said once"


@pytest.mark.slow
def test_a_run_that_ends_every_worker_fails_alone(tmp_path):
    result = execute(small(tmp_path, baseline=False), Processes(2), replace(QUIET, watch=kill_always), quiet)
    assert [(cell.run.seed, outcome.reason) for cell, outcome in result.failed] == [
        (1, "its worker process was lost twice, at last with exit code -9")
    ]
    assert [run.status for run in plan_of(small(tmp_path, baseline=False)).runs] == ["complete", "failed"]


@pytest.mark.slow
def test_a_signal_saves_every_worker(tmp_path, capfd):
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
    begun = [run for run in plan_of(one).runs if run.status == "begun"]
    assert any(0 < run.left < 2000 for run in begun)
    assert "Traceback" not in capfd.readouterr().err
    assert execute(one, Processes(2, 1), QUIET, quiet).succeeded
    same = small(tmp_path / "one", settings={"steps": 2000, "evaluation.every": 100})
    execute(same, Local(1), QUIET, quiet)
    assert weights(tmp_path / "many") == weights(tmp_path / "one")


@pytest.mark.slow
def test_workers_are_sent_home_where_outcomes_are_not_wanted_any_more(tmp_path):
    short, long = (small(tmp_path / str(steps), seeds=1, settings={"steps": steps}) for steps in (20, 20000))
    tasks = [Task((one.cells()[0].run,)) for one in (short, long)]
    outcomes = Processes(2).execute(tasks, short.data, QUIET)
    assert next(outcomes).status == "complete"
    while not list((tmp_path / "20000").rglob("metrics.jsonl")):
        time.sleep(0.1)
    outcomes.close()
    assert not multiprocessing.active_children()
    assert 0 < plan_of(long).runs[0].left < 20000, "it saved what it had"


def test_mistakes_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    for wrong in ((0,), (1, 0)):
        with pytest.raises(UserError, match="workers >= 1 and threads >= 1"):
            Processes(*wrong)
    with pytest.raises(UserError, match="worker processes are for CPUs"):
        next(Processes(1).execute([], small(tmp_path).data, ns3l.How(device="cuda:0")))


UNSENDABLE = {
    "a lambda": {"watch": lambda plan, metrics: True},
    "a local function": {"network": (lambda: lambda: torch.nn.Linear(64, 10))()},
    "a lock": {"watch": partial(kill_once, threading.Lock(), 20)},
}


@pytest.mark.parametrize("what", UNSENDABLE)
def test_what_cannot_reach_a_worker_is_refused(tmp_path, what):
    with pytest.raises(UserError, match="functions of a module, not lambdas"):
        next(Processes(1).execute([], small(tmp_path).data, replace(QUIET, **UNSENDABLE[what])))


def test_workers_are_as_many_as_cores_allow(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert Processes(threads=2).abreast(100) == 4
    assert Processes(threads=16).abreast(100) == 1
    assert Processes(6).abreast(3) == 3
    assert [Processes().width(replace(QUIET, replicas=replicas)) for replicas in (None, 3)] == [1, 3]
