"""Consistency under augmentation: the Π model and mean teacher."""

from dataclasses import dataclass

from torch import Tensor

from ns3l.divergence import squared_error
from ns3l.objective import Forward, Term


@dataclass(frozen=True)
class Pi(Term):
    """d(f(x), f(x̂)): the first pass learns, the second is the target (Laine and Aila 2017; squared error)."""

    @property
    def reads(self) -> tuple[str, ...]:
        """The two passes."""
        return ("unlabeled", "unlabeled_2")

    def __call__(self, fwd: Forward) -> Tensor:
        """The mean over rows and classes."""
        return squared_error(fwd.logits["unlabeled"], fwd.logits["unlabeled_2"].detach()).mean()


@dataclass(frozen=True)
class MeanTeacher(Term):
    """d(f_θ(x), f_θ'(x)), θ' the moving average of θ (Tarvainen and Valpola 2017; squared error)."""

    @property
    def reads(self) -> tuple[str, ...]:
        """The student's pass and the averaged network's, each with its own augmentation."""
        return ("unlabeled", "unlabeled_teacher")

    def __call__(self, fwd: Forward) -> Tensor:
        """The mean over rows and classes."""
        return squared_error(fwd.logits["unlabeled"], fwd.logits["unlabeled_teacher"].detach()).mean()
