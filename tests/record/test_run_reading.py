"""Reading run folders: tolerant of damage, bounded, and quick over a thousand runs."""

import json
import time

import pytest

from ns3l.errors import RunError
from ns3l.record import RunFolder, differences, find_runs, index, read_json, read_run, write_json

RESULT = {"status": "complete", "seed": 0, "test_error": {"last": 5.0}}


def run(path, **result):
    path.mkdir(parents=True)
    (path / "result.json").write_text(json.dumps(RESULT | result))
    return path


def test_a_run_is_read_as_it_was_written(tmp_path):
    with RunFolder.open(tmp_path, {"method": "x"}, {"labeled": [1]}, 2, {"python": "3"}) as folder:
        folder.append({"step": 1, "test_error": 3.0})
        found = read_run(tmp_path)  # while it is being written
    assert (found.recipe, found.split, found.environment) == ({"method": "x"}, {"labeled": [1]}, {"python": "3"})
    assert found.metrics == [{"step": 1, "test_error": 3.0}] and found.problems == []
    assert found.status == "running" and found.result["seed"] == 2


def test_damage_is_listed_and_the_rest_is_read(tmp_path):
    run(tmp_path / "a")
    (tmp_path / "a" / "recipe.json").write_text('{"method": ')
    (tmp_path / "a" / "split.json").write_text("[1]")
    (tmp_path / "a" / "metrics.jsonl").write_bytes(b'{"step":1}\n\xff\n{"step":2}\n{"st')
    found = read_run(tmp_path / "a")
    assert found.result == RESULT and found.metrics == [{"step": 1}, {"step": 2}]
    assert found.recipe == {} and found.status == "complete"
    text = "\n".join(found.problems)
    for word in (
        "recipe.json is damaged",
        "must hold a JSON object, not a list",
        "environment.json",
        "line 2",
        "line 4",
    ):
        assert word in text


def test_no_run_is_an_error(tmp_path):
    with pytest.raises(RunError, match="not a run folder"):
        read_run(tmp_path)
    with pytest.raises(RunError, match="not a folder"):
        find_runs(tmp_path / "absent")


def test_runs_are_found_in_order_without_following_links(tmp_path):
    for seed in (0, 2, 10, 1):
        run(tmp_path / "study" / "ns3l" / f"seed-{seed}")
    run(tmp_path / "study" / "ns3l" / "seed-0" / "checkpoint" / "inner")
    run(tmp_path / ".hidden" / "seed-0")
    (tmp_path / "study" / "loop").symlink_to(tmp_path)
    found = find_runs(tmp_path)
    assert [path.name for path in found] == ["seed-0", "seed-1", "seed-2", "seed-10"]
    assert find_runs(found[0]) == [found[0]]


def test_index_says_what_cannot_be_read(tmp_path):
    run(tmp_path / "a")
    run(tmp_path / "b").joinpath("result.json").write_text("{")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "recipe.json").write_text("{}")
    a, b, c = index(tmp_path)
    assert a.result == RESULT and a.problem is None
    assert (b.status, c.status) == ("damaged", "damaged")
    assert "damaged" in b.problem and "No such file" in c.problem
    (tmp_path / "b" / "result.json").write_text('{"status": "failed"}')
    assert index(tmp_path)[1].status == "failed"  # nothing is cached


@pytest.mark.parametrize("place", ["last", "first"])
def test_index_leaves_out_the_evaluation_whoever_wrote_it(tmp_path, place):
    result = {"note": 'a "evaluation": 3', "evaluation": {"test": {"evaluation": [1]}}, "step": 1}
    if place == "last":
        result["evaluation"] = result.pop("evaluation")
    run(tmp_path / "a")
    write_json(tmp_path / "a" / "result.json", result)
    assert index(tmp_path)[0].result == result | {"evaluation": None}
    for indent in (None, 0, 2):  # rewritten by another tool
        (tmp_path / "a" / "result.json").write_text(json.dumps(result, indent=indent))
        assert index(tmp_path)[0].result == result


def test_a_thousand_runs_of_a_hundred_classes_are_listed_under_a_second(tmp_path):
    part = {"confusion": [[1] * 100] * 100, "per_class_error": [12.3456789] * 100}
    write_json(run(tmp_path / "first") / "result.json", RESULT | {"evaluation": {"test": part, "validation": part}})
    content = (tmp_path / "first" / "result.json").read_bytes()
    for number in range(999):
        run(tmp_path / f"method-{number % 10}" / f"seed-{number}").joinpath("result.json").write_bytes(content)
    started = time.process_time()
    found = index(tmp_path)
    assert time.process_time() - started < 1
    assert len(found) == 1000 and all(summary.status == "complete" for summary in found)


@pytest.mark.parametrize("text", ["[" * 200_000, '{"a":' * 200_000, "9" * 100_000, '{"a": NaN}', "", "\x00", '"a"'])
def test_absurd_json_is_our_error(tmp_path, text):
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(RunError):
        read_json(path)


def test_huge_json_is_not_read(tmp_path):
    path = tmp_path / "a.json"
    with path.open("wb") as file:
        file.truncate(2**40)  # sparse
    with pytest.raises(RunError, match="at most 67,108,864"):
        read_json(path)
    with pytest.raises(RunError, match="Cannot read"):
        read_json(tmp_path)


def test_huge_metrics_are_read_in_bounds(tmp_path, monkeypatch):
    run(tmp_path / "a")
    monkeypatch.setattr("ns3l.record.metrics.LARGEST_FILE", 100)
    monkeypatch.setattr("ns3l.record.metrics.LARGEST_LINE", 40)
    (tmp_path / "a" / "metrics.jsonl").write_bytes(b'{"step":1}\n' + b"x" * 85 + b"\n" + b'{"step":2}\n' * 10)
    found = read_run(tmp_path / "a")
    assert found.metrics[0] == {"step": 1} and len(found.metrics) <= 2
    assert any("only that many are read" in problem for problem in found.problems)


def test_differences_name_paths():
    stored = {"a": {"b": 1, "c": [1, {"d": 2}]}, "e": None}
    assert differences(stored, json.loads(json.dumps(stored))) == []
    given = {"a": {"b": 1.0, "c": [1, {"d": 3}]}, "f": 1}
    assert differences(stored, given) == ["a.c[1].d: 2 stored, 3 given", "e: not given", "f: not stored"]
    assert differences({"a": [1, 2]}, {"a": [1]}) == ["a: [1,2] stored, [1] given"]
