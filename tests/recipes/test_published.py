"""The published recipes against an independent table of the papers' settings, and what every one of them must hold."""

import json
from pathlib import Path

import pytest

from ns3l.augment import Flip, Noise, Shift
from ns3l.negatives import NearestNeighbor, Oracle, Threshold, Uniform
from ns3l.objective import Objective
from ns3l.paper import CELLS, published
from ns3l.preprocess import GcnZca, Scale
from ns3l.recipe import Recipe
from ns3l.recipes import ITEMS, PUBLISHED, describe, recipe
from ns3l.schedule import LinearRamp, Ramp, StepDecay

GOLDEN = Path(__file__).with_name("golden") / "table1-cifar10-vat+ns3l.json"

# data, method: learning rate | weights at their full height | threshold | VAT's eps
REALISTIC = """
cifar10  supervised      3e-3  -
cifar10  pl              3e-4  pl=1                 .95
cifar10  pl-one-pass     3e-4  pl=1                 .95
cifar10  pi              3e-4  pi=20
cifar10  mean-teacher    4e-4  mean-teacher=8
cifar10  vat             3e-3  vat=.3               -     6
cifar10  vat+entmin      3e-3  vat=.3,entmin=.1     -     6
cifar10  ns3l            6e-4  ns3l=1               .04
cifar10  ns3l-one-pass   6e-4  ns3l=1               .04
cifar10  pi+ns3l         6e-4  pi=20,ns3l=1         .04
cifar10  vat+ns3l        6e-4  vat=.3,ns3l=.3       .04   6
svhn     supervised      3e-3  -
svhn     pl-one-pass     3e-4  pl=1                 .95
svhn     pi              3e-4  pi=20
svhn     vat             3e-3  vat=.3               -     1
svhn     vat+entmin      3e-3  vat=.3,entmin=.1     -     1
svhn     ns3l            6e-4  ns3l=1               .04
svhn     pi+ns3l         6e-4  pi=20,ns3l=1         .04
svhn     vat+ns3l        6e-4  vat=.3,ns3l=.3       .04   1
cifar100 supervised      3e-3  -
cifar100 vat             3e-3  vat=.3               -     6
cifar100 vat+entmin      3e-3  vat=.3,entmin=.1     -     6
cifar100 ns3l            6e-4  ns3l=1               .004
cifar100 pi+ns3l         6e-4  pi=20,ns3l=1         .004
cifar100 vat+ns3l        3e-3  vat=.6,ns3l=.3       .004  6
"""
# data, labels, method: weights | threshold | alpha
MIXING = """
cifar10 250   mixmatch       mixmatch=75            -    .75
cifar10 250   mixmatch+ns3l  mixmatch=75,ns3l=5     .05  .75
cifar10 4000  mixmatch+ns3l  mixmatch=75,ns3l=10    .05  .75
svhn    250   mixmatch       mixmatch=250           -    .75
svhn    250   mixmatch+ns3l  mixmatch=250,ns3l=2    .05  .75
svhn    1000  mixmatch+ns3l  mixmatch=250,ns3l=2    .05  .75
stl10   1000  mixmatch       mixmatch=50            -    .75
stl10   1000  mixmatch+ns3l  mixmatch=50,ns3l=2     .05  .75
cifar10 250   ict            ict=1000               -    .75
svhn    250   ict            ict=20                 -    .5
cifar10 250   mixup          mixup=1                -    .75
svhn    250   mixup          mixup=1                -    .25
"""
SPLITS = {"cifar10": (10, 4000, 5000), "svhn": (10, 1000, 7325), "cifar100": (100, 10_000, 5000)}


def lines(table: str) -> list[list[str]]:
    return [line.split() for line in table.strip().splitlines()]


def numbers(text: str) -> dict[str, float]:
    return {} if text == "-" else {name: float(value) for name, value in (part.split("=") for part in text.split(","))}


def heights(made: Recipe) -> dict[str, float]:
    """The weight of every term beside the cross-entropy when ramps have ended."""
    late = 10**9
    return {n: w for n, w in made.objective().weights_at(late).items() if n != "supervised"}


