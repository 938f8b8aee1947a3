"""Methods by name: sums of terms, joined by `+`, a builder first."""

import difflib
from collections.abc import Callable
from dataclasses import dataclass

from ns3l.errors import RecipeError
from ns3l.mixmatch import BUILDERS
from ns3l.negatives import NearestNeighbor, Oracle, Selector, Threshold, Uniform
from ns3l.objective import Builder, Term
from ns3l.terms import TERMS
from ns3l.terms.consistency import MeanTeacher, Pi
from ns3l.terms.cross_entropy import CrossEntropy
from ns3l.terms.entropy import EntropyMinimization
from ns3l.terms.interpolation import InterpolationConsistency
from ns3l.terms.negative_sampling import NegativeSampling
from ns3l.terms.pseudo_label import PseudoLabel
from ns3l.terms.target_error import TargetError
from ns3l.terms.vat import VirtualAdversarial

SHARE = 0.4
"""The default threshold of NS3L, as a share of 1/K."""


@dataclass(frozen=True)
class Method:
    """A summand: the name that its term has in the objective, and the term for K classes and the names beside it."""

    entry: str
    term: Callable[[int, tuple[str, ...]], Term]


def _ns3l(classes: int, beside: tuple[str, ...]) -> Term:
    if "mixmatch" in beside or "mixup" in beside:
        return NegativeSampling(Threshold(SHARE / classes), passes=1, on="mixed")
    return NegativeSampling(Threshold(SHARE / classes))


def _entmin(classes: int, beside: tuple[str, ...]) -> Term:  # noqa: ARG001
    return EntropyMinimization("adversarial" if "vat" in beside else "unlabeled")


def _always(term: Term) -> Callable[[int, tuple[str, ...]], Term]:
    return lambda classes, beside: term  # noqa: ARG005


def _one_pass(selector: Selector) -> Method:
    """Negatives that do not depend on a prediction need no pass of their own."""
    return Method("ns3l", _always(NegativeSampling(selector, passes=1)))


METHODS: dict[str, Method] = {
    "supervised": Method("supervised", _always(CrossEntropy())),
    "pl": Method("pl", _always(PseudoLabel())),
    "pl-one-pass": Method("pl", _always(PseudoLabel(passes=1))),
    "entmin": Method("entmin", _entmin),
    "pi": Method("pi", _always(Pi())),
    "mean-teacher": Method("mean-teacher", _always(MeanTeacher())),
    "vat": Method("vat", _always(VirtualAdversarial())),
    "ict": Method("ict", _always(InterpolationConsistency())),
    "ns3l": Method("ns3l", _ns3l),
    "ns3l-one-pass": Method("ns3l", lambda classes, _: NegativeSampling(Threshold(SHARE / classes), passes=1)),
    "ns3l-uniform-1": _one_pass(Uniform(1)),
    "ns3l-uniform-3": _one_pass(Uniform(3)),
    "ns3l-nn-exclude": _one_pass(NearestNeighbor("exclude-nearest")),
    "ns3l-nn-exclude-4": _one_pass(NearestNeighbor("exclude-four")),
    "ns3l-nn-furthest": _one_pass(NearestNeighbor("furthest")),
    "ns3l-oracle-1": _one_pass(Oracle(1)),
    "ns3l-oracle-3": _one_pass(Oracle(3)),
    "mixup": Method("mixup", _always(CrossEntropy("mixed_unlabeled"))),
    "mixmatch": Method("mixmatch", _always(TargetError())),
}
for _name in sorted(TERMS.keys() - METHODS.keys() - {"target-error"}):  # every term but MixMatch's is a method
    METHODS[_name] = Method(_name, _always(TERMS[_name]()))


def names_of(method: str) -> tuple[str, ...]:
    """The names in a sum; every unknown, repeated or misplaced one is a fault."""
    if not isinstance(method, str):
        raise RecipeError(f"a method is names joined by + or an ns3l.Objective, got {method!r}")
    names = tuple(part.strip() for part in method.split("+"))
    faults = [f"{name!r} is not a method{_nearest(name)}" for name in names if name not in METHODS]
    entries = [METHODS[name].entry for name in names if name in METHODS]
    faults += [f"two summands are called {entry!r}" for entry in dict.fromkeys(entries) if entries.count(entry) > 1]
    faults += [f"the builder {name!r} must come first" for name in names[1:] if name in BUILDERS]
    if faults:
        raise RecipeError(f"the method {method!r} cannot be understood: {'; '.join(faults)}")
    return names


def terms_of(method: str, classes: int) -> tuple[dict[str, Term], Builder | None]:
    """The terms of a method by name, the supervised one first, and its builder."""
    names = names_of(method)
    builder = BUILDERS[names[0]]() if names[0] in BUILDERS else None
    supervised = CrossEntropy("mixed_labeled" if builder else "labeled")
    terms: dict[str, Term] = {"supervised": supervised}
    for name in names:
        if name != "supervised":
            terms[METHODS[name].entry] = METHODS[name].term(classes, names)
    return terms, builder


def _nearest(name: str) -> str:
    near = difflib.get_close_matches(name, METHODS, 1)
    return f", did you mean {near[0]!r}?" if near else f"; there are {', '.join(METHODS)}"
