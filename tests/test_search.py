"""Search: judged on validation, pruned by the median, continued where it was interrupted."""

import os
import signal
from dataclasses import replace

import pytest
from tests.executors.small_study import SMALL

import ns3l
from ns3l.errors import InUseError, RecipeError, RunError, UserError
from ns3l.recipes import override
from ns3l.record import read_json
from ns3l.record.lock import FolderLock
from ns3l.search import Range, parse_range, search, usual_space
from ns3l.train import Stopped

optuna = pytest.importorskip("optuna")
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
QUIET = ns3l.How(device="cpu", progress="quiet")
SPACE = {"optimizer.lr": Range(1e-4, 1e-1, True), "batch.labeled": (10, 20)}


def recipe(**settings):
    """NS3L on digits, small."""
    return override(ns3l.recipe("ns3l", "digits", 30), SMALL | settings)


def searched(out, trials=3, watch=None, said=None, **more):
    """A search without a word."""
    tell = (said if said is not None else []).append
    data = ns3l.load("digits")
    return search(recipe(), data, SPACE, trials, out=out, how=replace(QUIET, watch=watch), tell=tell, **more)


def told(result):
    """Everything that must not depend on interruptions."""
    return [(t.number, t.values, t.validation_error, t.status) for t in result.trials]


def test_the_best_trial_is_chosen_on_validation(tmp_path):
    said = []
    result = searched(tmp_path, 3, said=said)
    complete = [trial for trial in result.trials if trial.status == "complete"]
    assert result.best.validation_error == min(trial.validation_error for trial in complete)
    assert result.best_recipe.optimizer.lr == result.best.values["optimizer.lr"]
    assert result.best_recipe.batch.labeled in (10, 20)
    stored = read_json(result.best.path / "seed-0" / "result.json")
    assert stored["validation_error"]["last"] == result.best.validation_error
    assert "complete, best" in result.to_text().splitlines()[1]
    assert [row["number"] for row in result.to_dict()["trials"]] == [0, 1, 2]
    assert len(said) == 3
    assert told(searched(tmp_path, 3)) == told(result), "a search that is done is only read"


def test_a_trial_is_the_mean_over_its_seeds_which_report_at_points_of_their_own(tmp_path):
    best = searched(tmp_path, 1, seeds=(0, 1)).best
    errors = [read_json(best.path / f"seed-{seed}" / "result.json")["validation_error"]["last"] for seed in (0, 1)]
    assert errors[0] != errors[1]
    assert best.validation_error == pytest.approx(sum(errors) / 2)
    kept = optuna.load_study(study_name="search", storage=f"sqlite:///{tmp_path / 'trials.sqlite'}")
    assert list(kept.trials[0].intermediate_values) == [10, 20, 30, 40]


def test_interrupted_and_continued_is_as_never_interrupted(tmp_path):
    seen = []

    def stop(plan, metrics):
        seen.append(metrics["step"])
        if len(seen) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return False

    with pytest.raises(Stopped):
        searched(tmp_path / "a", 3, stop)
    assert told(searched(tmp_path / "a", 3)) == told(searched(tmp_path / "b", 3))


def test_bad_trials_are_pruned_and_failed_ones_do_not_end_the_search(tmp_path):
    def spoil(plan, metrics):
        if plan.recipe.optimizer.lr < 2e-3:
            raise OSError("too slow for me")
        return False

    said = []
    result = searched(tmp_path, 9, spoil, said, seed=1)
    statuses = [trial.status for trial in result.trials]
    assert {"complete", "pruned", "failed"} == set(statuses), said
    pruned = result.trials[statuses.index("pruned")]
    kept = read_json(pruned.path / "seed-0" / "result.json")
    assert kept["status"] == "failed" and kept["reason"].startswith("pruned at step 10")
    failed = result.trials[statuses.index("failed")]
    assert read_json(failed.path / "seed-0" / "result.json")["reason"] == "OSError: too slow for me"
    assert any("OSError: too slow for me" in line for line in said)


def test_mistakes_are_refused(tmp_path):
    with pytest.raises(RecipeError, match=r"give the recipe split\.validation"):
        search(recipe(**{"split.validation": 0}), ns3l.load("digits"), out=tmp_path)
    searched(tmp_path, 0)
    with pytest.raises(RunError, match="holds another search"):
        searched(tmp_path, 0, seed=9)
    lock = FolderLock(tmp_path)
    with pytest.raises(InUseError, match="is being carried out by process"):
        searched(tmp_path, 0)
    lock.release()
    with pytest.raises(RunError, match="no trial is complete"):
        _ = searched(tmp_path, 0).best_recipe
    with pytest.raises(RecipeError, match="low < high"):
        Range(1.0, 1.0)


def test_ranges_are_read():
    assert parse_range("0.01..0.1") == Range(0.01, 0.1)
    assert parse_range("1e-4..1e-2:log") == Range(1e-4, 1e-2, True)
    assert parse_range("adam, sgd") == ("adam", "sgd")
    for wrong in ("a..b", "1..2:lin", "..", "2..1"):
        with pytest.raises(UserError, match="range"):
            parse_range(wrong)


def test_the_usual_space_is_around_the_recipe():
    space = usual_space(ns3l.recipe("vat+ns3l", "digits", 30))
    assert set(space) == {"vat.weight", "ns3l.weight", "ns3l.negatives.threshold", "optimizer.lr"}
    assert space["ns3l.negatives.threshold"] == Range(0.01, 0.09)
    assert space["optimizer.lr"].log
