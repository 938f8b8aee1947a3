"""Results as one small JSON file: what reports read of run folders, without weights, splits and long histories."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from ns3l.errors import RunError
from ns3l.record.files import plain as jsonable
from ns3l.record.files import read_json, to_json, write_bytes, writing
from ns3l.report.run import FIGURES, Run, is_step, number, plain
from ns3l.statistics import RULES

KIND, FORMAT = "ns3l results", 1
LARGEST = 32 * 2**20
"""Bytes that a file of results may have."""
POINTS = 50
"""Evaluations of a run that are kept, evenly over its steps, the last among them."""
_MOST_RUNS, _MOST_POINTS, _MOST_PROBLEMS = 20_000, 1_000, 50
_LARGEST_CONFUSION = 20
_DIGITS = 6
_CURVES = ("test_error", "validation_error")
_NEGATIVES = ("marked", "rows_without", "true_marked")
_SHARED = ("recipe", "environment", "model")


@dataclass(frozen=True)
class Saved:
    """What a file of results holds."""

    title: str | None
    runs: tuple[Run, ...]


def save(runs: Sequence[Run], path: str | Path, title: str | None = None) -> Path:
    """Write runs as one file of results, whole or not at all; equal recipes and environments stand there once."""
    target = Path(path)
    shared: dict[str, dict[str, int]] = {name: {} for name in _SHARED}
    entries = [_entry(run, shared) for run in runs]
    head = {"kind": KIND, "format": FORMAT, "title": title}
    lists = {f"{name}s": list(texts) for name, texts in shared.items()} | {"runs": entries}
    text = ",\n".join(
        [f"{to_json(name)}: {to_json(value)}" for name, value in head.items()]
        + [f"{to_json(name)}: [\n" + ",\n".join(lines) + "\n]" for name, lines in lists.items()]
    )
    content = f"{{\n{text}\n}}\n".encode(errors="replace")
    if len(content) > LARGEST:
        raise RunError(f"the results of {len(runs):,} runs take {len(content):,} bytes, a file has at most {LARGEST:,}")
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(target, content)
    return target


def _entry(run: Run, shared: dict[str, dict[str, int]]) -> str:
    """A run as a line of JSON; what it shares with others by its place among them."""
    parts = {
        "recipe": run.recipe,
        "environment": dict(run.environment) | {"command": _command(run.environment.get("command"))},
        "model": {"classes": run.classes, "shape": run.shape},
    }
    places = {name: _place(shared[name], parts[name]) for name in _SHARED}
    told = {
        "path": "/".join(run.path.parts[-3:]),
        **places,
        "split": {"hash": _short(run.split_hash), "data_hash": run.split.get("data_hash")},
        "result": _result(run),
        "metrics": _columns(run.metrics),
        "problems": [plain(problem) for problem in run.problems[:_MOST_PROBLEMS]],
    }
    return to_json(told, lossy=True)


def _short(text: str) -> str:
    return text if len(text) <= 100 else hashlib.sha256(text.encode(errors="replace")).hexdigest()


def _place(known: dict[str, int], value: Any) -> int:
    return known.setdefault(to_json(jsonable(value, lossy=True)), len(known))


def _command(words: object) -> list[str] | None:
    """The command line as it was given; of absolute paths, which say nothing on another machine, the last part."""
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        return None
    return ["ns3l", *map(_elsewhere, words[1:])]


def _elsewhere(word: str) -> str:
    option, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
    path = PurePath(value)
    return f"{option}{equals}{path.name if path.is_absolute() else value}"


def _result(run: Run) -> dict[str, Any]:
    """The result with everything that a report would else work out from what is not kept."""
    errors = {f"{part}_error": {rule: run.error(rule, part) for rule in RULES} for part in ("test", "validation")}
    figures = {name: run.told(name) for name in FIGURES}
    known = {"status": run.status, "seed": run.seed, "labels": run.labels, "step": run.step, "hardware": run.hardware}
    evaluation = run.result.get("evaluation")
    parts = evaluation.items() if isinstance(evaluation, Mapping) else ()
    return {**run.result, **known, **errors, **figures, "evaluation": {name: _summary(part) for name, part in parts}}


def _summary(part: Any) -> Any:
    """A final evaluation without a confusion of many classes."""
    if not isinstance(part, Mapping):
        return None
    confusion = part.get("confusion")
    return {
        name: value
        for name, value in part.items()
        if name != "confusion" or (isinstance(confusion, list) and len(confusion) <= _LARGEST_CONFUSION)
    }


def _columns(metrics: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The curves that figures draw, as columns beside their steps."""
    lines = _thinned(metrics)
    terms = dict.fromkeys(str(term) for line in lines for term in _mapping(line.get("negatives")))
    told = {name: [_rounded(line.get(name)) for line in lines] for name in _CURVES}
    negatives = {
        term: {
            name: [_rounded(_mapping(_mapping(line.get("negatives")).get(term)).get(name)) for line in lines]
            for name in _NEGATIVES
        }
        for term in terms
    }
    known = {name: column for name, column in told.items() if any(value is not None for value in column)}
    return {"step": [line["step"] for line in lines], **known, **({"negatives": negatives} if negatives else {})}


