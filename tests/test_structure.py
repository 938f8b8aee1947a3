"""Settings to and from JSON-ready values."""

import json
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ns3l.augment import Augmentation, Crop, Cutout, Flip, Mask, Noise, Shift, Strong
from ns3l.augment.step import Step
from ns3l.batch import BatchSize
from ns3l.errors import RecipeError
from ns3l.mixmatch import BUILDERS
from ns3l.negatives import SELECTORS, NearestNeighbor, Oracle, Selector, Threshold, Uniform
from ns3l.objective import Builder, Term
from ns3l.optimize import OPTIMIZERS, SGD, Adam, Optimizer
from ns3l.preprocess import PREPROCESSING, Preprocessing
from ns3l.schedule import Constant, Cosine, LinearRamp, Ramp, Schedule, StepDecay
from ns3l.structure import plain, structure
from ns3l.terms import TERMS
from ns3l.terms.negative_sampling import NegativeSampling
from ns3l.terms.vat import VirtualAdversarial

AMOUNT, COUNT = st.floats(1e-6, 1e6), st.integers(1, 10**9)
SCHEDULED = st.one_of(
    st.builds(Constant, AMOUNT),
    st.builds(LinearRamp, AMOUNT, COUNT),
    st.builds(Ramp, AMOUNT, COUNT),
    st.builds(StepDecay, AMOUNT, COUNT, AMOUNT),
    st.builds(Cosine, AMOUNT, COUNT, AMOUNT),
)
CHOSEN = st.one_of(
    st.builds(Threshold, st.floats(1e-6, 0.999)),
    st.builds(Uniform, COUNT),
    st.builds(NearestNeighbor, st.sampled_from(["exclude-nearest", "exclude-four", "furthest"]), COUNT),
    st.builds(Oracle, COUNT),
)
STEPS = st.one_of(
    st.builds(Shift, st.integers(1, 9)),
    st.just(Flip()),
    st.builds(Crop, st.floats(0.1, 1)),
    st.builds(Noise, st.floats(0, 9)),
    st.builds(Mask, st.floats(0, 1)),
    st.builds(Cutout, st.integers(1, 9)),
    st.just(Strong()),
)
VALUES = st.one_of(
    st.tuples(SCHEDULED, st.just(Schedule)),
    st.tuples(CHOSEN, st.just(Selector)),
    st.tuples(st.builds(NegativeSampling, CHOSEN, st.sampled_from([1, 2])), st.just(Term)),
    st.tuples(st.builds(VirtualAdversarial, AMOUNT, st.none() | AMOUNT, st.integers(1, 3)), st.just(Term)),
    st.tuples(st.builds(Adam, AMOUNT | SCHEDULED, clip=st.none() | AMOUNT), st.just(Optimizer)),
    st.tuples(st.builds(SGD, AMOUNT | SCHEDULED, nesterov=st.booleans()), st.just(Optimizer)),
    st.tuples(st.builds(Augmentation, st.lists(STEPS, max_size=3).map(tuple)), st.just(Augmentation)),
)


@settings(max_examples=50, deadline=None)
@given(VALUES)
def test_every_setting_survives_json(pair):
    value, kind = pair
    assert structure(json.loads(json.dumps(plain(value))), kind, "here") == value


@pytest.mark.parametrize(
    ("kind", "registry"),
    [
        (Term, TERMS),
        (Selector, SELECTORS),
        (Builder, BUILDERS),
        (Preprocessing, PREPROCESSING),
        (Optimizer, OPTIMIZERS),
        (Step, {"shift": Shift}),
    ],
)
def test_every_registered_kind_says_its_name(kind, registry):
    for name, registered in registry.items():
        value = Threshold(0.5) if registered is Threshold else registered()
        assert plain(value)["kind"] == name
        assert structure(plain(value), kind, "here") == value


@dataclass(frozen=True)
class Sample:
    count: int = 1
    share: float = 1.0
    loud: bool = False
    said: str = ""
    which: Literal["a", "b", 2] = "a"
    pair: tuple[int, float] = (1, 1.0)
    rest: tuple[int, ...] = ()
    listed: list[str] | None = None
    by_name: dict[str, float | Schedule] | None = None
    amount: int | float | None = None
    size: BatchSize | None = None


