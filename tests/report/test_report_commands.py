"""Commands repeat their runs exactly; errors are those of validation where data have no test part."""

import itertools
import json
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tests.report.stored import evaluation, result, write

from ns3l.batch import BatchSize
from ns3l.negatives import Threshold
from ns3l.optimize import SGD
from ns3l.preprocess import Identity
from ns3l.recipe import Weighted
from ns3l.recipes import PUBLISHED, fast, override, recipe
from ns3l.report import report
from ns3l.schedule import LinearRamp

DIGITS = recipe("ns3l", "digits", 30)
ERRORS = {"last": 9.5, "best_validation": 9.0, "median_20": 9.2}


def stored(folder: Path, made, part: str = "validation", seed: int = 0) -> Path:
    """A run folder of a real recipe, evaluated on one part alone."""
    told = json.loads(json.dumps(made.to_dict()))
    known = result(made.method, 9.5, seed) | {"data": made.data, "labels": 30, "rule": made.evaluation.rule}
    known["schedule"] = made.schedule
    known |= {f"{name}_error": ERRORS if name == part else dict.fromkeys(ERRORS) for name in ("test", "validation")}
    return write(folder, told, known | {"evaluation": {part: evaluation(9.5)}}, [], seed)


def commands(root: Path) -> list[list[str]]:
    return [shlex.split(row[-1].text) for row in report(root).table("commands").rows]


def settings(words: list[str]) -> dict[str, str]:
    pairs = itertools.pairwise(words)
    return dict(value.split("=", 1) for name, value in pairs if name == "--set")


def test_a_default_recipe_needs_no_settings(tmp_path):
    stored(tmp_path / "seed-0", DIGITS)
    assert commands(tmp_path) == [shlex.split("ns3l train digits --labels 30 --method ns3l --protocol own --seed 0")]


def test_every_difference_from_the_default_is_set_to_the_last_digit(tmp_path):
    entry = Weighted(0.1234567891, replace(DIGITS.terms["ns3l"].term, negatives=Threshold(1 / 30)))
    plan = replace(DIGITS.evaluation, rule="last", every=7)
    changed = replace(
        DIGITS,
        terms=DIGITS.terms | {"ns3l": entry},
        steps=40,
        evaluation=plan,
        optimizer=replace(DIGITS.optimizer, lr=0.00123456789),
        split=replace(DIGITS.split, validation=100),
    )
    stored(tmp_path / "seed-0", changed)
    told = settings(commands(tmp_path)[0])
    assert json.loads(told["ns3l.weight"])["value"] == 0.1234567891
    assert float(told["ns3l.negatives.threshold"]) == 1 / 30
    assert (told["steps"], told["evaluation.every"], told["split.validation"]) == ("40", "7", "100")
    assert told["optimizer.lr"] == "0.00123456789"
    assert not {"method", "data", "split.labels"} & told.keys()

    assert same(override(recipe("ns3l", "digits", 30), told), changed)


def test_a_scaled_schedule_is_told_to_the_last_digit(tmp_path):
    stored(tmp_path / "seed-0", DIGITS.scaled(1 / 3))
    (words,) = commands(tmp_path)
    assert float(words[words.index("--schedule") + 1]) == 1 / 3
    assert settings(words) == {}


def same(one, other) -> bool:
    """Whether recipes are the same but for where their numbers come from and what the command says by other words."""
    plain, expected = (replace(r, sources={}, split=replace(r.split, labels=30)) for r in (one, other))
    same_terms = all(entry.term == other.terms[name].term for name, entry in one.terms.items())
    weights = [[r.objective().weights_at(step) for step in (0, 5, 9)] for r in (one, other)]
    return same_terms and weights[0] == weights[1] and replace(plain, terms=expected.terms) == expected


