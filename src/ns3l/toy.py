"""The paper's toy example in one dimension (Section 3.2): where does each update put the separating point?

Points lie uniformly in [-1, 1]; left of w* = 0 the class is 1, right of it 0. The labeled points are a biased choice,
so that the supervised classifier mu(x) = sigmoid(a x + b) separates at some w^ left of w*. From there training goes on
with unlabeled points of which the classifier is certain, in one of these ways:

* "inductive": a certain point takes its predicted label; the gradient is -(1 - mu) x, mu being the predicted class's.
* "ns3l, as written": Algorithm 1 marks the other class, whose probability is under T, as negative. With two classes
  -log(1 - mu_0) is -log mu_1: the same loss, the same gradient, the same separating point as "inductive", whatever the
  data. So the loss as written cannot show here what the section says of it; with more classes the two losses differ.
* "ns3l, as displayed": the section's formula is mu x, in the opposite direction. It is the gradient of -log(1 - mu),
  that is of telling a certain point that it is *not* what it is predicted to be. Certain points are more numerous on
  the side that the biased classifier favors, so this moves the separating point back towards w*, and it flattens the
  classifier, for it contradicts right predictions too. It is a reading of the formula, not the method trained here.

Found with seeds 0 to 4: supervised -0.24 to -0.34; inductive and as written within 0.03 of it, nearer w* for three
seeds and farther for two; as displayed -0.06 to -0.12, with the slope |a| down from 11 to 2.5. Nothing in the setting
was chosen for its outcome.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from ns3l.draw import Draw
from ns3l.errors import is_whole
from ns3l.loss import negative_sampling_loss
from ns3l.negatives import Threshold

UPDATES = ("supervised", "inductive", "ns3l, as written", "ns3l, as displayed")
"""What training goes on with, once the supervised classifier has converged."""


@dataclass(frozen=True, eq=False)
class Toy:
    """What one toy experiment used and found; the true separating point is 0."""

    labeled: Tensor
    """Labeled points [20], the first half of class 1, the second of class 0."""
    unlabeled: Tensor
    """Unlabeled points [200]."""
    begun: int
    """The step from which unlabeled points take part."""
    path: dict[str, list[float]]
    """The separating point -b / a after every step, by update."""
    slope: dict[str, float]
    """The classifier's final |a|, by update: how sharp it is."""

    @property
    def separating(self) -> dict[str, float]:
        """The final separating point, by update."""
        return {update: points[-1] for update, points in self.path.items()}


def toy(seed: int = 0, threshold: float = 0.1, weight: float = 1.0, steps: int = 500) -> Toy:
    """Train once per update: `steps` supervised gradient steps, then as many with the update, its loss times `weight`.

    Class 1 is labeled in [-1, -0.6] and class 0 in [0, 0.4], ten points each. Full batches, step size 1.
    """
    if not is_whole(steps) or steps < 1:
        raise ValueError(f"the toy needs a whole number of steps, at least 1, but got {steps!r}")
    draw = Draw(seed).stream("toy")
    left = draw.stream("left").uniform(10).double() * 0.4 - 1
    right = draw.stream("right").uniform(10).double() * 0.4
    labeled, unlabeled = torch.cat([left, right]), draw.stream("unlabeled").uniform(200).double() * 2 - 1
    path, slope = {}, {}
    for update in UPDATES:
        path[update], slope[update] = _train(update, labeled, unlabeled, threshold, weight, steps)
    return Toy(labeled, unlabeled, steps, path, slope)


def _train(
    update: str, labeled: Tensor, unlabeled: Tensor, threshold: float, weight: float, steps: int
) -> tuple[list[float], float]:
    truth = torch.tensor([1] * 10 + [0] * 10)
    line = torch.tensor([-1.0, 0.0], dtype=torch.float64, requires_grad=True)
    points = []
    for step in range(2 * steps):
        loss = cross_entropy(_logits(line, labeled), truth)
        if step >= steps:
            loss = loss + weight * _unlabeled_loss(update, _logits(line, unlabeled), threshold)
        (gradient,) = torch.autograd.grad(loss, line)
        line = (line - gradient).detach().requires_grad_()
        slope, offset = line.tolist()
        points.append(-offset / slope)
    return points, abs(slope)


def _logits(line: Tensor, x: Tensor) -> Tensor:
    """Logits of classes 0 and 1: their difference is a x + b."""
    score = line[0] * x + line[1]
    return torch.stack([torch.zeros_like(score), score], 1)


def _unlabeled_loss(update: str, logits: Tensor, threshold: float) -> Tensor:
    p = logits.detach().softmax(1)
    if update == "inductive":
        certain = p.amax(1) > 1 - threshold
        return (cross_entropy(logits, p.argmax(1), reduction="none") * certain).mean()
    if update == "ns3l, as written":
        return negative_sampling_loss(logits, Threshold(threshold)(p))
    if update == "ns3l, as displayed":
        return negative_sampling_loss(logits, p > 1 - threshold)
    return logits.sum() * 0


def picture(path: str | Path, seed: int = 0) -> Toy:
    """Draw the points and the way of each separating point into `path` (PNG, SVG or PDF, by its ending)."""
    from matplotlib.figure import Figure

    found = toy(seed)
    figure = Figure(figsize=(8, 5), layout="constrained")
    data, ways = figure.subplots(2, 1, height_ratios=[1, 3], sharex=True)
    data.plot(found.unlabeled, torch.zeros(200), "|", color="0.6", markersize=14, label="unlabeled")
    data.plot(found.labeled[:10], torch.zeros(10), "o", color="tab:blue", alpha=0.7, label="labeled 1")
    data.plot(found.labeled[10:], torch.zeros(10), "s", color="tab:red", alpha=0.7, label="labeled 0")
    data.set(yticks=[], ylim=(-1, 1), title="Biased labels, uniform unlabeled points")
    styles = {"supervised": "-", "inductive": "-", "ns3l, as written": ":", "ns3l, as displayed": "-"}
    for update, points in found.path.items():
        width = 4 if update == "inductive" else 2
        label = f"{update}: {points[-1]:+.3f}, slope {found.slope[update]:.1f}"
        ways.plot(points, range(len(points)), styles[update], linewidth=width, label=label)
    ways.axhline(found.begun, color="0.8", linewidth=1)
    ways.set(xlabel="x (the separating point is at -b / a)", ylabel="gradient step", xlim=(-1.05, 1.05))
    for axes in (data, ways):
        axes.axvline(0, color="black", linestyle="--", linewidth=1, label="w* (truth)")
        axes.legend(
            loc="center right" if axes is ways else "upper right",
            ncols=1 if axes is ways else 4,
            fontsize=8,
            framealpha=1,
        )
    figure.savefig(path, dpi=120)
    return found
