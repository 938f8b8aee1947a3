"""The terms by name: a new one is one file and one line here."""

from ns3l.objective import Term
from ns3l.terms.consistency import MeanTeacher, Pi
from ns3l.terms.cross_entropy import CrossEntropy
from ns3l.terms.entropy import EntropyMinimization
from ns3l.terms.interpolation import InterpolationConsistency
from ns3l.terms.negative_sampling import NegativeSampling
from ns3l.terms.pseudo_label import PseudoLabel
from ns3l.terms.target_error import TargetError
from ns3l.terms.vat import VirtualAdversarial

TERMS: dict[str, type[Term]] = {
    "supervised": CrossEntropy,
    "pl": PseudoLabel,
    "entmin": EntropyMinimization,
    "pi": Pi,
    "mean-teacher": MeanTeacher,
    "vat": VirtualAdversarial,
    "ict": InterpolationConsistency,
    "ns3l": NegativeSampling,
    "target-error": TargetError,
}
