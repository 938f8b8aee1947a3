"""Defaults for one's own data: by form of the rows, by method."""

import pytest

from ns3l.methods import METHODS
from ns3l.objective import Objective
from ns3l.recipes.own import network_for, own
from ns3l.schedule import Ramp
from ns3l.terms import TERMS


@pytest.mark.parametrize("method", [*METHODS, "vat+ns3l", "mixmatch+ns3l", "vat+entmin"])
@pytest.mark.parametrize("shape", [(5,), (8, 8, 1), (32, 32, 3)])
def test_every_method_has_defaults_for_every_form(method, shape):
    recipe = own(method, "mine", 10, shape)
    recipe.augmentation.check(recipe.preprocessing, shape)
    assert (recipe.batch.unlabeled == 0) == (method == "supervised")
    assert type(recipe).from_dict(recipe.to_dict()) == recipe


@pytest.mark.parametrize(
    ("shape", "name"),
    [((7,), "mlp"), ((8, 8, 1), "small-conv-net"), ((28, 28, 3), "small-conv-net"), ((32, 32, 3), "wide-resnet")],
)
def test_network_by_shape(shape, name):
    assert network_for(shape).name == name


def test_perturbations_grow_with_the_root_of_the_row():
    sizes = [own("vat", "mine", 3, (n,)).terms["vat"].term.eps for n in (25, 100)]
    assert sizes == pytest.approx([1.0, 2.0])


def test_an_objective_keeps_its_weights_and_ramps_scale_with_the_steps():
    weight = Ramp(2.0, 7)
    terms = {"supervised": (1.0, TERMS["supervised"]()), "ns3l": (weight, TERMS["ns3l"]())}
    recipe = own(Objective(**terms), "mine", 3, (4,))
    assert recipe.terms["ns3l"].weight == weight and recipe.method == "supervised+ns3l" and recipe.batch.unlabeled
    assert own("ns3l", "mine", 3, (4,), steps=80).terms["ns3l"].weight == Ramp(1.0, 20)


def test_held_out_rows_select_the_weights():
    assert own("ns3l", "mine", 3, (4,), validation=0.2).evaluation.rule == "best_validation"
    assert own("ns3l", "mine", 3, (4,)).evaluation.rule == "last"
