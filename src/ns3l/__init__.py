"""Semi-supervised learning in PyTorch: methods as weighted sums of terms over shared views of a batch."""

from typing import TYPE_CHECKING, Any

from ns3l.data import Dataset, load
from ns3l.loss import NegativeSamplingLoss, negative_sampling_loss
from ns3l.model import Model, load_model
from ns3l.objective import Objective
from ns3l.recipe import Recipe
from ns3l.recipes import recipe
from ns3l.shared import How
from ns3l.split import Split, SplitRequest, make_split
from ns3l.train import Result, fit

if TYPE_CHECKING:
    from ns3l.estimator import SemiSupervisedClassifier

__version__ = "0.1.0"

__all__ = [
    "Dataset",
    "How",
    "Model",
    "NegativeSamplingLoss",
    "Objective",
    "Recipe",
    "Result",
    "SemiSupervisedClassifier",
    "Split",
    "SplitRequest",
    "fit",
    "load",
    "load_model",
    "make_split",
    "negative_sampling_loss",
    "recipe",
]


def __getattr__(name: str) -> Any:
    """The estimator is loaded on first use: scikit-learn is heavy."""
    if name == "SemiSupervisedClassifier":
        from ns3l.estimator import SemiSupervisedClassifier

        return SemiSupervisedClassifier
    raise AttributeError(f"module 'ns3l' has no attribute {name!r}")
