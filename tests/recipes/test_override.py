"""Settings by path: changed, listed, described."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ns3l.errors import RecipeError
from ns3l.negatives import Threshold, Uniform
from ns3l.optimize import SGD
from ns3l.recipe import Averaging, Execution, Recipe
from ns3l.recipes import PUBLISHED, describe, fast, override, recipe, settable
from ns3l.schedule import LinearRamp, Ramp, StepDecay

MADE = recipe("vat+ns3l")


def test_settings_change_by_path_and_nothing_else_does():
    changed = override(
        MADE,
        {
            "ns3l.negatives.threshold": "0.05",
            "ns3l.weight": 3,
            "optimizer.lr": 6e-5,
            "steps": 100,
            "network.options.depth": 10,
        },
    )
    assert changed.terms["ns3l"].term.negatives == Threshold(0.05)
    assert changed.terms["ns3l"].weight == Ramp(3.0, 50_000)
    assert changed.optimizer.lr == StepDecay(6e-5, 130_000, 0.2)
    assert (changed.steps, changed.network.options["depth"]) == (100, 10)
    kept = changed.to_dict() | {name: MADE.to_dict()[name] for name in ("terms", "optimizer", "steps", "network")}
    assert kept | {"sources": MADE.sources} == MADE.to_dict()
    assert changed.terms["vat"] == MADE.terms["vat"]


def test_a_weight_takes_a_number_a_schedule_or_a_part_of_its_schedule():
    assert override(MADE, {"ns3l.weight": "2"}).terms["ns3l"].weight == Ramp(2.0, 50_000)
    assert override(MADE, {"ns3l.weight.steps": 10}).terms["ns3l"].weight == Ramp(0.3, 10)
    assert override(MADE, {"ns3l.weight": LinearRamp(1.0, 5)}).terms["ns3l"].weight == LinearRamp(1.0, 5)
    text = '{"kind": "constant", "value": 2}'
    assert override(MADE, {"ns3l.weight": text}).terms["ns3l"].weight.value == 2
    assert override(MADE, {"supervised.weight": 2}).terms["supervised"].weight == 2.0
    assert override(MADE, {"ns3l.weight": np.float32(2)}).terms["ns3l"].weight == Ramp(2.0, 50_000)


def test_text_is_read_as_json_where_it_fits():
    changed = override(
        MADE,
        {
            "average": '{"decay": 0.9}',
            "execution.precision": "bf16",
            "augmentation.steps.1.pixels": "3",
            "network.options.bias": "true",
            "split.labels": "0.5",
            "optimizer.clip": "null",
            "optimizer.betas": "[0.5, 0.9]",
            "vat.xi": np.float64(0.5),
        },
    )
    assert changed.average == Averaging(0.9)
    assert (changed.execution.precision, changed.network.options["bias"]) == ("bf16", True)
    assert changed.augmentation.steps[1].pixels == 3
    assert (changed.split.labels, changed.optimizer.clip, changed.optimizer.betas) == (0.5, None, (0.5, 0.9))
    assert changed.terms["vat"].term.xi == 0.5


def test_an_option_that_is_false_is_set():
    assert override(MADE, {"network.options.bias": "false"}).network.options["bias"] is False


def test_a_name_chooses_a_kind_with_its_defaults():
    changed = override(MADE, {"optimizer": "sgd", "ns3l.negatives": "uniform", "network": "small-conv-net"})
    assert changed.optimizer == SGD()
    assert changed.terms["ns3l"].term.negatives == Uniform(1)
    assert (changed.network.name, changed.network.options) == ("small-conv-net", {})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            {"ns3l.negatives.treshold": 1},
            "no setting 'ns3l.negatives.treshold'; did you mean 'ns3l.negatives.threshold'",
        ),
        ({"optimzer.lr": 1}, "did you mean 'optimizer.lr'"),
        ({"network.options.deph": 1}, "did you mean 'network.options.depth'"),
        ({"zzz": 1}, "paths begin with augmentation, average, .*, vat"),
        ({3: 1}, "no setting '3'"),
        ({"ns3l": 1}, "no setting 'ns3l'"),
        ({"method": "pl"}, "method follows from the choice of a recipe"),
        ({"steps": "many"}, r"recipe\.steps must be a whole number, got 'many'"),
        ({"steps": True}, "whole number, got True"),
        ({"steps": 0}, "steps >= 1"),
        ({"ns3l.weight": [1]}, r"recipe\.terms\.ns3l\.weight must be a number or a mapping, got \[1\]"),
        ({"ns3l.weight": -1}, "at least 0"),
        ({"ns3l.weight": len}, "must be a number, text or a mapping of such"),
        ({"ns3l.weight": {1: {2}}}, "must be a number, text or a mapping of such"),
        ({"ns3l.negatives": {"kind": "unform"}}, "did you mean 'uniform'"),
        ({"ns3l.weight": {"kind": "ramp"}}, r"terms\.ns3l\.weight lacks value, steps"),
        ({"optimizer.lr": float("nan")}, "finite"),
        ({"network": "mlpp"}, "no network 'mlpp'"),
        ({"network": None}, r"network must be a mapping \(Network\), got None"),
        ({"network.options": 3}, "options must be a mapping, got 3"),
        ({"network.options": {"deph": 10}}, "the network wide-resnet has no option 'deph'; it takes depth, width"),
        ({"augmentation.steps": [], "augmentation.steps.1.pixels": 3}, "no setting 'augmentation.steps.1.pixels'"),
        ({"evaluation.rule": "best_test"}, "must be one of 'last', 'best_validation', 'median_20', got 'best_test'"),
        ({"batch.unlabeled": 0}, r"reads unlabeled examples, but batch\.unlabeled is 0"),
    ],
    ids=str,
)
def test_faults_are_told(wrong, message):
    with pytest.raises(RecipeError, match=message):
        override(MADE, wrong)


def test_an_option_that_no_network_can_have_is_told_when_it_is_built():
    with pytest.raises(RecipeError, match=r"'depth': 11.*cannot be built: .*depth of 10, 16"):
        override(MADE, {"network.options.depth": 11}).network_for((32, 32, 3))


def test_a_threshold_of_1_over_the_classes_or_more_warns():
    with pytest.warns(UserWarning, match=r"ns3l\.negatives\.threshold=0\.1 is at least 1/K"):
        override(MADE, {"ns3l.negatives.threshold": 0.1})


def test_what_was_set_says_so_in_the_sources():
    changed = override(MADE, {"ns3l.weight": 3, "optimizer.lr": 1e-3})
    told = {path: source for path, _, source in describe(changed)}
    assert told["ns3l.weight.value"] == told["optimizer.lr.value"] == "set by the user"
    assert told["optimizer.lr.at"] == "paper, Experimental Setup"
    whole = override(MADE, {"ns3l.weight": {"kind": "ramp", "value": 1, "steps": 9}})
    assert {source for path, _, source in describe(whole) if path.startswith("ns3l.weight")} == {"set by the user"}
    assert told["vat.eps"] == "Oliver et al. 2018, released settings"
    assert told["execution.mode"] == "default"
    assert told["method"] == told["classes"] == "", "they are no settings"


def test_a_description_has_every_value_once():
    rows = describe(MADE)
    values = {path: value for path, value, _ in rows}
    assert len(values) == len(rows)
    assert (values["ns3l.weight"], values["ns3l.weight.value"], values["preprocessing"]) == ("ramp", 0.3, "gcn-zca")
    assert (values["method"], values["steps"], values["augmentation.steps.1"]) == ("vat+ns3l", 200_000, "shift")
    assert not [path for path in values if "sources" in path]


@pytest.mark.parametrize(
    "name", ["table1/cifar10/vat+ns3l", "mixmatch/svhn-250/mixmatch+ns3l", "fashion-mnist/supervised"]
)
def test_every_settable_path_takes_its_own_value(name):
    made = PUBLISHED[name]()
    held = {path: value for path, value, _ in describe(made)}
    for path in settable(made):
        if path in held and isinstance(held[path], int | float | str | None):
            again = override(made, {path: held[path]})
            assert again.to_dict() | {"sources": {}} == made.to_dict() | {"sources": {}}, path
    assert override(made, {}) == made


def test_the_fast_form_changes_execution_alone():
    made = fast(MADE)
    assert made.execution == Execution(precision="bf16", channels_last=True)
    assert made.to_dict() | {"execution": {}, "sources": {}} == MADE.to_dict() | {"execution": {}, "sources": {}}


@settings(max_examples=40, deadline=None)
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "ns3l.negatives.threshold": st.floats(1e-6, 0.099),
            "ns3l.weight": st.floats(0, 100),
            "vat.weight.steps": st.integers(1, 10**6),
            "vat.eps": st.floats(1e-3, 1e3),
            "steps": st.integers(1, 10**7),
            "batch.labeled": st.integers(1, 512),
            "split.labels": st.one_of(st.none(), st.integers(1, 10**5), st.floats(1e-3, 1)),
            "evaluation.rule": st.sampled_from(["last", "best_validation", "median_20"]),
            "network.options.width": st.integers(1, 8),
        },
    ),
    st.floats(1e-3, 10),
)
def test_overridden_and_scaled_recipes_survive_json(changes, factor):
    made = override(MADE, changes)
    assert override(MADE, {path: json.dumps(v) if not isinstance(v, str) else v for path, v in changes.items()}) == made
    scaled = made.scaled(factor)
    assert Recipe.from_dict(json.loads(json.dumps(scaled.to_dict()))) == scaled
    assert scaled.steps == max(1, round(made.steps * factor))
    evaluations = min(10, max(1, made.steps // 1000))
    assert scaled.evaluation.every == (min(1000, max(1, scaled.steps // evaluations)) if factor != 1 else 1000)
