"""Progress in a terminal and out of one, and event files that TensorBoard reads back."""

import io
import sys
import warnings

import pytest

from ns3l.errors import UserError
from ns3l.progress import EventWriter, Progress, duration, scalars

METRICS = {
    "step": 1000,
    "loss": {"total": 1.5, "supervised": 1.0, "ns3l": 0.5},
    "validation_error": 12.345,
    "steps_per_second": 100.0,
    "test_error": None,
}


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


def test_plain_prints_one_line_at_each_evaluation():
    out = io.StringIO()
    with Progress("auto", ["seed-0", "seed-1"], 2000, out) as progress:
        assert progress.mode == "plain"
        progress.update(0, 500, {"step": 500, "loss": {"total": 2.0}})
        progress.update(1, 1000, METRICS)
        progress.say("note [bold]")
    assert out.getvalue().splitlines() == [
        "seed-1  step 1,000/2,000  loss 1.5 (supervised 1, ns3l 0.5)  error validation 12.35 %  100 steps/s  0:10 left",
        "note [bold]",
    ]


def test_numbers_that_are_not_known_are_left_out():
    out = io.StringIO()
    Progress("plain", ["a"], 10, out).update(0, 1, {"loss": {"total": None}, "test_error": 3.0})
    assert out.getvalue() == "a  step 1/10  error test 3.00 %\n"


def test_quiet_says_only_what_must_be_known():
    out = io.StringIO()
    with Progress("quiet", ["a"], 10, out) as progress:
        progress.update(0, 10, METRICS)
        progress.say("checkpoint damaged")
    assert out.getvalue() == "checkpoint damaged\n"


def test_live_shows_a_row_for_each_replica(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    out = Terminal()
    with Progress("auto", ["seed-0", "[red]seed-1"], 2000, out) as progress:
        assert progress.mode == "live"
        progress.update(0, 1000, METRICS)
        progress.say("a [message]")
    text = out.getvalue()
    for word in ("seed-0", "[red]seed-1", "1,000/2,000", "ns3l 0.5", "validation 12.35 %", "0:10 left", "a [message]"):
        assert word in text


def test_speed_is_measured_where_it_is_not_given(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("ns3l.progress.time.monotonic", lambda: now[0])
    out = io.StringIO()
    progress = Progress("plain", ["a"], 100, out)
    progress.update(0, 40, {})  # a resumed run begins here
    now[0] += 2
    progress.update(0, 60, {"test_error": 1.0})
    assert "10 steps/s  0:04 left" in out.getvalue()


def test_unknown_mode_is_refused():
    with pytest.raises(UserError, match="auto, plain, quiet or live, not 'loud'"):
        Progress("loud", [], 1)


def test_duration():
    assert [duration(s) for s in (-1, 42.4, 725, 12000)] == ["0:00", "0:42", "12:05", "3:20:00"]


def test_scalars_are_named_by_their_path():
    metrics = {
        "step": 3,
        "loss": {"total": 1},
        "negatives": {"ns3l": {"marked": 0.5}},
        "a": None,
        "b": "text",
        "c": True,
    }
    assert dict(scalars(metrics)) == {"loss/total": 1.0, "negatives/ns3l/marked": 0.5}


def test_event_files_are_read_back(tmp_path):
    pytest.importorskip("tensorboard")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        with EventWriter(tmp_path) as writer:
            writer.write(1000, METRICS)
            writer.write(2000, METRICS | {"loss": {"total": 0.25}})
        found = EventAccumulator(str(tmp_path)).Reload()
    assert [(e.step, e.value) for e in found.Scalars("loss/total")] == [(1000, 1.5), (2000, 0.25)]
    assert "validation_error" in found.Tags()["scalars"] and "step" not in found.Tags()["scalars"]


def test_missing_tensorboard_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(UserError, match=r"pip install ns3l\[tensorboard\]"):
        EventWriter(tmp_path)
