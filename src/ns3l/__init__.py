"""Semi-supervised learning in PyTorch: methods as weighted sums of terms over shared views of a batch."""

from ns3l.loss import NegativeSamplingLoss, negative_sampling_loss

__all__ = ["NegativeSamplingLoss", "negative_sampling_loss"]

__version__ = "0.1.0"
