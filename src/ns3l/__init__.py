"""Semi-supervised learning in PyTorch: methods as weighted sums of terms over shared views of a batch."""

__version__ = "0.1.0"
