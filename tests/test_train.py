"""Training from data to results: stopped, killed and resumed bit for bit; failed; in groups; chosen weights."""

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.training import QUIET, clouds, ended, lines, recipe, same

import ns3l.train as training
from ns3l.engine import Engine
from ns3l.errors import RecipeError, RunError
from ns3l.optimize import SGD
from ns3l.recipe import EvaluationPlan
from ns3l.record.lock import FolderLock
from ns3l.run import Run
from ns3l.shared import How, Plan
from ns3l.split import make_split
from ns3l.train import Stopped, fastest, fit, train

ROOT = Path(__file__).parent.parent


def plans(made, seeds, out=None, data=None):
    data = data or clouds()
    return [Plan(made, make_split(data, made.split, s), s, out and out / f"seed-{s}") for s in seeds]


def tensors(result, place=0):
    return result.models[place].state()


def stop_after(monkeypatch, step):
    """A SIGTERM as soon as a step is done."""
    advance = Engine.advance

    def stopping(engine, first, steps):
        advance(engine, first, steps)
        if first < step <= first + steps:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(training, "LOOK", 1)
    monkeypatch.setattr(Engine, "advance", stopping)


@pytest.mark.parametrize("step", [1, 4, 7, 11, 12])
@pytest.mark.parametrize("method", ["vat+ns3l", "mean-teacher"])
def test_stopped_by_a_signal_and_resumed_is_uninterrupted(tmp_path, monkeypatch, method, step):
    fit(recipe(method), clouds(), out=tmp_path / "whole", how=QUIET)
    with monkeypatch.context() as patch:
        stop_after(patch, step)
        with pytest.raises(Stopped, match="start the same command again") as stopped:
            fit(recipe(method), clouds(), out=tmp_path / "parts", how=QUIET)
    assert stopped.value.code == 143
    fit(recipe(method), clouds(), out=tmp_path / "parts", how=QUIET)
    whole, parts = tmp_path / "whole/seed-0", tmp_path / "parts/seed-0"
    assert lines(whole) == lines(parts)
    (result, model), (other, resumed) = ended(whole), ended(parts)
    assert result == other and same(model, resumed)
    assert not list((parts / "checkpoint").glob("*"))


def killed(out, delay):
    """A training process, killed a while after its first checkpoint, or ended."""
    child = subprocess.Popen([sys.executable, "-m", "tests.training", str(out)], cwd=ROOT)
    limit = time.monotonic() + 120
    while child.poll() is None and time.monotonic() < limit and not list(out.glob("*/checkpoint/step*")):
        time.sleep(0.005)
    time.sleep(delay)
    child.kill()
    return child.wait()


@pytest.mark.parametrize("delays", [[0.05], pytest.param([0.0, 0.01, 0.1, 0.02, 0.2, 0.05], marks=pytest.mark.slow)])
def test_killed_and_resumed_is_uninterrupted(tmp_path, delays):
    codes = [killed(tmp_path / "parts", delay) for delay in delays]
    assert codes[0] == -signal.SIGKILL
    made = recipe("vat+ns3l", steps=60, every=6)
    for name in ("whole", "parts"):
        fit(made, clouds(), out=tmp_path / name, how=replace(QUIET, checkpoint_steps=3))
    whole, parts = tmp_path / "whole/seed-0", tmp_path / "parts/seed-0"
    assert lines(whole) == lines(parts)
    (result, model), (other, resumed) = ended(whole), ended(parts)
    assert result == other and same(model, resumed)


def test_a_complete_run_is_only_read(tmp_path, monkeypatch):
    first = fit(recipe(), clouds(), out=tmp_path, how=QUIET)
    monkeypatch.setattr(Engine, "advance", lambda *_: pytest.fail("it was trained again"))
    again = fit(recipe(), clouds(), out=tmp_path, how=QUIET)
    assert same(tensors(first), tensors(again)) and first.errors() == again.errors()


def test_nothing_to_train_is_nothing():
    assert train([], clouds(), QUIET) == []


def test_numbers_that_end_are_recorded_and_may_be_tried_again(tmp_path):
    made = recipe(optimizer=SGD(1e300, 0.0))
    for attempt in range(2):
        result = fit(made, clouds(), out=tmp_path, how=QUIET)
        assert result.models == (None,)
        told = json.loads((tmp_path / "seed-0/result.json").read_text())
        assert (told["status"], told["step"]) == ("failed", 0)
        assert told["reason"] == "not finite at step 0: weights; weights stay as before that step"
        assert len(told.get("earlier_failures", [])) == attempt
        assert list((tmp_path / "seed-0/checkpoint").iterdir())


def test_a_failed_replica_harms_no_other():
    made = [recipe(optimizer=SGD(1e300, 0.0)), recipe()]
    both = [plans(each, [0])[0] for each in made]
    one, other = train(both, clouds(), replace(QUIET, replicas=2))
    alone = fit(recipe(), clouds(), how=QUIET)
    assert one.model is None and one.result["status"] == "failed"
    assert same(other.model.state(), tensors(alone))