def _thinned(metrics: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    last = len(metrics) - 1
    if last < POINTS:
        return list(metrics)
    return [metrics[round(last * place / (POINTS - 1))] for place in range(POINTS)]


def _rounded(value: object) -> float | None:
    known = number(value)
    return None if known is None else float(f"{known:.{_DIGITS}g}")


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def load(path: str | Path) -> Saved:
    """Read a file of results; RunError where it is none, is damaged, or is too large."""
    source = Path(path)
    held = read_json(source, LARGEST)
    if held.get("kind") != KIND:
        raise RunError(f"{plain(source)} holds no results: give a file that `ns3l report RUNS --save FILE` wrote.")
    if held.get("format") != FORMAT:
        raise RunError(
            f"{plain(source)} is of format {plain(held.get('format'))}, this version reads format {FORMAT}: "
            "read it with the version that wrote it, or save the run folders again."
        )
    try:
        shared = {name: _list(held.get(f"{name}s"), f"{name}s") for name in _SHARED}
        entries = _list(held.get("runs"), "runs")
        runs = tuple(_run(_dict(entry, "a run"), shared) for entry in entries)
    except (ValueError, RecursionError) as problem:
        raise RunError(f"{plain(source)} is damaged: {plain(problem)}. Save the run folders again.") from None
    title = held.get("title")
    return Saved(plain(title) if isinstance(title, str) else None, runs)


def _list(value: object, name: str) -> list[Any]:
    if not isinstance(value, list) or len(value) > _MOST_RUNS:
        raise ValueError(f"{name} must be a list of at most {_MOST_RUNS:,}")
    return value


def _dict(value: object, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{name} must be an object")
    return value


def _run(entry: dict[str, Any], shared: Mapping[str, list[Any]]) -> Run:
    parts = {name: _dict(_at(shared[name], entry.get(name), name), name) for name in _SHARED}
    return Run(
        path=Path(plain(entry.get("path") or "unknown")),
        result=_dict(entry.get("result"), "result"),
        split=_dict(entry.get("split"), "split"),
        metrics=_lines(_dict(entry.get("metrics"), "metrics")),
        problems=tuple(plain(problem) for problem in _list(entry.get("problems"), "problems")[:_MOST_PROBLEMS]),
        **parts,
    )


def _at(items: list[Any], place: object, name: str) -> Any:
    if not isinstance(place, int) or isinstance(place, bool) or not 0 <= place < len(items):
        raise ValueError(f"a run's {name} must be its place among {len(items)}, got {plain(place)}")
    return items[place]


def _lines(columns: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    """Lines of metrics, as a run folder has them, from columns."""
    steps = columns.get("step")
    if not isinstance(steps, list) or len(steps) > _MOST_POINTS or not all(map(is_step, steps)):
        raise ValueError(f"the steps of a curve must be at most {_MOST_POINTS:,} whole numbers")
    return tuple(_line(columns, place) for place in range(len(steps)))


def _line(columns: Mapping[str, Any], place: int) -> dict[str, Any]:
    """What every column holds at a place; what a column does not reach is left out."""
    line: dict[str, Any] = {}
    for name, column in columns.items():
        if isinstance(column, Mapping):
            line[name] = _line(column, place)
        elif isinstance(column, list) and place < len(column) and column[place] is not None:
            line[name] = column[place]
    return line
