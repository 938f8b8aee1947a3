"""A run folder: created, continued, refused, finished; one writer at a time."""

import json
import math
import os
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from ns3l.errors import RunError
from ns3l.record import RunFolder, read_tensors, write_json

RECIPE = {"method": "ns3l", "data": "digits", "steps": 100, "terms": {"ns3l": {"weight": 1.0, "passes": 2}}}
SPLIT = {"labeled": [1, 5], "seed": 3, "data_hash": "ab"}
ENVIRONMENT = {"python": "3.12", "packages": {"torch": "2"}, "command": ["a"]}
STATE = {"w": torch.arange(6.0).view(2, 3)}


def opened(path, recipe=RECIPE, split=SPLIT, seed=3, environment=ENVIRONMENT, **options):
    return RunFolder.open(path, recipe, split, seed, environment, **options)


def read(path):
    return json.loads(path.read_text())


def bytes_of(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file() and not p.name.startswith(".lock")}


def test_a_run_from_beginning_to_end(tmp_path):
    path = tmp_path / "deep" / "seed-3"
    with opened(path) as folder:
        assert folder.status == "new" and folder.load_checkpoint() is None
        assert read(path / "result.json")["status"] == "running"
        folder.append({"step": 10, "test_error": 4.0, "loss": {"total": math.nan}})
        folder.save_checkpoint(STATE, {"step": 10, "best": 4.0})
        assert read(path / "result.json")["step"] == 10
        folder.save_model(STATE, {"classes": ["a", "b"]})
        assert (path / "checkpoint").exists()
        folder.finish({"step": 100, "test_error": {"last": np.float64(4.0)}, "nll": math.inf})
    assert not (path / "checkpoint").exists()
    assert read(path / "recipe.json") == RECIPE and read(path / "split.json") == SPLIT
    assert read(path / "metrics.jsonl") == {"step": 10, "test_error": 4.0, "loss": {"total": None}}
    assert read(path / "model.json") == {"classes": ["a", "b"]}
    result = read(path / "result.json")
    assert result["status"] == "complete" and result["seed"] == 3 and result["reason"] is None
    assert result["test_error"] == {"last": 4.0} and result["nll"] is None and "checkpoint" not in result
    tensors, note = read_tensors(path / "model.safetensors")
    assert torch.equal(tensors["w"], STATE["w"]) and note == {"classes": ["a", "b"]}


@pytest.fixture
def disk(monkeypatch):
    """What is made durable or gets its name, in order: ("fsync" or "replace", file name)."""
    done = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda n: (done.append(("fsync", name_of(n))), fsync(n))[1])
    monkeypatch.setattr(os, "replace", lambda a, b: (done.append(("replace", b.name)), replace(a, b))[1])
    return done


def name_of(handle):
    return Path(f"/proc/self/fd/{handle}").readlink().name


def test_content_is_durable_before_it_gets_its_name(tmp_path, disk):
    write_json(tmp_path / "a.json", {})
    assert disk == [("fsync", f".a.json.{os.getpid()}.tmp"), ("replace", "a.json"), ("fsync", tmp_path.name)]


def test_metrics_are_durable_before_the_checkpoint_and_that_before_the_result(tmp_path, disk):
    with opened(tmp_path / "run") as folder:
        folder.load_checkpoint()
        folder.append({"step": 10})
        disk.clear()
        folder.save_checkpoint(STATE, {"step": 10})
    named = [("fsync", "metrics.jsonl"), ("replace", "step-00000010.safetensors"), ("replace", "result.json")]
    assert [done for done in disk if done in named] == named


def test_a_complete_run_is_said_to_be_so_and_not_written_again(tmp_path):
    with opened(tmp_path) as folder:
        folder.save_model(STATE, {})
        folder.finish({})
    before = bytes_of(tmp_path)
    with opened(tmp_path, environment=ENVIRONMENT | {"python": "4"}) as folder:
        assert folder.status == "complete"
        for write in (
            lambda: folder.append({"step": 1}),
            lambda: folder.save_checkpoint(STATE, {"step": 1}),
            folder.load_checkpoint,
            lambda: folder.save_model(STATE, {}),
            lambda: folder.finish({}),
            lambda: folder.fail("x"),
        ):
            with pytest.raises(RunError, match="is complete"):
                write()
    assert bytes_of(tmp_path) == before


def test_a_crash_between_result_and_clean_up_is_made_good(tmp_path, monkeypatch):
    with opened(tmp_path) as folder:
        folder.save_checkpoint(STATE, {"step": 1})
        folder.save_model(STATE, {})
        monkeypatch.setattr("ns3l.record.checkpoint.Checkpoints.remove", lambda self: None)
        folder.finish({})
        monkeypatch.undo()
    assert (tmp_path / "checkpoint").exists()
    opened(tmp_path).close()
    assert not (tmp_path / "checkpoint").exists()


def test_checkpoints_stay_until_result_and_model_are_durable(tmp_path, monkeypatch):
    with opened(tmp_path) as folder:
        folder.save_checkpoint(STATE, {"step": 1})
        with pytest.raises(RunError, match="no model yet"):
            folder.finish({})
        folder.save_model(STATE, {})
        monkeypatch.setattr("os.replace", fail_with(28))
        with pytest.raises(RunError, match="Cannot write"):
            folder.finish({})
        assert folder.load_checkpoint()[1] == {"step": 1}
        monkeypatch.undo()
        folder.finish({})
    assert read(tmp_path / "result.json")["status"] == "complete"