def test_values_become_what_the_fields_say():
    values = {
        "share": 2,
        "which": 2,
        "pair": [1, 2],
        "rest": [1, 2],
        "listed": ["x"],
        "by_name": {"a": 1, "b": {"kind": "constant", "value": 3}},
        "amount": 4,
        "size": {"labeled": 3},
    }
    got = structure(values, Sample, "here")
    assert got == Sample(
        share=2.0,
        which=2,
        pair=(1, 2.0),
        rest=(1, 2),
        listed=["x"],
        by_name={"a": 1.0, "b": Constant(3.0)},
        amount=4,
        size=BatchSize(3, 50),
    )
    assert [type(got.share), type(got.pair[1]), type(got.amount)] == [float, float, int]
    assert structure({"amount": 0.5}, Sample, "here").amount == 0.5


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"cuont": 1}, "here has no setting 'cuont'; did you mean 'count'?"),
        ({"zzz": 1}, "here has no setting 'zzz'; there are count, share, loud"),
        ({"count": 1.0}, "here.count must be a whole number, got 1.0"),
        ({"count": True}, "here.count must be a whole number, got True"),
        ({"count": "1"}, "here.count must be a whole number, got '1'"),
        ({"share": "1"}, "here.share must be a number, got '1'"),
        ({"share": False}, "here.share must be a number, got False"),
        ({"loud": 1}, "here.loud must be true or false, got 1"),
        ({"said": None}, "here.said must be text, got None"),
        ({"which": "c"}, "here.which must be one of 'a', 'b', 2, got 'c'"),
        ({"which": []}, "here.which must be one of 'a', 'b', 2, got []"),
        ({"pair": [1]}, "here.pair must be 2 values, got [1]"),
        ({"rest": "12"}, "here.rest must be a list, got '12'"),
        ({"rest": [1, "2"]}, "here.rest[1] must be a whole number, got '2'"),
        ({"by_name": {"a": "x"}}, "here.by_name.a must be a number or a mapping, got 'x'"),
        ({"by_name": {"a": {"kind": "rmap"}}}, "here.by_name.a.kind must be one of 'constant',"),
        ({"by_name": 3}, "here.by_name must be a mapping or null, got 3"),
        ({"listed": [1]}, "here.listed[0] must be text, got 1"),
        ({"amount": "x"}, "here.amount must be a whole number or a number or null, got 'x'"),
        ({"size": {"labeled": 0}}, "here.size: a batch needs labeled >= 1 and unlabeled >= 0, got 0 and 50"),
        ({"size": 3}, "here.size must be a mapping (BatchSize) or null, got 3"),
        ([], "here must be a mapping (Sample), got []"),
    ],
    ids=str,
)
def test_faults_say_where_what_was_expected_and_what_came(values, message):
    with pytest.raises(RecipeError) as told:
        structure(values, Sample, "here")
    assert message in str(told.value)


@dataclass(frozen=True)
class Own(Selector):
    """A class of one's own, which no registry names: what it holds is its own affair."""

    anything: "NotDefinedAnywhere" = None  # noqa: F821

    needs = frozenset()

    def __call__(self, probability, **_):
        raise AssertionError


@given(VALUES)
def test_what_is_typed_already_stays_what_it_is(pair):
    value, kind = pair
    assert structure(value, kind, "here") is value


@pytest.mark.parametrize("value", [Sample(), Sample(by_name={"a": 1, "b": Constant(3.0)}, size=BatchSize(3)), Own()])
def test_typed_values_pass(value):
    assert structure(value, Selector if isinstance(value, Own) else Sample, "here") is value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Sample(count=1.5), "here.count must be a whole number, got 1.5"),
        (Sample(which="c"), "here.which must be one of 'a', 'b', 2, got 'c'"),
        (Sample(size=Adam()), "here.size must be a mapping (BatchSize), got Adam("),
        (Sample(by_name={"a": Threshold(0.5)}), "here.by_name.a must be a mapping with a kind (constant,"),
        (Sample(by_name={"a": Constant(Fraction(1, 2))}), "here.by_name.a.value must be a number, got Fraction(1, 2)"),
        (SGD(nesterov=1), "here.nesterov must be true or false, got 1"),
    ],
    ids=str,
)
def test_typed_values_are_checked_to_the_last_field(value, message):
    with pytest.raises(RecipeError) as told:
        structure(value, Optimizer if isinstance(value, SGD) else Sample, "here")
    assert message in str(told.value)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"kind": "rmap"}, "weight.kind must be one of 'constant', 'linear-ramp', 'ramp', .*did you mean 'ramp'"),
        ({"value": 1}, r"weight must be a mapping with a kind \(constant, linear-ramp, ramp, .*got \{'value': 1\}"),
        ({"kind": "ramp", "value": 1.0}, "weight lacks steps"),
        ({"kind": "ramp", "value": 1.0, "step": 1}, "weight has no setting 'step'; did you mean 'steps'"),
        ({"kind": "ramp", "value": -1.0, "steps": 1}, "weight: value of a schedule must be a finite number"),
        (3, "weight must be a mapping with a kind"),
    ],
    ids=str,
)
def test_kinds_are_named_and_checked(values, message):
    with pytest.raises(RecipeError, match=message):
        structure(values, Schedule, "weight")