def test_runs_are_the_same_alone_and_side_by_side(tmp_path):
    grid = [recipe("vat+ns3l", optimizer=replace(recipe().optimizer, lr=lr)) for lr in (1e-2, 3e-2)]
    both = [plans(made, [seed], tmp_path / str(seed))[0] for seed, made in enumerate(grid)]
    together = train(both, clouds(), replace(QUIET, replicas=2))
    for seed, made in enumerate(grid):
        alone = fit(made, clouds(), seeds=[seed], out=tmp_path / "alone", how=QUIET)
        assert same(together[seed].model.state(), tensors(alone))
        assert lines(tmp_path / str(seed) / f"seed-{seed}") == lines(tmp_path / "alone" / f"seed-{seed}")


def test_runs_left_at_different_steps_continue_each_from_its_own(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        stop_after(patch, 5)
        with pytest.raises(Stopped):
            fit(recipe(), clouds(), seeds=[1], out=tmp_path, how=QUIET)
    together = fit(recipe(), clouds(), seeds=[0, 1], out=tmp_path, how=replace(QUIET, replicas=2))
    for seed in (0, 1):
        assert same(tensors(together, seed), tensors(fit(recipe(), clouds(), seeds=[seed], how=QUIET)))


def test_too_many_for_the_memory_are_halved(monkeypatch):
    expected = fit(recipe(), clouds(), seeds=range(3), how=QUIET)
    advance, sizes = Engine.advance, []

    def scarce(engine, first, steps):
        sizes.append(len(engine.replicas))
        if len(engine.replicas) > 1 and first >= 4:
            raise torch.cuda.OutOfMemoryError("out of memory")
        advance(engine, first, steps)

    monkeypatch.setattr(Engine, "advance", scarce)
    found = fit(recipe(), clouds(), seeds=range(3), how=replace(QUIET, replicas=3))
    assert sizes[0] == 3 and sizes[-1] == 1
    assert all(same(tensors(expected, i), tensors(found, i)) for i in range(3))


def test_memory_for_half_of_them_is_used(monkeypatch):
    advance, sizes = Engine.advance, []

    def scarce(engine, first, steps):
        sizes.append(len(engine.replicas))
        if len(engine.replicas) > 2:
            raise torch.cuda.OutOfMemoryError("out of memory")
        advance(engine, first, steps)

    monkeypatch.setattr(Engine, "advance", scarce)
    fit(recipe(), clouds(), seeds=range(4), how=replace(QUIET, replicas=4))
    assert sizes[0] == 4 and set(sizes[1:]) == {2}


def test_one_run_that_does_not_fit_says_so(monkeypatch):
    def scarce(*_):
        raise torch.cuda.OutOfMemoryError("tried to allocate much")

    monkeypatch.setattr(Engine, "advance", scarce)
    with pytest.raises(RunError, match="one run alone does not fit into the device's memory: tried"):
        fit(recipe(), clouds(), how=QUIET)


def test_another_error_is_not_taken_for_want_of_memory(monkeypatch):
    sizes = []

    def broken(engine, *_):
        sizes.append(len(engine.replicas))
        raise RuntimeError("a layer is broken")

    monkeypatch.setattr(Engine, "advance", broken)
    with pytest.raises(RuntimeError, match=r"^a layer is broken"):
        fit(recipe(), clouds(), seeds=range(2), how=replace(QUIET, replicas=2))
    assert sizes == [2]


def test_a_run_that_cannot_begin_leaves_no_other_locked(tmp_path):
    (tmp_path / "seed-1").mkdir()
    lock = FolderLock(tmp_path / "seed-1")
    with pytest.raises(RunError, match="seed-1 is being written"):
        fit(recipe(), clouds(), seeds=range(2), out=tmp_path, how=replace(QUIET, replicas=2))
    lock.release()
    FolderLock(tmp_path / "seed-0").release()


def test_runs_are_trained_by_the_settings_of_their_recipe(monkeypatch):
    begin, advance, seen = training.begin, Engine.advance, set()

    def watched(call):
        def watching(*given):
            seen.add((call, torch.are_deterministic_algorithms_enabled()))
            return call(*given)

        return watching

    monkeypatch.setattr(training, "begin", watched(begin))
    monkeypatch.setattr(Engine, "advance", watched(advance))
    fit(recipe(), clouds(), how=QUIET)
    assert seen == {(begin, True), (advance, True)}


@pytest.mark.parametrize("replicas", [1, 2])
def test_training_stops_early_where_validation_stops_falling(tmp_path, replicas):
    plan = EvaluationPlan(every=2, patience=2)
    made = recipe("ns3l", steps=400, evaluation=plan)
    result = fit(made, clouds(), seeds=[0, 1], out=tmp_path, how=replace(QUIET, replicas=replicas))
    for seed, run in enumerate(result.runs):
        history = [(line["validation_error"], line["step"]) for line in lines(tmp_path / f"seed-{seed}")]
        assert run.result["step"] == history[-1][1] == min(history)[1] + 4 < 400
        assert run.result["validation_error"]["best_validation"] == min(history)[0]


@pytest.mark.parametrize("method", ["ns3l", "mean-teacher"])
def test_the_model_is_the_best_on_validation_not_the_last(tmp_path, method):
    average = "average" if method == "mean-teacher" else "student"
    made = recipe(method, steps=40, evaluation=EvaluationPlan(every=2, weights=average))
    chosen = fit(made, clouds(), out=tmp_path, how=QUIET)
    best = min((line["validation_error"], line["step"]) for line in lines(tmp_path / "seed-0"))[1]
    assert best < 40
    last = EvaluationPlan(every=2, weights=average, rule="last")
    there = fit(replace(made, steps=best, evaluation=last), clouds(), how=QUIET)
    assert same(tensors(chosen), tensors(there))
    assert chosen.runs[0].result["rule"] == "best_validation"


def test_the_last_weights_are_the_model_where_the_rule_says_so(tmp_path):
    made = recipe(steps=40, evaluation=EvaluationPlan(every=2, rule="last"))
    last = fit(made, clouds(), out=tmp_path, how=QUIET)
    unseen = fit(replace(made, evaluation=EvaluationPlan(every=40, rule="last")), clouds(), how=QUIET)
    assert min((line["validation_error"], line["step"]) for line in lines(tmp_path / "seed-0"))[1] < 40
    assert same(tensors(last), tensors(unseen))


def test_no_step_comes_after_the_last(monkeypatch):
    advance, ends = Engine.advance, []

    def noticed(engine, first, steps):
        ends.append(first + steps)
        advance(engine, first, steps)

    monkeypatch.setattr(Engine, "advance", noticed)
    result = fit(recipe(steps=10, every=4), clouds(), how=replace(QUIET, checkpoint_steps=3))
    assert ends == [3, 4, 6, 8, 9, 10] and result.runs[0].result["step"] == 10


def test_the_time_before_an_interruption_counts(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        stop_after(patch, 4)
        patch.setattr(Run, "seconds", 1000.0)
        with pytest.raises(Stopped):
            fit(recipe(), clouds(), out=tmp_path, how=QUIET)
    assert fit(recipe(), clouds(), out=tmp_path, how=QUIET).runs[0].result["seconds"] > 1000


def test_global_state_is_untouched(untouched_random_state):
    before = torch.are_deterministic_algorithms_enabled(), signal.getsignal(signal.SIGTERM)
    fit(recipe("mixmatch"), clouds(), how=QUIET)
    assert before == (torch.are_deterministic_algorithms_enabled(), signal.getsignal(signal.SIGTERM))


def test_progress_is_a_line_an_evaluation(capsys):
    fit(recipe(), clouds(), how=How(device="cpu", progress="plain"))
    told = capsys.readouterr().out.splitlines()
    assert sum("step 4/12" in line for line in told) == 1 and any("validation" in line for line in told)
    fit(recipe(), clouds(), how=QUIET)
    assert capsys.readouterr().out == ""


def test_tensorboard_reads_the_events(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    fit(recipe(), clouds(), out=tmp_path, how=replace(QUIET, tensorboard=True))
    events = accumulator.EventAccumulator(str(tmp_path / "seed-0/events"))
    events.Reload()
    tag = next(tag for tag in events.Tags()["scalars"] if "validation" in tag)
    assert [event.step for event in events.Scalars(tag)] == [4, 8, 12]


def test_the_fastest_group_that_fits_is_taken():
    def probe(seconds, each=1.0):
        return lambda size: (seconds[size] * size, each * size)

    assert fastest(probe({1: 2.0, 2: 1.5, 5: 1.0, 10: 0.9}), 20, 1e9) == 10
    assert fastest(probe({1: 2.0, 2: 1.5, 5: 1.49, 10: 0.9}), 20, 1e9) == 2
    assert fastest(probe({1: 2.0, 2: 1.5, 3: 1.0}), 3, 1e9) == 3
    assert fastest(probe({1: 2.0, 2: 1.5, 5: 1.0}), 20, 6.0) == 5
    assert fastest(probe({1: 2.0}), 1, 1e9) == 1

    def scarce(size):
        if size > 2:
            raise torch.cuda.OutOfMemoryError
        return 1.0, 1.0

    assert fastest(scarce, 10, 1e9) == 2


def test_what_does_not_match_is_refused(tmp_path):
    with pytest.raises(RecipeError, match="the recipe is for 4 classes, clouds has 3"):
        fit(recipe("pi", classes=4), clouds(), how=QUIET)
    with pytest.raises(RecipeError, match="there are 2 seeds and 1 splits"):
        fit(recipe(), clouds(), seeds=[0, 1], splits=[make_split(clouds(), recipe().split, 0)], how=QUIET)
    fit(recipe(), clouds(), out=tmp_path, how=QUIET)
    with pytest.raises(RunError, match="holds another run"):
        fit(recipe(steps=13), clouds(), out=tmp_path, how=QUIET)
