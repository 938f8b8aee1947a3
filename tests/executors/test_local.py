"""This process as an executor: threads are set and put back, a failure is worded and kept."""

import signal
from contextlib import suppress
from dataclasses import replace

import pytest
import torch
from tests.executors.small_study import small

import ns3l
from ns3l.data.reference import DataReference
from ns3l.errors import DataError
from ns3l.executors import EXECUTORS, Assignment, Executor, Local, Task
from ns3l.executors.local import threads
from ns3l.executors.task import perform, reason_of
from ns3l.record import Interruption
from ns3l.train import Stopped

QUIET = ns3l.How(device="cpu", progress="quiet")


def test_every_executor_is_registered():
    assert set(EXECUTORS) == {"local", "processes", "ray"}
    assert all(issubclass(kind, Executor) for kind in EXECUTORS.values())


def test_threads_are_put_back():
    before = torch.get_num_threads()
    with threads(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before
    with suppress(KeyError), threads(before + 1), threads(None):
        assert torch.get_num_threads() == before + 1, "as many as there were"
        raise KeyError
    assert torch.get_num_threads() == before, "also after an error"


def test_tasks_have_the_threads_of_the_executor(tmp_path):
    one, before = small(tmp_path, seeds=1), torch.get_num_threads()
    seen = []

    def watch(plan, metrics) -> bool:
        seen.append(torch.get_num_threads())
        return False

    list(Local(before + 1).execute([Task((one.cells()[0].run,))], one.data, replace(QUIET, watch=watch)))
    assert set(seen) == {before + 1}


def test_a_signal_between_two_tasks_ends_before_the_next(tmp_path):
    one = small(tmp_path)
    tasks = [Task((cell.run,)) for cell in one.cells()]
    with Interruption():
        outcomes = Local().execute(tasks, one.data, QUIET)
        assert next(outcomes).status == "complete"
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(Stopped) as stopped:
            next(outcomes)
    assert stopped.value.code == 143
    assert not tasks[1].runs[0].path.exists()


def test_tasks_are_wide_where_that_gains(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert Local().width(ns3l.How(device="cpu")) == 1
    assert Local().width(ns3l.How(device="cuda:0")) == 10
    assert Local().width(ns3l.How(device="cpu", replicas=3)) == 3


def test_data_that_cannot_be_loaded_fail_every_run(tmp_path):
    run = small(tmp_path).cells()[0].run
    missing = DataReference("not-there.npz", str(tmp_path))
    (outcome,) = perform(Task((run,)), missing, ns3l.How())
    assert outcome.status == "failed" and "not-there.npz" in outcome.reason


def test_a_run_that_cannot_begin_keeps_its_reason(tmp_path):
    one = small(tmp_path, settings={"split.labels": 1700})
    run = one.cells()[0].run
    (outcome,) = perform(Task((Assignment(run.recipe, 0, run.path),)), one.data, ns3l.How(device="cpu"))
    assert outcome.status == "failed" and outcome.reason


def test_reasons_are_one_line():
    assert reason_of(DataError("two\n lines")) == "two lines"
    assert reason_of(KeyError("x")) == "KeyError: 'x'"