@pytest.mark.parametrize("row", lines(REALISTIC), ids="-".join)
def test_realistic_evaluation(row):
    data, method, rate, weights, threshold, eps = (row + ["-"] * 6)[:6]
    made = recipe(method, data)
    assert made.optimizer.lr == StepDecay(float(rate), 130_000, 0.2)
    assert (made.optimizer.betas, made.optimizer.eps, made.optimizer.weight_decay) == ((0.9, 0.999), 1e-8, 0)
    assert heights(made) == numbers(weights)
    for name, entry in made.terms.items():
        assert isinstance(entry.weight, Ramp) == (name not in ("supervised", "entmin"))
        assert not isinstance(entry.weight, Ramp) or entry.weight.steps == 50_000
    if "ns3l" in made.terms:
        assert made.terms["ns3l"].term.negatives == Threshold(float(threshold))
        assert made.terms["ns3l"].term.passes == (1 if "one-pass" in method else 2)
    if "pl" in made.terms:
        assert (made.terms["pl"].term.threshold, made.terms["pl"].term.form) == (float(threshold), "soft")
    if "vat" in made.terms:
        assert (made.terms["vat"].term.eps, made.terms["vat"].term.iterations) == (float(eps), 1)
        assert made.terms["vat"].term.divergence == "adversarial||clean"
    if "entmin" in made.terms:
        assert made.terms["entmin"].term.on == "adversarial"


@pytest.mark.parametrize("data", SPLITS)
def test_realistic_evaluation_of_a_data_set(data):
    made, alone = recipe("vat+ns3l", data), recipe("supervised", data)
    classes, labels, validation = SPLITS[data]
    assert made.protocol == "realistic evaluation (Oliver et al. 2018)"
    assert (made.classes, made.split.labels, made.split.validation) == (classes, labels, validation)
    assert (made.split.balance, made.split.labeled_in_pool) == ("balanced", True)
    assert (made.batch.labeled, made.batch.unlabeled) == (50, 50)
    assert (alone.batch.labeled, alone.batch.unlabeled) == (100, 0)
    assert made.steps == 200_000 and made.statistics == "joint" and made.average is None
    assert (made.evaluation.every, made.evaluation.rule, made.evaluation.weights) == (
        1000,
        "best_validation",
        "student",
    )
    steps = {"svhn": (Shift(2),)}.get(data, (Flip(), Shift(2), Noise(0.15)))
    assert made.augmentation.steps == steps
    assert made.preprocessing == (Scale() if data == "svhn" else GcnZca())
    network = made.network_for((32, 32, 3))
    assert sum(p.numel() for p in network.parameters()) == {10: 1_467_610, 100: 1_479_220}[classes]


def test_mean_teacher_averages_fast():
    assert recipe("mean-teacher").average.decay == 0.95


@pytest.mark.parametrize("row", lines(MIXING), ids="-".join)
def test_mixmatch_protocol(row):
    data, labels, method, weights, threshold, alpha = row
    made = recipe(method, data, labels=int(labels))
    assert heights(made) == numbers(weights)
    assert (made.batch.labeled, made.batch.unlabeled) == (64, 64)
    assert (made.optimizer.lr, made.optimizer.weight_decay * made.optimizer.lr) == (0.002, pytest.approx(4e-5))
    assert made.optimizer.decays == "kernels"
    assert (made.average.decay, made.average.buffers, made.evaluation.weights) == (0.999, "copy", "average")
    assert (made.evaluation.every, made.evaluation.rule) == (1024, "median_20")
    assert (made.split.labels, made.split.balance, made.split.labeled_in_pool) == (int(labels), "stratified", False)
    assert made.preprocessing == Scale()
    assert made.statistics == ("first_interleaved" if "mixmatch" in method else "joint")
    mixer = made.builder or made.terms["ict"].term
    assert mixer.alpha == float(alpha)
    if "mixmatch" in made.terms:
        assert made.terms["mixmatch"].weight == LinearRamp(numbers(weights)["mixmatch"], 16_384)
        assert (made.builder.temperature, made.builder.augmentations) == (0.5, 2)
    if "ns3l" in made.terms:
        assert made.terms["ns3l"].term.negatives == Threshold(float(threshold))
        assert made.terms["ns3l"].term.on == "mixed"
        assert isinstance(made.terms["ns3l"].weight, float)
    if "ict" in made.terms:
        assert made.terms["ict"].weight.steps == round(0.4 * 1_048_576)


@pytest.mark.parametrize(
    ("data", "validation", "steps", "size", "parameters", "length"),
    [
        ("cifar10", 5000, (Flip(), Shift(4)), 32, 1_469_642, 1_048_576),
        ("svhn", 7325, (Shift(4),), 32, 1_469_642, 1_048_576),
        ("stl10", 0, (Flip(), Shift(12)), 96, 5_933_770, 131_072),
    ],
)
def test_mixmatch_protocol_of_a_data_set(data, validation, steps, size, parameters, length):
    made = recipe("mixmatch", data)
    assert made.protocol == "MixMatch (Berthelot et al. 2019)"
    assert (made.split.validation, made.augmentation.steps, made.steps) == (validation, steps, length)
    assert made.split.fold == ("seed" if data == "stl10" else None)
    assert sum(p.numel() for p in made.network_for((size, size, 3)).parameters()) == parameters


