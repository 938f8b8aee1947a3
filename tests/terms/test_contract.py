"""What every term promises, over every entry of TERMS: none is named here, so a new one is covered at once."""

import copy
from dataclasses import fields, is_dataclass
from typing import Literal, get_args, get_origin, get_type_hints

import pytest
import torch
from tests.terms import scene

from ns3l.draw import Draw
from ns3l.mixmatch import BUILDERS
from ns3l.objective import Objective
from ns3l.passes import FIRST, SECOND, TEACHER, Passes
from ns3l.terms import TERMS

PLAIN = {*FIRST, *SECOND, *TEACHER}
MAKERS = [made() for made in TERMS.values() if made().makes]
BUILDS = [made() for made in BUILDERS.values()]


def variants(name):
    """A term with its defaults, and with each alternative of each named choice."""
    kind = TERMS[name]
    yield name, kind()
    for choice, hint in get_type_hints(kind).items():
        if get_origin(hint) is Literal:
            for value in get_args(hint):
                if getattr(kind(), choice) != value:
                    yield f"{name}[{choice}={value}]", kind(**{choice: value})


VARIANTS = dict(variant for name in TERMS for variant in variants(name))
every_term = pytest.mark.parametrize("name", VARIANTS)


def objective(term, statistics="joint", last=False):
    """The smallest objective in which a term can stand: what makes the views that it reads is added."""
    missing = set(term.reads) - PLAIN - {term.makes}
    makers = {f"maker_{i}": (1.0, m) for i, m in enumerate(MAKERS) if m.makes in missing}
    build = next((b for b in BUILDS if missing & set(b.makes)), None)
    if statistics == "first_interleaved" and build is None:
        pytest.skip("only objectives with a builder interleave")
    terms = {**makers, "term": (1.0, term)} if last else {"term": (1.0, term), **makers}
    return Objective(build=build, statistics=statistics, **terms)


def run(term, dtype=torch.float32, draw=None, **options):
    """One step: the term's value, its gradient for every student parameter, the networks."""
    net, average = scene.network().to(dtype), scene.teacher(scene.network()).to(dtype).requires_grad_(True)
    whole = objective(term, **options)
    losses = whole(net, scene.batch(dtype), draw or Draw(3, 10), average if whole.needs_average else None)
    losses.parts["term"].backward()
    grads = {key: weight.grad for key, weight in net.named_parameters()}
    return losses.parts["term"].detach(), grads, net, average


@every_term
def test_value_and_gradient_are_finite_and_not_zero(name, untouched_random_state):
    value, grads, _, _ = run(VARIANTS[name])
    assert value.shape == () and value.dtype == torch.float32
    assert torch.isfinite(value) and value > 0
    for key, grad in grads.items():
        assert grad is not None and torch.isfinite(grad).all() and grad.abs().max() > 0, key


@every_term
def test_the_teacher_takes_no_gradient_and_does_not_move(name):
    _, _, _, average = run(VARIANTS[name])
    assert all(weight.grad is None for weight in average.parameters())
    assert scene.same(scene.buffers(average), scene.buffers(scene.teacher(scene.network())))


@every_term
def test_order_of_terms_does_not_matter(name):
    term = VARIANTS[name]
    first, last = objective(term), objective(term, last=True)
    beside = {other: (0.5, choice) for other, choice in [("entropy", TERMS["entmin"]()), ("target", TERMS["pi"]())]}
    pairs = []
    for whole in (first, last):
        entries = {key: (whole.weights[key], whole.terms[key]) for key in whole.terms}
        for ordered in ({**entries, **beside}, dict(reversed({**entries, **beside}.items()))):
            net = scene.network()
            losses = Objective(build=whole.build, **ordered)(net, scene.batch(), Draw(3, 10), scene.teacher(net))
            pairs.append(losses.parts)
    assert all(scene.same(dict(sorted(pairs[0].items())), dict(sorted(parts.items()))) for parts in pairs)
    alone, _, _, _ = run(term)
    assert torch.equal(pairs[0]["term"], alone)


