"""Recipes: what they refuse, how they scale, what they build, how they read back."""

from dataclasses import replace

import pytest
import torch

from ns3l.batch import BatchSize
from ns3l.errors import RecipeError
from ns3l.mixmatch import MixMatch
from ns3l.negatives import NearestNeighbor, Threshold, Uniform
from ns3l.optimize import SGD, Adam
from ns3l.recipe import Averaging, EvaluationPlan, Execution, Network, Recipe, Weighted
from ns3l.schedule import Cosine, LinearRamp, Ramp, StepDecay
from ns3l.terms.consistency import MeanTeacher
from ns3l.terms.cross_entropy import CrossEntropy
from ns3l.terms.negative_sampling import NegativeSampling
from ns3l.terms.target_error import TargetError


def made(**changes) -> Recipe:
    terms = {
        "supervised": Weighted(1.0, CrossEntropy()),
        "ns3l": Weighted(Ramp(1.0, 100), NegativeSampling(Threshold(0.04))),
    }
    held = {
        "method": "ns3l",
        "data": "toys",
        "classes": 10,
        "terms": terms,
        "optimizer": Adam(StepDecay(3e-3, 600, 0.2)),
    }
    return Recipe(**(held | changes))


def test_it_holds_what_its_objective_needs():
    objective = made().objective()
    assert objective.reads == {"labeled", "unlabeled", "unlabeled_2"}
    assert objective.weights_at(100) == {"supervised": 1.0, "ns3l": 1.0}
    teacher = {"supervised": Weighted(1.0, CrossEntropy()), "mean-teacher": Weighted(8.0, MeanTeacher())}
    with pytest.raises(RecipeError, match=r"compares with an averaged network: give average=Averaging\(decay\)"):
        made(terms=teacher)
    assert made(terms=teacher, average=Averaging(0.95)).objective().needs_average


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classes": 1}, "classes >= 2 and steps >= 1, got 1 and 1000"),
        ({"steps": 0}, "classes >= 2 and steps >= 1, got 10 and 0"),
        ({"batch": BatchSize(50, 0)}, r"ns3l reads unlabeled examples, but batch\.unlabeled is 0"),
        ({"evaluation": EvaluationPlan(weights="average")}, "needs average="),
        ({"evaluation": EvaluationPlan(rule="best")}, r"recipe\.evaluation\.rule must be one of 'last'.*got 'best'"),
        ({"execution": Execution(mode="fast")}, r"recipe\.execution\.mode must be one of .* got 'fast'"),
        ({"execution": Execution(precision="fp16")}, "precision must be one of 'float32', 'bf16', got 'fp16'"),
        ({"steps": 10.5}, r"recipe\.steps must be a whole number, got 10\.5"),
        ({"terms": {"ce": (1.0, CrossEntropy())}}, r"recipe\.terms\.ce must be a mapping \(Weighted\), got \(1\.0"),
    ],
)
def test_what_cannot_work_is_refused(changes, message):
    with pytest.raises(RecipeError, match=message):
        made(**changes)


def test_parts_check_themselves():
    with pytest.raises(RecipeError, match="no network 'resnet'; there are wide-resnet, small-conv-net, mlp"):
        Network("resnet")
    with pytest.raises(RecipeError, match="small-conv-net has no option 'depth'; it takes width"):
        Network("small-conv-net", {"depth": 10})
    for wrong in ({"every": 0}, {"patience": 0}):
        with pytest.raises(RecipeError, match="every >= 1 and patience >= 1 or None"):
            EvaluationPlan(**wrong)
    assert Network("own", {"anything": 1}).possible == ()


def test_a_threshold_that_would_mark_everything_warns():
    entry = Weighted(1.0, NegativeSampling(Threshold(0.1)))
    with pytest.warns(UserWarning, match=r"ns3l\.negatives\.threshold=0\.1 is at least 1/K = 0\.1.*; 0\.04 is usual"):
        made(terms={"supervised": Weighted(1.0, CrossEntropy()), "ns3l": entry})


