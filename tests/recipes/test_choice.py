"""Which recipe a method and data get."""

import pytest

from ns3l.errors import RecipeError
from ns3l.recipes import SHAPES, fashion, mixing, own, realistic, recipe

TEXT = """
supervised pl pl-one-pass ns3l ns3l-one-pass ns3l-uniform-1 ns3l-uniform-3 ns3l-nn-exclude ns3l-nn-exclude-4
ns3l-nn-furthest ns3l-oracle-1 ns3l-oracle-3 vat vat+entmin vat+pl vat+ns3l pi pi+ns3l mean-teacher ict mixup
mixmatch mixmatch+ns3l
"""
METHODS = TEXT.split()


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_a_recipe_on_every_known_data_set(method):
    for data, (classes, shape) in SHAPES.items():
        made = recipe(method, data)
        assert (made.method, made.data, made.classes) == (method, data, classes)
        assert made == recipe(method, data, classes=classes, shape=shape)
        assert made.augmentation.check(made.preprocessing, shape) is None


def test_the_protocol_is_where_the_method_was_published():
    assert recipe("vat") == realistic("vat", "cifar10")
    assert recipe("mixmatch+ns3l", "svhn", labels=250) == mixing("mixmatch+ns3l", "svhn", 250)
    assert recipe("ict", "cifar10") == mixing("ict", "cifar10")
    assert recipe("supervised", "cifar10", protocol="B") == mixing("supervised", "cifar10")
    assert recipe("supervised", "cifar10").batch.labeled == 100
    assert recipe("supervised", "stl10") == mixing("supervised", "stl10")
    assert recipe("ns3l", "fashion-mnist", labels=500) == fashion("ns3l", 500)
    assert recipe("vat", "stl10") == own("vat", "stl10", 10, (96, 96, 3))
    assert recipe("ns3l", "cifar10", protocol="own") == own("ns3l", "cifar10", 10, (32, 32, 3))


def test_own_data_need_classes_and_the_shape_of_a_row():
    assert recipe("ns3l", "leaves", classes=3, shape=[20]) == own("ns3l", "leaves", 3, (20,))
    assert recipe("ns3l", "cifar10", classes=3, shape=(64, 64, 3)) == own("ns3l", "cifar10", 3, (64, 64, 3))
    with pytest.raises(RecipeError, match=r"'cifra10' is not a known data set; did you mean 'cifar10'\?"):
        recipe("ns3l", "cifra10")
    with pytest.raises(RecipeError, match=r"known are cifar10, cifar100, .* give classes=… and shape=…"):
        recipe("ns3l", "leaves", classes=3)


def test_faults_are_told():
    with pytest.raises(RecipeError, match="did you mean 'ns3l'"):
        recipe("vat+nsl3")
    with pytest.raises(RecipeError, match="protocol must be one of A, B, own or None, got 'C'"):
        recipe("vat", protocol="C")
    with pytest.raises(RecipeError, match="realistic evaluation has no settings for 'mixmatch': take protocol='B'"):
        recipe("mixmatch", protocol="A")
    with pytest.raises(RecipeError, match="realistic evaluation has no settings for the data 'stl10'"):
        recipe("vat", "stl10", protocol="A")
    with pytest.raises(RecipeError, match="MixMatch protocol has no settings for vat: take protocol='A'"):
        recipe("vat", protocol="B")
    with pytest.raises(RecipeError, match=r"MixMatch protocol has no settings for the data 'mnist'"):
        recipe("mixmatch", "mnist", protocol="B")
    for schedule in (0, -1, float("inf"), float("nan")):
        with pytest.raises(RecipeError, match=r"factor above 0.*0\.25 is a quarter"):
            recipe("vat", schedule=schedule)


def test_labels_choose_the_weight_and_the_folds():
    assert recipe("mixmatch+ns3l", labels=250).terms["ns3l"].weight == 5
    assert recipe("mixmatch+ns3l", labels=500).terms["ns3l"].weight == 10
    assert recipe("mixmatch", "stl10").split.fold == "seed"
    assert recipe("mixmatch", "stl10", labels=500).split.fold is None
    assert recipe("vat", "svhn", labels=0.5).split.labels == 0.5


def test_a_schedule_scales_every_count_of_steps_but_not_the_interval_of_evaluation():
    made = recipe("vat+ns3l", schedule=0.25)
    assert (made.steps, made.optimizer.lr.at, made.schedule) == (50_000, 32_500, 0.25)
    assert {entry.weight.steps for name, entry in made.terms.items() if name != "supervised"} == {12_500}
    assert made.evaluation.every == 1000
    assert recipe("vat+ns3l", schedule=0.001).evaluation.every == 20
    mixed = recipe("mixmatch", schedule=0.5)
    assert (mixed.steps, mixed.terms["mixmatch"].weight.steps, mixed.evaluation.every) == (524_288, 8192, 1024)
    short = recipe("ns3l", "fashion-mnist", schedule=0.02)
    assert (short.steps, short.evaluation.every) == (1160, 116)