@pytest.mark.parametrize("method", ["supervised", "vat+ns3l", "mixmatch+ns3l"])
def test_what_is_set_leads_back_to_the_recipe_on_ones_own_data(tmp_path, method):
    made = recipe(method, "flowers", 30, classes=3, shape=(4,))
    lr = LinearRamp(0.01, 10)
    changed = replace(
        made, steps=13, batch=BatchSize(7, made.batch.unlabeled), optimizer=SGD(lr), preprocessing=Identity()
    )
    stored(tmp_path / "seed-0", changed)
    (tmp_path / "seed-0" / "model.json").write_text(json.dumps({"shape": [4], "classes": ["a", "b", "c"]}))
    assert same(override(made, settings(commands(tmp_path)[0])), changed)


def test_fast_runs_stand_apart_and_their_commands_say_how(tmp_path):
    stored(tmp_path / "exact" / "seed-0", DIGITS)
    stored(tmp_path / "fast" / "seed-0", fast(DIGITS))
    made = report(tmp_path)
    rows = made.table("results").rows
    assert [(row[0].text, row[5].text) for row in rows] == [("digits (own)", "1"), ("digits (own, in bf16)", "1")]
    assert "not bit-reproducible" not in " ".join(made.statements)
    told = [settings(words) for words in commands(tmp_path)]
    assert [override(DIGITS, one).execution for one in told] == [DIGITS.execution, fast(DIGITS).execution]


def test_runs_that_give_up_determinism_are_counted(tmp_path):
    loose = override(DIGITS, {"execution.deterministic": False})
    stored(tmp_path / "exact" / "seed-0", DIGITS)
    stored(tmp_path / "loose" / "seed-1", loose, seed=1)
    assert "1 of 2 runs are not bit-reproducible" in " ".join(report(tmp_path).statements)
    assert loose.execution in [override(DIGITS, settings(words)).execution for words in commands(tmp_path)]


@pytest.mark.parametrize(
    "words", [["--size", "8", "--skip-damaged", "--fit=crop", "--root", "some where"], ["--label-column=kind"]]
)
def test_ones_own_data_are_named_by_path_and_loaded_alike(tmp_path, words):
    made = recipe("ns3l", "data/flowers", 30, classes=3, shape=(8, 8, 3))
    stored(tmp_path / "seed-0", made)
    path = tmp_path / "seed-0" / "result.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"data": "flowers"}))
    command = ["/bin/ns3l", "study", "data/flowers", "--seeds", "2", *words]
    (tmp_path / "seed-0" / "environment.json").write_text(json.dumps({"command": command}))
    told = commands(tmp_path)[0]
    assert told[:3] == ["ns3l", "train", "data/flowers"]
    assert sorted(told[3 : told.index("--labels")]) == sorted(words)
    (tmp_path / "seed-0" / "environment.json").write_text(json.dumps({"command": ["mine.py", "--size", "8"]}))
    assert "--size" not in commands(tmp_path)[0], "another program's words"


@pytest.mark.parametrize("name", ["mixmatch/svhn-250/supervised", "table1/svhn/supervised", "fashion-mnist/ns3l-0.03"])
def test_a_row_of_the_paper_is_repeated_under_its_own_protocol(tmp_path, name):
    made = PUBLISHED[name]().scaled(0.1)
    stored(tmp_path / "seed-0", made)
    path = tmp_path / "seed-0" / "result.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"labels": made.split.labels, "schedule": 0.1}))
    told = commands(tmp_path)[0]
    words = dict(itertools.pairwise(told))
    asked = {"labels": made.split.labels, "schedule": 0.1, "protocol": words.get("--protocol")}
    assert override(recipe(words["--method"], told[2], **asked), settings(told)).protocol == made.protocol


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("fashion-mnist/ns3l-0.03", {}, ""),
        ("fashion-mnist/ns3l-0.03", {"execution.mode": "eager"}, ""),
        ("fashion-mnist/ns3l-0.03", {"steps": 300}, ", with other settings"),
        ("fashion-mnist/supervised", {"execution.precision": "bf16"}, ", in bf16"),
        ("table1/cifar10/supervised", {}, ""),
        ("mixmatch/cifar10-4000/supervised", {}, ", under another protocol"),
    ],
)
def test_a_verdict_says_what_is_not_as_in_the_paper(tmp_path, name, changes, said):
    made = override(PUBLISHED[name](), changes)
    for seed in range(2):
        folder = stored(tmp_path / f"seed-{seed}", made, "test", seed)
        told = json.loads((folder / "result.json").read_text()) | {"labels": made.split.labels}
        (folder / "result.json").write_text(json.dumps(told))
    (row,) = report(tmp_path).table("paper").rows
    assert row[-1].text == f"lower by more than 2 pooled std{said}"