@pytest.mark.parametrize("selector", [Uniform(10), NearestNeighbor("exclude-four", 7)])
def test_negatives_that_the_classes_cannot_give_are_refused(selector):
    """When the recipe is made, not in the first step of a run."""
    entry = Weighted(1.0, NegativeSampling(selector, passes=1))
    with pytest.raises(
        RecipeError, match=r"^ns3l\.negatives: .* negatives, but 10 classes leave at most [96]; lower n"
    ):
        made(terms={"supervised": Weighted(1.0, CrossEntropy()), "ns3l": entry})
    entry = Weighted(1.0, NegativeSampling(replace(selector, n=selector.n - 1), passes=1))
    made(terms={"supervised": Weighted(1.0, CrossEntropy()), "ns3l": entry})


def test_scaling_concerns_every_schedule_and_the_length_of_the_run():
    long = made(steps=1000, evaluation=EvaluationPlan(every=300))
    short = long.scaled(0.1)
    assert (short.steps, short.evaluation.every, short.schedule) == (100, 33, 0.1)
    assert (short.terms["ns3l"].weight, short.optimizer.lr) == (Ramp(1.0, 10), StepDecay(3e-3, 60, 0.2))
    assert short.terms["supervised"] == long.terms["supervised"]
    assert long.scaled(0.99).evaluation.every == 300
    assert made(steps=200, evaluation=EvaluationPlan(every=300)).scaled(0.5).evaluation.every == 100
    assert long.scaled(0.5).scaled(0.5).schedule == 0.25
    assert long.scaled(1) == long
    plain = made(optimizer=SGD(Cosine(0.1, 50)))
    assert plain.scaled(2).optimizer == SGD(Cosine(0.1, 100))
    assert made(optimizer=Adam(1e-3)).scaled(2).optimizer == Adam(1e-3)
    with pytest.raises(RecipeError, match=r"0\.25 is a quarter; got 0"):
        long.scaled(0)


def test_it_reads_back_equal():
    mixed = {
        "supervised": Weighted(1.0, CrossEntropy("mixed_labeled")),
        "mixmatch": Weighted(LinearRamp(75.0, 10), TargetError()),
    }
    for recipe in (made(), made(terms=mixed, builder=MixMatch(), statistics="first_interleaved")):
        assert Recipe.from_dict(recipe.to_dict()) == recipe
    with pytest.raises(RecipeError, match="recipe has no setting 'optimiser'; did you mean 'optimizer'"):
        Recipe.from_dict(made().to_dict() | {"optimiser": {}})
    with pytest.raises(RecipeError, match="recipe lacks method, data, classes, terms"):
        Recipe.from_dict({})


@pytest.mark.parametrize(
    ("network", "shape", "inputs"),
    [
        (Network("mlp"), (7,), (2, 7)),
        (Network("mlp", {"hidden": [5]}), (4, 4, 1), (2, 1, 4, 4)),
        (Network("small-conv-net", {"width": 4}), (8, 8, 1), (2, 1, 8, 8)),
        (Network("wide-resnet", {"depth": 10, "width": 1}), (8, 8, 3), (2, 3, 8, 8)),
    ],
)
def test_its_network_fits_the_rows(network, shape, inputs):
    built = made(network=network).network_for(shape)
    assert built(torch.zeros(inputs)).shape == (2, 10)


def test_networks_that_do_not_fit_are_told():
    with pytest.raises(RecipeError, match=r"wide-resnet is for images, the rows are \(7,\): use 'mlp'"):
        made().network_for((7,))
    with pytest.raises(RecipeError, match=r"network\.options=\{'depth': 11\} cannot be built: .*depth of 10"):
        made(network=Network("wide-resnet", {"depth": 11})).network_for((8, 8, 3))


def test_a_recipe_is_changed_by_replace_alone():
    recipe = made()
    assert replace(recipe, steps=5).steps == 5
    with pytest.raises(AttributeError):
        recipe.steps = 5
