"""The objective: which passes run, what is wrong with one, weights, batch-norm policies, errors."""

import math
import re
from dataclasses import replace

import pytest
import torch
from tests.terms import scene

from ns3l.augment import Augmentation, Noise
from ns3l.batch import unchanged
from ns3l.draw import Draw
from ns3l.mixmatch import MixMatch, Mixup
from ns3l.networks import Average
from ns3l.objective import Objective, Term
from ns3l.passes import Passes, interleaved
from ns3l.schedule import LinearRamp, Ramp
from ns3l.terms.consistency import MeanTeacher, Pi
from ns3l.terms.cross_entropy import CrossEntropy
from ns3l.terms.entropy import EntropyMinimization
from ns3l.terms.interpolation import InterpolationConsistency
from ns3l.terms.negative_sampling import NegativeSampling
from ns3l.terms.pseudo_label import PseudoLabel
from ns3l.terms.target_error import TargetError
from ns3l.terms.vat import VirtualAdversarial

CE = (1.0, CrossEntropy())
MIXED = {"supervised": (1.0, CrossEntropy("mixed_labeled")), "guess": (75.0, TargetError())}
JOINT = scene.LABELED + scene.UNLABELED
PASSES = {
    "supervised": (Objective(ce=CE), 1),
    "ns3l one pass + entmin": (
        Objective(ce=CE, ns3l=(1.0, NegativeSampling(passes=1)), entmin=(1.0, EntropyMinimization())),
        1,
    ),
    "ns3l": (Objective(ce=CE, ns3l=(1.0, NegativeSampling())), 2),
    "vat + pi + ns3l + pl + entmin": (
        Objective(
            ce=CE,
            vat=(0.3, VirtualAdversarial()),
            pi=(20.0, Pi()),
            ns3l=(1.0, NegativeSampling()),
            pl=(1.0, PseudoLabel()),
            entmin=(0.1, EntropyMinimization()),
        ),
        4,
    ),
    "vat + entmin": (
        Objective(ce=CE, vat=(0.3, VirtualAdversarial()), entmin=(0.1, EntropyMinimization("adversarial"))),
        3,
    ),
    "vat, two iterations": (Objective(ce=CE, vat=(0.3, VirtualAdversarial(iterations=2))), 4),
    "mean teacher": (Objective(ce=CE, teacher=(8.0, MeanTeacher())), 1),
    "ict": (Objective(ce=CE, ict=(8.0, InterpolationConsistency())), 2),
    "mixmatch": (Objective(build=MixMatch(), **MIXED), 3),
    "mixmatch + ns3l": (Objective(build=MixMatch(), **MIXED, ns3l=(5.0, NegativeSampling(on="mixed"))), 3),
    "mixup": (Objective(build=Mixup(), **MIXED), 2),
    "mixup + ict": (Objective(build=Mixup(), **MIXED, ict=(8.0, InterpolationConsistency())), 3),
    "mixup + vat": (Objective(build=Mixup(), **MIXED, vat=(0.3, VirtualAdversarial())), 5),
    "mixmatch, interleaved": (Objective(build=MixMatch(), statistics="first_interleaved", **MIXED), 2 + 3),
    "mixmatch + ns3l, interleaved": (
        Objective(
            build=MixMatch(),
            statistics="first_interleaved",
            **MIXED,
            ns3l=(5.0, NegativeSampling(on="mixed")),
        ),
        2 + 3,
    ),
}


@pytest.mark.parametrize("name", PASSES)
def test_student_passes_are_counted(name, untouched_random_state):
    objective, expected = PASSES[name]
    net = scene.Counted(scene.network())
    objective(net, scene.batch(), Draw(0), scene.teacher(net.inner))
    assert len(net.seen) == expected
    assert sum(moved for _, moved in net.seen) == 1
    if objective.build is None:
        assert {len(x) for x, _ in net.seen} == {JOINT}
        assert net.seen[0][1]