def test_a_run_that_is_there_twice_counts_once(tmp_path):
    for name in ("a", "b"):
        for seed in range(2):
            stored(tmp_path / name / f"seed-{seed}", DIGITS, "test", seed)
    made = report([tmp_path / "a", tmp_path / "b"])
    assert [row[5].text for row in made.table("results").rows] == ["2"]
    assert "2 of the runs repeat setting, seed and split of another" in " ".join(made.statements)
    assert "4 runs, all complete" in " ".join(made.statements)
    assert {curve.n for figure in made.figures for curve in getattr(figure, "curves", ())} <= {2}
    alone = report(tmp_path / "a")
    assert not any("repeat" in statement for statement in alone.statements)
    assert alone.table("results").rows == made.table("results").rows


def test_a_schedule_in_place_of_a_number_is_set_whole(tmp_path):
    entry = replace(DIGITS.terms["ns3l"], weight=LinearRamp(2.0, 10))
    stored(tmp_path / "seed-0", replace(DIGITS, terms=DIGITS.terms | {"ns3l": entry}))
    weight = json.loads(settings(commands(tmp_path)[0])["ns3l.weight"])
    assert (weight["kind"], weight["value"], weight["steps"]) == ("linear-ramp", 2.0, 10)


def test_a_number_and_a_schedule_are_two_settings_without_empty_fields(tmp_path):
    stored(tmp_path / "a" / "seed-0", DIGITS)
    other = replace(DIGITS.terms["ns3l"], weight=0.5)
    stored(tmp_path / "b" / "seed-0", replace(DIGITS, terms=DIGITS.terms | {"ns3l": other}))
    names = [row[3].text for row in report(tmp_path).table("rules").rows]
    assert "weight=0.5" in names and not any("null" in name for name in names)


@pytest.mark.parametrize("part", ["test", "validation"])
def test_errors_are_those_of_the_part_that_there_is(tmp_path, part):
    stored(tmp_path / "seed-0", DIGITS, part)
    stored(tmp_path / "seed-1", DIGITS, part, seed=1)
    made = report(tmp_path)
    table = made.table("results")
    assert table.title == f"{part.capitalize()} error"
    index = [column.name for column in table.columns].index(table.title)
    assert table.rows[0][index].value == pytest.approx(ERRORS[DIGITS.evaluation.rule])
    assert ("No test part" in table.caption) == (part == "validation")
    assert f"on the {part} part" in made.table("quality").caption


def test_shell_metacharacters_stay_one_word(tmp_path):
    here = Path(__file__).parent / "stored" / "methods" / "ns3l" / "default" / "seed-0"
    shutil.copytree(here, tmp_path / "seed-0")
    hostile = "a; rm -rf ~ $(id) `id` 'x' \"y\" | & > <\n#"
    for name in ("result.json", "recipe.json"):
        path = tmp_path / "seed-0" / name
        path.write_text(json.dumps(json.loads(path.read_text()) | {"data": hostile, "method": hostile}))
    words = commands(tmp_path)[0]
    assert words[:2] == ["ns3l", "train"]
    assert words[2] == hostile.replace("\n", " ")
    assert words[words.index("--method") + 1] == hostile.replace("\n", " ")
