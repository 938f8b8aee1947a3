"""How good predictions are: error, per class, F1, likelihood, calibration. Functions of logits and labels alone.

Nothing here sees training state. Selection rules (which evaluation of a run counts) are `Errors` and `median_of_last`.
"""

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

BINS = 15
LARGEST_CONFUSION = 1000  # classes; above, a confusion matrix fills a result file with millions of zeros
CHUNK = 4_000_000  # probabilities held at once


@dataclass(frozen=True)
class Bin:
    """One reliability bin: mean confidence and accuracy of `count` predictions (shares; None where it is empty)."""

    confidence: float | None
    accuracy: float | None
    count: int


@dataclass(frozen=True)
class Evaluation:
    """What predictions are worth against labels.

    Errors are in per cent. `nll` is in nats; `brier` sums squared differences over classes (0 to 2); `ece` is a share.
    `confusion[i][j]` counts examples of class i predicted as j (None above 1,000 classes). `macro_f1` is the mean over
    classes that occur in labels or predictions. Rows whose logits are not finite count as errors, are in no prediction,
    and leave the probabilistic scores unsaid (None).
    """

    examples: int
    error: float
    top_5_error: float | None
    per_class_error: tuple[float | None, ...]
    confusion: tuple[tuple[int, ...], ...] | None
    macro_f1: float
    nll: float | None
    brier: float | None
    ece: float | None
    reliability: tuple[Bin, ...]
    not_finite: int = 0

    def to_dict(self) -> dict[str, Any]:
        """As JSON-safe data: no NaN, no infinity, and no `top_5_error` where there are five classes or fewer."""
        found = {name: _plain(value) for name, value in asdict(self).items()}
        if self.top_5_error is None:
            del found["top_5_error"]
        return found


