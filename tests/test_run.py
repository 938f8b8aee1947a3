"""One run's folder: what it records, what it evaluates, what the end writes."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.training import QUIET, clouds, lines, recipe

from ns3l.engine import Replica
from ns3l.errors import RunError
from ns3l.model import load_model
from ns3l.recipe import EvaluationPlan
from ns3l.run import memory_used
from ns3l.train import fit


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("run")
    return out / "seed-3", fit(recipe("vat+ns3l"), clouds(), seeds=[3], out=out, how=QUIET)


def test_every_evaluation_is_a_line(run):
    told = lines(run[0])
    assert [line["step"] for line in told] == [4, 8, 12]
    for line in told:
        assert set(line["loss"]) == {"total", "supervised", "vat", "ns3l"}
        parts = sum(line["weights"][name] * line["loss"][name] for name in line["weights"])
        assert line["step"] < 12 or line["loss"]["total"] == pytest.approx(parts, rel=1e-5)  # weights ramp until step 6
        assert 0 <= line["validation_error"] <= 100 and 0 <= line["test_error"] <= 100
        assert set(line["negatives"]) == {"ns3l"}


def test_the_result_says_how_it_was_made(run):
    result = json.loads((run[0] / "result.json").read_text())
    expected = {"status": "complete", "step": 12, "steps": 12, "seed": 3, "method": "vat+ns3l", "labels": 12}
    expected |= {"rule": "best_validation", "evaluation_interval": 4, "schedule": 1.0, "mode": "eager"}
    assert {name: result[name] for name in expected} == expected
    history = lines(run[0])
    best = min(history, key=lambda line: line["validation_error"])
    assert result["test_error"]["last"] == history[-1]["test_error"]
    assert result["test_error"]["best_validation"] == best["test_error"]
    assert result["validation_error"]["best_validation"] == best["validation_error"]
    assert result["evaluation"]["test"]["error"] == best["test_error"]
    assert result["seconds"] > 0 and result["memory_mb"] > 0 and result["hardware"]


def test_the_model_in_the_folder_is_the_result_of_the_run(run):
    x = clouds().x_test
    one, other = run[1].models[0], load_model(run[0])
    np.testing.assert_array_equal(one.probabilities(x), other.probabilities(x))
    error = 100 * float((one.probabilities(x).argmax(1) != clouds().y_test).mean())
    assert error == pytest.approx(run[1].errors()[0])


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a child does not take over its parent's figure")
def test_memory_used_is_that_of_this_process_not_of_its_parent():
    large = np.ones(150_000_000)  # 1,200 MB
    words = "import torch; from ns3l.run import memory_used; print(memory_used(torch.device('cpu')))"
    told = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True).stdout
    assert 50 < float(told) < 1000 < large.nbytes / 2**20


def test_memory_used_where_the_system_does_not_tell_the_peak(monkeypatch):
    monkeypatch.setattr(Path, "read_text", lambda _: "Name:\tpython\nVmRSS:\t1 kB\n")
    assert memory_used(torch.device("cpu")) > 50


def test_the_environment_is_recorded(run):
    told = json.loads((run[0] / "environment.json").read_text())
    assert told["threads"] == torch.get_num_threads() and told["device"] == "cpu"


def test_without_validation_and_test_there_is_no_error():
    data = replace(clouds(), x_test=None, y_test=None)
    made = recipe(split=replace(recipe().split, validation=0), evaluation=EvaluationPlan(every=6, rule="last"))
    result = fit(made, data, how=QUIET).runs[0].result
    assert result["test_error"]["last"] is None and result["evaluation"] == {}


def test_a_run_without_a_folder_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fit(recipe(), clouds(), how=QUIET)
    assert not list(tmp_path.iterdir())


def test_a_checkpoint_of_another_version_is_refused_and_kept(tmp_path, monkeypatch):
    def stop(plan, metrics):
        raise KeyboardInterrupt

    often = replace(QUIET, checkpoint_steps=2)
    with pytest.raises(KeyboardInterrupt):
        fit(recipe("ns3l"), clouds(), out=tmp_path, how=replace(often, watch=stop))
    saved = sorted(path.name for path in tmp_path.rglob("step-*"))
    assert saved
    true = Replica.state
    monkeypatch.setattr(Replica, "state", lambda replica: true(replica) | {"further": torch.zeros(1)})
    with pytest.raises(RunError, match="lacks further: another version of ns3l wrote it"):
        fit(recipe("ns3l"), clouds(), out=tmp_path, how=often)
    assert sorted(path.name for path in tmp_path.rglob("step-*")) == saved
    monkeypatch.undo()
    assert fit(recipe("ns3l"), clouds(), out=tmp_path, how=often).runs[0].result["status"] == "complete"