@every_term
@pytest.mark.parametrize("statistics", ["joint", "labeled", "first_interleaved"])
def test_batch_norm_moves_once_as_the_policy_says(name, statistics):
    _, _, net, _ = run(VARIANTS[name], statistics=statistics)
    assert scene.same(scene.buffers(net), scene.moved_by(scene.network(), mover(VARIANTS[name], statistics)))


def mover(term, statistics):
    """The rows that should move the running statistics."""
    passes = Passes(scene.network(), None, scene.batch(), Draw(3, 10))
    whole = objective(term, statistics)
    if statistics == "labeled":
        return passes.render("first")[: scene.LABELED]
    if whole.build is None:
        return passes.render("first")
    mixed = torch.cat(list(whole.build(passes).x.values()))
    count = -(-len(mixed) // max(scene.LABELED, scene.UNLABELED))
    return mixed[[i for i in range(len(mixed)) if i % count == 0]] if statistics == "first_interleaved" else mixed


@every_term
def test_an_extra_pass_without_augmentation_returns_the_logits_of_the_first(name):
    term, net, plain = VARIANTS[name], scene.network(), scene.batch(augment=lambda x, draw: x)
    fwd = objective(term).forward(net, plain, Draw(3, 10), scene.teacher(net))
    again = Passes(net, None, plain, Draw(3, 10)).run(torch.cat(list(plain.x.values())))
    for view, second in (("labeled", "labeled_2"), ("unlabeled", "unlabeled_2")):
        expected = again.split([scene.LABELED, scene.UNLABELED])[view == "unlabeled"]
        for seen in {view, second} & set(fwd.logits):
            assert torch.equal(fwd.logits[seen], expected)


@every_term
def test_repr_round_trips(name):
    term = VARIANTS[name]
    assert eval(repr(term), names(term)) == term
    assert hash(term) == hash(copy.deepcopy(term))


def names(value):
    """The classes that a term's repr mentions."""
    found = {type(value).__name__: type(value)}
    for field in fields(value):
        inner = getattr(value, field.name)
        found |= names(inner) if is_dataclass(inner) else {}
    return found


@every_term
def test_float32_is_near_float64(name):
    single, rough, _, _ = run(VARIANTS[name])
    double, exact, _, _ = run(VARIANTS[name], torch.float64)
    assert double.dtype == torch.float64
    assert single == pytest.approx(double.item(), rel=2e-3)
    assert cosine(rough, exact) > 0.999


def cosine(left, right):
    """Between two gradients."""
    a, b = (torch.cat([grad.flatten().double() for grad in grads.values()]) for grads in (left, right))
    return a @ b / (a.norm() * b.norm())


@every_term
def test_seed_and_step_decide(name):
    value, grads, _, _ = run(VARIANTS[name])
    again, repeated, _, _ = run(VARIANTS[name], draw=Draw(torch.tensor(3), torch.tensor(10)))
    assert torch.equal(value, again) and scene.same(grads, repeated)
    for other in (Draw(3, 11), Draw(4, 10)):
        assert not torch.equal(value, run(VARIANTS[name], draw=other)[0])


@every_term
def test_processes_that_share_a_batch_draw_for_their_own_rows(name, monkeypatch):
    """Every draw is for rows of the whole batch or for this process alone: else two processes would see one noise."""
    seen, inner = [], Draw._bits
    monkeypatch.setattr(Draw, "_bits", lambda draw, shape: seen.append(draw) or inner(draw, shape))
    run(VARIANTS[name], draw=Draw(3, 10, shard=(0, 2)))
    shared = [draw for draw in seen if draw.shard == (0, 2)]
    assert shared and not [draw.path for draw in shared if not draw.parts and "/process/0" not in draw.path]


@every_term
def test_what_it_tells_is_finite_and_named(name):
    whole, net = objective(VARIANTS[name]), scene.network()
    fwd = whole.forward(net, scene.batch(), Draw(3, 10), scene.teacher(net))
    for numbers in whole.diagnose(fwd).values():
        assert all(number.shape == () and torch.isfinite(number) for number in numbers.values())


@pytest.mark.parametrize("name", TERMS)
def test_terms_are_frozen_and_final(name):
    with pytest.raises((AttributeError, TypeError)):
        TERMS[name]().made_up = 1
    assert not TERMS[name].__subclasses__()