def test_labels_alone_make_a_step():
    full = scene.batch()
    only = type(full)({"labeled": full.x["labeled"]}, full.y, full.augment)
    net = scene.Counted(scene.network())
    losses = Objective(ce=CE)(net, only, Draw(0))
    assert [len(x) for x, _ in net.seen] == [scene.LABELED] and torch.isfinite(losses.total)


def test_second_passes_are_drawn_afresh_and_shared():
    net = scene.Counted(scene.network())
    Objective(ce=CE, pi=(1.0, Pi()), ns3l=(1.0, NegativeSampling()))(net, scene.batch(), Draw(0))
    (first, _), (second, _) = net.seen
    assert not torch.equal(first, second)


def test_the_averaged_network_sees_its_own_augmentation():
    net = scene.Counted(scene.network())
    average = scene.Counted(scene.teacher(net.inner))
    Objective(ce=CE, tutor=(1.0, MeanTeacher()))(net, scene.batch(), Draw(0), average)
    ((first, _),), ((seen, moved),) = net.seen, average.seen
    assert first.shape == seen.shape and not torch.equal(first, seen) and not moved


def test_labeled_policy_moves_statistics_on_labeled_rows_only():
    net, learns = scene.Counted(scene.network()), []
    net.register_forward_hook(lambda network, given, made: learns.append(made.requires_grad))
    Objective(statistics="labeled", ce=CE, pi=(1.0, Pi()))(net, scene.batch(), Draw(0))
    assert learns == [False, True, True]
    assert [(len(x), moved) for x, moved in net.seen] == [(scene.LABELED, True), (JOINT, False), (JOINT, False)]
    assert torch.equal(net.seen[0][0], net.seen[1][0][: scene.LABELED])


def test_the_total_is_the_weighted_sum():
    entries = {"ce": (1.5, CrossEntropy()), "ns3l": (LinearRamp(2.0, 20), NegativeSampling(passes=1))}
    losses = Objective(**entries)(scene.network(), scene.batch(), Draw(0, 5))
    assert losses.weights == {"ce": 1.5, "ns3l": 0.5}
    expected = 1.5 * losses.parts["ce"] + 0.5 * losses.parts["ns3l"]
    assert losses.total.item() == pytest.approx(expected.item(), rel=1e-6)


def test_a_weight_may_be_0():
    losses = Objective(ce=CE, ns3l=(0, NegativeSampling(passes=1)))(scene.network(), scene.batch(), Draw(0))
    assert losses.parts["ns3l"] > 0
    assert torch.equal(losses.total, losses.parts["ce"])


def test_weights_follow_a_step_that_is_a_tensor():
    objective = Objective(ce=CE, ns3l=(Ramp(1.0, 10), NegativeSampling(passes=1)))
    for step in (0, 3, 50):
        plain = objective(scene.network(), scene.batch(), Draw(0, step))
        onboard = objective(scene.network(), scene.batch(), Draw(torch.tensor(0), torch.tensor(step)))
        assert isinstance(onboard.weights["ns3l"], torch.Tensor)
        assert onboard.weights["ns3l"].item() == pytest.approx(math.exp(-5 * (1 - min(step / 10, 1)) ** 2), rel=1e-6)
        assert onboard.total.item() == pytest.approx(plain.total.item(), rel=1e-6)


def test_repr_shows_all():
    text = repr(Objective(build=MixMatch(), ns3l=(Ramp(1.0, 5), NegativeSampling(on="mixed"))))
    for part in ("MixMatch(", "'joint'", "Ramp(value=1.0, steps=5)", "NegativeSampling("):
        assert part in text


class Lost(Term):
    reads = ("unlabelled_2", "mixed_labeled")

    def __call__(self, fwd):
        raise AssertionError


def faults(**arguments):
    with pytest.raises(ValueError) as caught:
        Objective(**arguments)
    head, *lines = str(caught.value).splitlines()
    assert head == "this objective cannot work:"
    return lines


def test_no_term():
    assert faults() == ["  - it has no term: pass at least one name=(weight, term)"]


