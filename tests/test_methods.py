"""Methods as sums of names."""

import pytest

from ns3l.errors import RecipeError
from ns3l.methods import METHODS, SHARE, names_of, terms_of
from ns3l.mixmatch import BUILDERS, MixMatch, Mixup
from ns3l.negatives import NearestNeighbor, Oracle, Threshold, Uniform
from ns3l.objective import Objective
from ns3l.terms import TERMS


@pytest.mark.parametrize("method", METHODS)
def test_every_name_alone_makes_an_objective(method):
    terms, builder = terms_of(method, 10)
    assert next(iter(terms)) == "supervised"
    Objective(builder, **{name: (1.0, term) for name, term in terms.items()})


def test_every_term_and_builder_has_a_name():
    assert set(TERMS) - {"target-error"} <= set(METHODS)
    assert set(BUILDERS) <= set(METHODS)


@pytest.mark.parametrize(
    ("method", "negatives", "passes"),
    [
        ("ns3l", Threshold(0.04), 2),
        ("ns3l-one-pass", Threshold(0.04), 1),
        ("ns3l-uniform-1", Uniform(1), 1),
        ("ns3l-uniform-3", Uniform(3), 1),
        ("ns3l-nn-exclude", NearestNeighbor("exclude-nearest", 1), 1),
        ("ns3l-nn-exclude-4", NearestNeighbor("exclude-four", 1), 1),
        ("ns3l-nn-furthest", NearestNeighbor("furthest", 1), 1),
        ("ns3l-oracle-1", Oracle(1), 1),
        ("ns3l-oracle-3", Oracle(3), 1),
    ],
)
def test_variants_of_ns3l(method, negatives, passes):
    term = terms_of(method, 10)[0]["ns3l"]
    assert (term.negatives, term.passes, term.on) == (negatives, passes, "unlabeled")


def test_the_threshold_is_a_share_of_one_over_the_classes():
    for classes in (2, 10, 100):
        assert terms_of("ns3l", classes)[0]["ns3l"].negatives.threshold == SHARE / classes


def test_names_know_their_neighbors():
    assert terms_of("vat+entmin", 10)[0]["entmin"].on == "adversarial"
    assert terms_of("entmin", 10)[0]["entmin"].on == "unlabeled"
    terms, builder = terms_of("mixmatch+ns3l", 10)
    assert (terms["ns3l"].on, terms["supervised"].view, builder) == ("mixed", "mixed_labeled", MixMatch())
    assert list(terms) == ["supervised", "mixmatch", "ns3l"]
    assert terms_of("mixup", 10)[1] == Mixup()
    assert terms_of("mixup+ns3l", 10)[0]["ns3l"] == terms["ns3l"]
    assert terms_of("pl", 10)[0]["pl"].passes == 2 and terms_of("pl-one-pass", 10)[0]["pl"].passes == 1


def test_supervised_may_be_said_and_spaces_do_not_count():
    assert names_of(" vat + ns3l") == ("vat", "ns3l")
    assert terms_of("supervised+vat", 10) == terms_of("vat", 10)
    assert terms_of("mixmatch+supervised", 10) == terms_of("mixmatch", 10)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("vat+nsl3", "'nsl3' is not a method, did you mean 'ns3l'"),
        ("", "'' is not a method; there are supervised, pl"),
        ("zzz+qqq", "'zzz' is not a method.*'qqq' is not a method"),
        ("ns3l+ns3l-one-pass", "two summands are called 'ns3l'"),
        ("vat+mixmatch", "the builder 'mixmatch' must come first"),
    ],
)
def test_faults_are_told_all_at_once(method, message):
    with pytest.raises(RecipeError, match=f"the method '.*' cannot be understood: .*{message}"):
        terms_of(method, 10)