def _plain(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def evaluate(logits: Tensor, labels: Tensor) -> Evaluation:
    """Evaluate logits [N, K] against labels [N] (integers from 0 to K - 1), in float64 on the CPU, chunk by chunk."""
    _check(logits, labels)
    labels = labels.detach().cpu().long()
    classes = logits.shape[1]
    rows = max(1, CHUNK // classes)
    parts = [_scores(logits[i : i + rows], labels[i : i + rows]) for i in range(0, len(labels), rows)]
    rank, predicted, confidence, nll, brier = (torch.cat(column) for column in zip(*parts, strict=True))
    finite = predicted >= 0
    right = rank == 0
    bins, ece = _reliability(confidence[finite], right[finite])
    sound = bool(finite.all())
    return Evaluation(
        examples=len(labels),
        error=_per_cent(~right),
        top_5_error=_per_cent(rank >= 5) if classes > 5 else None,
        per_class_error=_per_class_error(labels, right, classes),
        confusion=_confusion(labels[finite], predicted[finite], classes),
        macro_f1=_macro_f1(labels, predicted, classes),
        nll=_finite(nll.mean()) if sound else None,
        brier=_finite(brier.mean()) if sound else None,
        ece=ece if sound else None,
        reliability=bins,
        not_finite=int((~finite).sum()),
    )


def _check(logits: Tensor, labels: Tensor) -> None:
    if logits.ndim != 2 or not logits.is_floating_point() or logits.shape[1] < 2:
        raise ValueError(
            f"logits must be floats of shape [N, K] with K >= 2, not {logits.dtype} of shape {list(logits.shape)}"
        )
    if labels.shape != logits.shape[:1] or labels.is_floating_point() or labels.dtype == torch.bool:
        raise ValueError(
            f"labels must be {len(logits)} integers, one for each row of logits, not {labels.dtype} of shape "
            f"{list(labels.shape)}"
        )
    if not len(labels):
        raise ValueError("there is nothing to evaluate: logits and labels have no rows")
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= logits.shape[1]:
        raise ValueError(
            f"labels must lie in 0 to {logits.shape[1] - 1}, but {low if low < 0 else high} occurs; "
            "leave unlabeled rows (-1) out before evaluating"
        )


def _scores(logits: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
    """Of each row: rank of the true class, predicted class (-1: not finite), confidence, NLL and Brier score.

    Equal logits are ranked by class number, so rank 0 is the same as being the argmax.
    """
    logits = logits.detach().cpu().double()
    highest = logits.amax(1)
    finite = highest.isfinite()
    own = logits.gather(1, labels[:, None])
    earlier = torch.arange(logits.shape[1]) < labels[:, None]
    rank = ((logits > own) | ((logits == own) & earlier)).sum(1)
    rank = torch.where(finite, rank, logits.shape[1])
    log_probability = logits.log_softmax(1)
    probability = log_probability.exp()
    own_probability = probability.gather(1, labels[:, None])[:, 0]
    brier = probability.square().sum(1) - own_probability.square() + (1 - own_probability).square()
    nll = -log_probability.gather(1, labels[:, None])[:, 0]
    predicted = torch.where(finite, logits.argmax(1), -1)
    return rank, predicted, probability.amax(1), nll, brier


def _per_cent(wrong: Tensor) -> float:
    return 100.0 * float(wrong.sum()) / len(wrong)


def _finite(value: Tensor) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None


def _per_class_error(labels: Tensor, right: Tensor, classes: int) -> tuple[float | None, ...]:
    count = labels.bincount(minlength=classes).tolist()
    wrong = labels[~right].bincount(minlength=classes).tolist()
    return tuple(100.0 * w / n if n else None for w, n in zip(wrong, count, strict=True))


def _confusion(labels: Tensor, predicted: Tensor, classes: int) -> tuple[tuple[int, ...], ...] | None:
    if classes > LARGEST_CONFUSION:
        return None
    counts = (labels * classes + predicted).bincount(minlength=classes * classes)
    return tuple(tuple(row) for row in counts.view(classes, classes).tolist())


def _macro_f1(labels: Tensor, predicted: Tensor, classes: int) -> float:
    """F1 = 2 TP / (labeled so + predicted so), averaged over the classes for which the denominator is not zero."""
    hits = labels[labels == predicted].bincount(minlength=classes).double()
    total = labels.bincount(minlength=classes) + predicted[predicted >= 0].bincount(minlength=classes)
    return float((2 * hits[total > 0] / total[total > 0]).mean())


def _reliability(confidence: Tensor, right: Tensor) -> tuple[tuple[Bin, ...], float]:
    """Equal-width bins (lower, upper] of confidence, and their mean gap to accuracy by count (Guo et al. 2017)."""
    place = ((confidence * BINS).ceil().long() - 1).clamp(0, BINS - 1)
    counts = place.bincount(minlength=BINS).tolist()
    confidences = place.bincount(weights=confidence, minlength=BINS).tolist()
    hits = place.bincount(weights=right.double(), minlength=BINS).tolist()
    bins = tuple(
        Bin(c / n, h / n, n) if n else Bin(None, None, 0) for c, h, n in zip(confidences, hits, counts, strict=True)
    )
    gap = sum(abs(c - h) for c, h in zip(confidences, hits, strict=True))
    return bins, gap / max(1, len(confidence))


@contextmanager
def _evaluating(*modules: nn.Module | Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Put modules in eval mode and give every submodule its own training flag back afterwards."""
    flags = [(part, part.training) for m in modules if isinstance(m, nn.Module) for part in m.modules()]
    try:
        for part, _ in flags:
            part.training = False
        yield
    finally:
        for part, flag in flags:
            part.training = flag


def logits_of(
    network: nn.Module,
    preprocess: Callable[[Tensor], Tensor] | None,
    x: np.ndarray | Tensor,
    batch: int = 500,
    device: torch.device | str | None = None,
    autocast: torch.dtype | None = None,
) -> Tensor:
    """Logits [N, K] of stored rows `x` as float32 on the CPU, `batch` rows at a time, in eval mode without gradient.

    `x` may be a memory map: only one batch of it is read at a time. `device` is where the network is, unless given.
    """
    if not len(x):
        raise ValueError("there is nothing to evaluate: x has no rows")
    if batch < 1:
        raise ValueError(f"batch must be at least 1, not {batch}")
    where = torch.device(device) if device is not None else _device_of(network)
    parts = []
    with (
        torch.inference_mode(),
        _evaluating(network, preprocess or nn.Identity()),
    ):
        for start in range(0, len(x), batch):
            rows = _rows(x, start, start + batch).to(where)
            rows = rows if preprocess is None else preprocess(rows)
            with torch.autocast(where.type, dtype=autocast, enabled=autocast is not None):
                logits = network(rows)
            if logits.ndim != 2 or len(logits) != len(rows):
                raise ValueError(
                    f"the network must return logits of shape [{len(rows)}, classes], not {list(logits.shape)}"
                )
            parts.append(logits.float())
    return torch.cat(parts).cpu()


def _device_of(network: nn.Module) -> torch.device:
    held = next(network.parameters(), None)
    return torch.device("cpu") if held is None else held.device


def _rows(x: np.ndarray | Tensor, start: int, stop: int) -> Tensor:
    return x[start:stop] if isinstance(x, Tensor) else torch.from_numpy(np.array(x[start:stop]))


def median_of_last(values: Sequence[float], count: int = 20) -> float | None:
    """Median of the last `count` values (of all where there are fewer; None of none)."""
    return statistics.median(values[-count:]) if values else None


@dataclass(frozen=True)
class Errors:
    """The evaluations of a run so far, as (step, validation error, test error), and what each selection rule picks."""

    history: tuple[tuple[int, float | None, float | None], ...] = ()

    def after(self, step: int, validation: float | None, test: float | None) -> "Errors":
        """This history with one more evaluation."""
        return Errors((*self.history, (step, validation, test)))

    @property
    def best_step(self) -> int | None:
        """The first step with the lowest validation error; None without validation."""
        known = [(validation, step) for step, validation, _ in self.history if validation is not None]
        return min(known)[1] if known else None

    def selected(self, of: Literal["test", "validation"] = "test") -> dict[str, float | None]:
        """The error by each rule: `last`, `best_validation` (at the lowest validation error), `median_20`."""
        column = {"validation": 1, "test": 2}[of]
        values = {entry[0]: entry[column] for entry in self.history}
        known = [value for value in values.values() if isinstance(value, (int, float))]
        best = self.best_step
        return {
            "last": known[-1] if known else None,
            "best_validation": None if best is None else values[best],
            "median_20": median_of_last(known, 20),
        }


def selected(history: Sequence[tuple[int, float | None, float | None]]) -> dict[str, float | None]:
    """Test error of a history of (step, validation error, test error) by each selection rule."""
    return Errors(tuple((step, validation, test) for step, validation, test in history)).selected()