def test_all_faults_come_together_with_the_nearest_names():
    lines = faults(
        build="mixmatch",
        statistics="jont",
        lost=(1.0, Lost()),
        a=(1.0, VirtualAdversarial()),
        b=(1.0, VirtualAdversarial(eps=1.0)),
        negative=(-1.0, CrossEntropy()),
        endless=(math.inf, CrossEntropy()),
        nan=(math.nan, CrossEntropy()),
        swapped=(CrossEntropy(), 1.0),
        called=(lambda step: 1.0, CrossEntropy()),
        flag=(True, CrossEntropy()),
        bare=CrossEntropy(),
        kind=(1.0, CrossEntropy),
    )
    text = "\n".join(lines)
    for expected in (
        "build must be a builder such as MixMatch(), or None, got 'mixmatch'",
        "statistics='jont' is not one of joint, labeled, first_interleaved",
        "lost reads the view 'unlabelled_2', which nothing makes",
        "did you mean 'unlabeled_2'?",
        "lost reads the view 'mixed_labeled'",
        "the view 'adversarial' is made more than once",
        "the weight of negative must be finite and not negative, got -1.0",
        "the weight of endless must be finite and not negative, got inf",
        "the weight of nan must be finite and not negative, got nan",
        "swapped must be (weight, term), its second part is 1.0",
        "the weight of swapped must be a number or a schedule, got CrossEntropy",
        "the weight of called must be a number or a schedule",
        "the weight of flag must be a number or a schedule, got True",
        "bare must be (weight, term), got CrossEntropy",
        "kind must be (weight, term), its second part is <class",
    ):
        assert expected in text
    assert len(lines) == 14


def test_interleaving_needs_a_builder():
    (line,) = faults(statistics="first_interleaved", ce=CE)
    assert "is for objectives with a builder; use 'joint' or 'labeled'" in line


def test_who_makes_a_view_is_told():
    text = "\n".join(
        faults(
            a=(1.0, EntropyMinimization("adversarial")),
            b=(1.0, NegativeSampling(on="mixed")),
            c=(1.0, CrossEntropy("labelled")),
            d=(1.0, CrossEntropy(3)),
        )
    )
    for line in (
        r"a reads the view 'adversarial', .*; add a term VirtualAdversarial\(…\)$",
        r"b reads the view 'mixed_labeled', .*; add build=Mixup\(…\) or build=MixMatch\(…\)$",
        r"c reads the view 'labelled', .*; did you mean 'labeled'\?$",
        r"d reads the view 3, which nothing makes \(there are labeled, unlabeled, .*\)$",
    ):
        assert re.search(line, text, re.MULTILINE), line


def test_wrong_arguments_of_a_step_are_told():
    objective, net, batch, draw = Objective(ce=CE), scene.network(), scene.batch(), Draw(0)
    for arguments, told in [
        ((lambda x: x, batch, draw), "student must be a network, .* but it is of type function"),
        ((net, batch.x, draw), "batch must be ns3l.batch.Batch.* of type dict"),
        ((net, batch, 3), r"draw must be ns3l.draw.Draw\(seed, step\), but it is of type int"),
        ((net, batch, draw, Average(net, 0.9)), r"average must be Average\(…\).network, but it is of type Average"),
    ]:
        with pytest.raises(TypeError, match=told):
            objective(*arguments)


@pytest.mark.parametrize("missing", ["x", "y"])
def test_labeled_rows_are_asked_for(missing):
    full = scene.batch()
    rows = {key: {k: v for k, v in getattr(full, key).items() if k != "labeled"} for key in missing}
    with pytest.raises(ValueError, match=r"x\['labeled'\] and y\['labeled'\] in every step"):
        Objective(ce=CE, ns3l=(1.0, NegativeSampling()))(scene.network(), replace(full, **rows), Draw(0))


@pytest.mark.parametrize(
    ("made", "came"),
    [
        (lambda x: (x, x), "this one returned tuple"),
        (lambda x: x[:, 0], r"this one returned \[20\]"),
        (lambda x: x[:, None], r"this one returned \[20, 1, 6\]"),
    ],
)
def test_a_network_returns_logits(made, came):
    class Wrong(torch.nn.Module):
        def forward(self, x):
            return made(x)

    with pytest.raises(TypeError, match=rf"logits \[examples, classes\].*{came}"):
        Objective(ce=CE)(Wrong(), scene.batch(), Draw(0))