def test_fashion_mnist_table():
    rows = dict(ITEMS["fashion-mnist"].rows)
    chosen = {label: entry.terms["ns3l"].term.negatives for label, entry in rows.items() if "ns3l" in entry.terms}
    assert chosen == {
        "Uniform - 1": Uniform(1),
        "Uniform - 3": Uniform(3),
        "Exclude class of NN - 1": NearestNeighbor("exclude-nearest", 1),
        "Exclude 4 nearest classes with NN - 1": NearestNeighbor("exclude-four", 1),
        "Furthest class with NN - 1": NearestNeighbor("furthest", 1),
        "Threshold T = 0.03": Threshold(0.03),
        "Threshold T = 0.05": Threshold(0.05),
        "Oracle - 1": Oracle(1),
        "Oracle - 3": Oracle(3),
        "Threshold T = 0.03 one pass (further row)": Threshold(0.03),
        "Threshold T = 0.05 one pass (further row)": Threshold(0.05),
    }
    for made in rows.values():
        assert (made.steps, made.evaluation.every, made.evaluation.rule) == (58_000, 1160, "last")
        assert (made.split.labels, made.split.labeled_in_pool, made.network.name) == (2000, False, "small-conv-net")
        assert made.batch.labeled == 50
        assert sum(p.numel() for p in made.network_for((28, 28, 1)).parameters()) == 24_058
    assert [rows[f"Threshold T = 0.03{end}"].terms["ns3l"].term.passes for end in ("", " one pass (further row)")] == [
        2,
        1,
    ]


def test_the_sensitivity_figure_is_four_thresholds_by_three_weights():
    weights = {"ns3l": (0.3, 1, 3), "vat+ns3l": (0.1, 0.3, 1), "mixmatch+ns3l": (1, 2, 5)}
    for method, expected in weights.items():
        item = ITEMS[f"sensitivity-{method}"]
        assert item.grid == {"ns3l.negatives.threshold": (0.02, 0.04, 0.06, 0.1), "ns3l.weight": expected}
        assert [made.method for _, made in item.rows] == [method]
    mixing = ITEMS["sensitivity-mixmatch+ns3l"]
    assert (mixing.data, mixing.rows[0][1].split.labels, mixing.rule) == ("svhn", 250, "median_20")


def test_every_number_of_the_paper_has_its_row():
    rows = [made for name in ITEMS if not name.startswith("s") for _, made in ITEMS[name].rows]
    cells = {
        published(made.data, made.split.labels, made.method, {"ns3l.negatives.threshold": threshold(made)})
        for made in rows
    }
    missing = {(cell.data, cell.labels, cell.wording) for cell in CELLS} - {
        (cell.data, cell.labels, cell.wording) for cell in cells if cell
    }
    assert not missing


def threshold(made: Recipe) -> float | None:
    negatives = getattr(made.terms["ns3l"].term, "negatives", None) if "ns3l" in made.terms else None
    return getattr(negatives, "threshold", None)


def test_the_names_of_items_are_those_of_the_command_line():
    wanted = {"table1-cifar10", "table1-svhn", "table1-cifar100", "table2-cifar10", "table2-cifar100"}
    wanted |= {"mixmatch-cifar10-250", "mixmatch-cifar10-4000", "mixmatch-svhn-250", "mixmatch-svhn-1000"}
    wanted |= {"mixmatch-stl10-1000", "sensitivity-ns3l", "sensitivity-vat+ns3l", "sensitivity-mixmatch+ns3l"}
    assert set(ITEMS) == wanted | {"search-vat+pl", "fashion-mnist", "toy"}
    for name, item in ITEMS.items():
        labels = [label for label, _ in item.rows]
        assert len(set(labels)) == len(labels)
        assert all(made.data == item.data and made.evaluation.rule == item.rule for _, made in item.rows)
        assert item.seeds == (1 if name in ("toy", "search-vat+pl") else 5)


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_published_recipe_survives_json_and_names_its_sources(name):
    made = PUBLISHED[name]()
    assert Recipe.from_dict(json.loads(json.dumps(made.to_dict()))) == made
    assert isinstance(made.objective(), Objective)
    paths = {path for path, _, _ in describe(made)}
    unsaid = [source for source in made.sources if not any(p == source or p.startswith(f"{source}.") for p in paths)]
    assert not unsaid, "a source for what is not there"
    silent = [path for path, value, source in describe(made) if source == "default" and value is not None]
    assert all(path.startswith("execution.") for path in silent), silent


def test_golden_recipe():
    made = PUBLISHED["table1/cifar10/vat+ns3l"]()
    assert made.to_dict() == json.loads(GOLDEN.read_text(encoding="utf-8"))