def fail_with(number):
    def refuse(*_, **__):
        raise OSError(number, os.strerror(number))

    return refuse


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"recipe": {**RECIPE, "terms": {"ns3l": {"weight": 0.3, "passes": 2}}}}, "weight: 1.0 stored, 0.3 given"),
        ({"recipe": {**RECIPE, "extra": 1}}, r"recipe\.extra: not stored"),
        ({"recipe": {"method": "ns3l", "data": "digits", "steps": 100}}, r"recipe\.terms: not given"),
        ({"split": {**SPLIT, "labeled": [1, 6]}}, r"split\.labeled\[1\]: 5 stored, 6 given"),
        ({"seed": 4}, "seed: 3 stored, 4 given"),
    ],
)
def test_another_run_is_refused_and_nothing_is_touched(tmp_path, change, message):
    with opened(tmp_path) as folder:
        folder.append({"step": 1})
    (tmp_path / ".left.1.tmp").write_text("left")
    before = bytes_of(tmp_path)
    with pytest.raises(RunError, match=message):
        opened(tmp_path, **change)
    assert bytes_of(tmp_path) == before
    opened(tmp_path).close()
    assert not (tmp_path / ".left.1.tmp").exists()


def test_the_same_settings_in_other_clothes_are_the_same(tmp_path):
    opened(tmp_path, recipe={"steps": 100, "sizes": (1, 2), "rate": 1.0}).close()
    opened(tmp_path, recipe={"rate": np.float32(1), "steps": np.int64(100), "sizes": np.array([1, 2])}).close()
    with pytest.raises(RunError, match="rate"):
        opened(tmp_path, recipe={"rate": True, "steps": 100, "sizes": [1, 2]})


def test_recipes_that_json_cannot_hold_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"recipe\.a\[0\] is nan"):
        opened(tmp_path, recipe={"a": [math.nan]})
    with pytest.raises(TypeError, match=r"recipe\.a must be JSON data"):
        opened(tmp_path, recipe={"a": object()})
    opened(tmp_path).close()  # the lock was given back


def test_folders_that_are_no_runs(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunError, match="is a file"):
        opened(tmp_path / "file")
    (tmp_path / "metrics.jsonl").write_text("{}\n")
    with pytest.raises(RunError, match=r"metrics\.jsonl but no recipe\.json"):
        opened(tmp_path)


def test_a_run_killed_while_it_was_created_is_continued(tmp_path):
    opened(tmp_path).close()
    for name in ("result.json", "environment.json", "split.json"):
        (tmp_path / name).unlink()
    with opened(tmp_path) as folder:
        assert folder.status == "running" and folder.load_checkpoint() is None
    assert read(tmp_path / "split.json") == SPLIT and read(tmp_path / "result.json")["seed"] == 3


def test_failure_keeps_checkpoints_and_its_reason_for_later(tmp_path):
    with opened(tmp_path) as folder:
        folder.save_checkpoint(STATE, {"step": 5})
        folder.fail("loss was not finite", {"seconds": 3.0})
    result = read(tmp_path / "result.json")
    assert (result["status"], result["reason"], result["step"]) == ("failed", "loss was not finite", 5)
    with opened(tmp_path) as folder:
        assert folder.status == "failed" and read(tmp_path / "result.json")["status"] == "failed"
        assert folder.load_checkpoint()[1]["step"] == 5
    result = read(tmp_path / "result.json")
    assert (result["status"], result["reason"]) == ("running", None)
    assert result["earlier_failures"] == ["loss was not finite"]


def test_another_environment_is_added_once_and_told(tmp_path):
    opened(tmp_path).close()
    other = ENVIRONMENT | {"packages": {"torch": "3"}}
    for _ in range(2):
        with opened(tmp_path, environment=other) as folder:
            pass
    assert read(tmp_path / "environment.json") == ENVIRONMENT | {"continued": [other]}
    with opened(tmp_path, environment=ENVIRONMENT | {"command": ["b"]}) as folder:
        assert folder.notices == []
    told = []
    opened(tmp_path, environment=ENVIRONMENT | {"python": "4"}, tell=told.append).close()
    assert "python: 3.12 stored, 4 given" in told[0].replace('"', "")


def test_a_second_writer_is_refused_with_the_name_of_the_first(tmp_path):
    with opened(tmp_path) as folder:
        with pytest.raises(RunError, match=f"process {os.getpid()} on "):
            opened(tmp_path)
        folder.append({"step": 1})
    folder.close()
    with pytest.raises(RunError, match="is closed"):
        folder.append({"step": 2})
    opened(tmp_path).close()


def test_a_clock_that_was_set_back_is_harmless(tmp_path, monkeypatch):
    with opened(tmp_path) as folder:
        folder.save_checkpoint(STATE, {"step": 1})
        folder.save_checkpoint(STATE, {"step": 2})
    os.utime(folder.checkpoints.path(1), (2e9, 2e9))
    os.utime(tmp_path / ".lock", (2e9, 2e9))
    monkeypatch.setattr(time, "time", lambda: 0.0)
    with opened(tmp_path) as folder:
        assert folder.load_checkpoint()[1]["step"] == 2