@pytest.mark.parametrize("objective", [PASSES["vat + entmin"][0], PASSES["mixmatch"][0], PASSES["ict"][0]])
def test_a_surrounding_autocast_is_a_precision(objective):
    """All weights learn as if it had been asked for by name, and it is at work again afterwards."""
    grads = []
    for around in (False, True):
        net = scene.network()
        with torch.autocast("cpu", torch.bfloat16, enabled=around):
            half = None if around else torch.bfloat16
            losses = objective(net, scene.batch(), Draw(0), scene.teacher(net), half)
            assert torch.is_autocast_enabled("cpu") is around
        losses.total.backward()
        grads.append({name: weight.grad for name, weight in net.named_parameters()})
    assert scene.same(*grads)


@pytest.mark.parametrize(
    ("augment", "differ"),
    [(scene.noise, True), (Augmentation((Noise(0.1),)), True), (Augmentation(), False), (unchanged, False)],
)
def test_whether_renderings_differ_is_known(augment, differ):
    passes = Passes(scene.network(), None, scene.batch(augment=augment), Draw(0))
    assert passes.augments is differ
    assert torch.equal(passes.render("first"), passes.render("second")) is not differ


@pytest.mark.parametrize("term", [MeanTeacher(), InterpolationConsistency()])
def test_an_average_is_asked_for(term):
    objective = Objective(ce=CE, tutor=(1.0, term))
    assert objective.needs_average and not Objective(ce=CE).needs_average
    with pytest.raises(ValueError, match=r"tutor compare with an averaged network: pass average=Average"):
        objective(scene.network(), scene.batch(), Draw(0))


@pytest.mark.parametrize("objective", [Objective(ce=CE, pi=(1.0, Pi())), Objective(build=Mixup(), **MIXED)])
def test_unlabeled_rows_are_asked_for(objective):
    full = scene.batch()
    only = type(full)({"labeled": full.x["labeled"]}, full.y)
    with pytest.raises(ValueError, match="read unlabeled examples, but the batch has none"):
        objective(scene.network(), only, Draw(0))


def test_half_precision_runs_passes_under_autocast():
    seen = []
    net = scene.network()
    net.head.register_forward_hook(lambda layer, given, made: seen.append(made.dtype))
    losses = Objective(ce=CE, ns3l=(1.0, NegativeSampling()))(net, scene.batch(), Draw(0), precision=torch.bfloat16)
    assert seen == [torch.bfloat16] * 2
    assert losses.total.dtype == torch.float32 and torch.isfinite(losses.total)


@pytest.mark.parametrize(("rows", "size"), [(12, 4), (13, 4), (5, 5), (7, 3)])
def test_interleaving_keeps_the_order_of_rows(rows, size):
    class Row(torch.nn.Module):
        def forward(self, x):
            assert size - 1 <= len(x) <= size
            return x * 2

    x = torch.arange(float(rows))[:, None]
    passes = Passes(Row(), None, scene.batch(), Draw(0))
    assert torch.equal(interleaved(passes, x, size), 2 * x)


def test_interleaved_parts_hold_every_part_in_proportion():
    net = scene.Counted(scene.network())
    rows = torch.cat([torch.zeros(8, scene.FEATURES), torch.ones(16, scene.FEATURES)])
    interleaved(Passes(net, None, scene.batch(), Draw(0)), rows, 8)
    assert [moved for _, moved in net.seen] == [True, False, False]
    assert all(x[:, 0].mean().item() == pytest.approx(2 / 3, abs=0.1) for x, _ in net.seen)


def test_views_of_the_averaged_network_carry_no_gradient():
    average = scene.teacher(scene.network()).requires_grad_(True)
    objective = Objective(ce=CE, teacher=(8.0, MeanTeacher()))
    fwd = objective.forward(scene.network(), scene.batch(), Draw(0), average)
    assert not any(fwd.logits[view].requires_grad for view in ("labeled_teacher", "unlabeled_teacher"))
