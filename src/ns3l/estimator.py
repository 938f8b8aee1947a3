"""The scikit-learn door: `SemiSupervisedClassifier`, a thin layer over a data set, a split and `fit`."""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data
from torch import nn

from ns3l.augment import Augmentation
from ns3l.data.arrays import to_rows
from ns3l.data.dataset import Dataset
from ns3l.data.labels import encode, plain_labels
from ns3l.diagnosis import Diagnosis, behavior, compared
from ns3l.draw import Draw
from ns3l.errors import DataError, RecipeError, RunError
from ns3l.model import Model
from ns3l.networks import NETWORKS, build
from ns3l.objective import Objective
from ns3l.preprocess import PREPROCESSING, Identity
from ns3l.recipe import EvaluationPlan, Network, Recipe
from ns3l.recipes import override, own
from ns3l.recipes.own import EVALUATIONS, STEPS
from ns3l.shared import How
from ns3l.train import Stopped
from ns3l.train import fit as train


class SemiSupervisedClassifier(ClassifierMixin, BaseEstimator):
    """A classifier that learns from labeled and unlabeled rows; y == -1, None, NaN or "" means unlabeled.

    Rows are features [N, D] or images [N, H, W] or [N, H, W, C] (uint8, or floats in [0, 1] or [0, 255]).

    method: terms joined by `+` ("ns3l", "vat+ns3l", "supervised", ...), or an `ns3l.Objective`.
    network: "auto" (by shape and size), a name of `ns3l.networks.NETWORKS`, or a function that returns a new module
        that maps a batch to logits.
    steps: training steps; more for harder data.
    learning_rate: None for the default.
    preprocessing: "auto" (standardize), or a name of `ns3l.preprocess.PREPROCESSING`.
    augmentation: "auto" (noise for features, shifts for images), None, or an `ns3l.augment.Augmentation`.
    settings: further settings of the recipe by path, such as {"ns3l.negatives.threshold": 0.02, "batch.labeled": 20}.
    early_stopping: put `validation_fraction` of the labeled rows apart, keep the weights that were best on them, and
        stop after `patience` evaluations (there are 8 in a full run) without a better one.
    random_state: an int, a `numpy.random.RandomState`, or None for another seed each time.
    device: "auto", "cpu", "cuda".
    verbose: 1 shows progress.

    After `fit`: `classes_`, `model_` (an `ns3l.Model`), `recipe_`, `seed_`, `result_`, `n_features_in_`.
    """

    def __init__(
        self,
        method: str | Objective = "ns3l",
        *,
        network: str | Callable[[], nn.Module] = "auto",
        steps: int = STEPS,
        learning_rate: float | None = None,
        preprocessing: str = "auto",
        augmentation: str | Augmentation | None = "auto",
        settings: Mapping[str, Any] | None = None,
        early_stopping: bool = False,
        validation_fraction: float = 0.2,
        patience: int = 3,
        random_state: int | np.random.RandomState | None = None,
        device: str = "auto",
        verbose: int = 0,
    ) -> None:
        self.method = method
        self.network = network
        self.steps = steps
        self.learning_rate = learning_rate
        self.preprocessing = preprocessing
        self.augmentation = augmentation
        self.settings = settings
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def fit(self, X: Any, y: Any, X_unlabeled: Any = None) -> Self:
        """Train on rows X with labels y, and on the rows of X_unlabeled, if any, as further unlabeled ones."""
        self.__dict__.pop("model_", None)  # where this fit breaks off, an earlier model is none of the new classes
        rows = self._rows(X, reset=True)
        data, self.classes_ = _data(rows, y, None if X_unlabeled is None else self._rows(X_unlabeled))
        self.seed_ = _seed(self.random_state)
        recipe, factory = self._recipe(data)
        how = How(self.device, "plain" if self.verbose else "quiet", network=factory)
        try:
            done = train(recipe, data, seeds=[self.seed_], how=how).runs[0]
        except Stopped as signal:
            raise KeyboardInterrupt from signal
        if done.model is None:
            raise RunError(
                "training stopped because its numbers were no longer finite: lower learning_rate, or look for rows "
                "with huge values"
            )
        labels = tuple(self.classes_.tolist())
        self.model_ = replace(_compact(done.model), labels=labels)
        self.recipe_, self.result_ = recipe, done.result
        self.behavior_ = behavior(self.model_, _pool(data))
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities [N, K]; columns are in the order of `classes_`."""
        check_is_fitted(self)
        return self.model_.logits(self._rows(X)).double().softmax(1).numpy()

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row."""
        check_is_fitted(self)
        return self.classes_[self.predict_proba(X).argmax(1)]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy on the rows that have a label, so that cross-validation over partly labeled rows is fair."""
        check_is_fitted(self)
        labels = _labels(y, len(X))
        known = np.flatnonzero([label is not None for label in plain_labels(labels, "y")])
        if not len(known):
            raise DataError("score(X, y) needs labels: every row of y is unlabeled")
        found = self.predict(X)[known]
        weight = None if sample_weight is None else np.asarray(sample_weight)[known]
        return float(np.average(found == labels[known], weights=weight))

    def save(self, path: Path | str) -> None:
        """Write the model into a folder, as safetensors and JSON; `ns3l.load_model(path)` reads it."""
        check_is_fitted(self)
        self.model_.save(path)

    def diagnose(self, X: Any = None, y: Any = None, X_unlabeled: Any = None, folds: int = 5) -> Diagnosis:
        """How negatives and pseudo-labels behave and, given the training data, whether unlabeled rows helped.

        With X and y, every labeled row is held out once in `folds` parts: this method and the supervised baseline,
        with the same budget, are trained on the other labels (2 x folds trainings) and compared on the held-out rows.
        """
        check_is_fitted(self)
        if X is None:
            return Diagnosis(self.recipe_.method, self.behavior_)
        if y is None:
            raise DataError("diagnose(X, y) needs the labels too; without X it tells what is known already")
        rows = self._rows(X)
        data, _ = _data(rows, y, None if X_unlabeled is None else self._rows(X_unlabeled))
        recipe, factory = self._recipe(data)
        how = How(self.device, "quiet", network=factory)
        return compared(recipe, data, self.seed_, how, folds, self.behavior_)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags

    def _rows(self, X: Any, reset: bool = False) -> np.ndarray:
        """Stored rows of what a user gave: float32 features or uint8 images, scaled as in `fit`."""
        if hasattr(X, "toarray") and hasattr(X, "nnz"):
            raise TypeError(
                "sparse data are not taken: reduce them with sklearn.decomposition.TruncatedSVD(100), or give "
                "X.toarray() where that fits into memory"
            )
        X = validate_data(self, X, reset=reset, allow_nd=True, ensure_min_samples=2 if reset else 1)
        if reset:
            self.image_scale_ = None if X.ndim == 2 else 255.0 if X.dtype.kind in "bf" and X.max() <= 1 else 1.0
        elif (X.ndim == 2) != (self.image_scale_ is None):
            forms = ("images [N, H, W] or [N, H, W, C]", "features [N, D]")
            raise DataError(f"X: fit had {forms[self.image_scale_ is None]}, got rows of shape {list(X.shape[1:])}")
        return to_rows(X, "X") if self.image_scale_ is None else _images(X, self.image_scale_)

    def _recipe(self, data: Dataset) -> tuple[Recipe, Callable[[], nn.Module] | None]:
        """The recipe of these settings on these data, and the network's own factory where there is one."""
        shape = tuple(data.x.shape[1:])
        held_out = _share(self.validation_fraction, data) if self.early_stopping else 0
        recipe = own(self.method, data.name, len(data.classes), shape, validation=held_out, steps=_steps(self.steps))
        if self.early_stopping:
            every = max(1, recipe.steps // EVALUATIONS)
            recipe = replace(recipe, evaluation=EvaluationPlan(every, rule="best_validation", patience=self.patience))
        factory = None
        if not isinstance(self.network, str):
            factory = _factory(self.network, data)
            recipe = replace(recipe, network=Network("own"))
        elif self.network != "auto":
            recipe = replace(recipe, network=Network(_known(self.network, NETWORKS, "network")))
        if self.preprocessing != "auto":
            kind = PREPROCESSING[_known(self.preprocessing, PREPROCESSING, "preprocessing")]
            recipe = replace(recipe, preprocessing=kind())
        if self.augmentation != "auto":
            recipe = replace(recipe, augmentation=_augmentation(self.augmentation))
        given = {} if self.learning_rate is None else {"optimizer.lr": self.learning_rate}
        if not isinstance(self.settings, Mapping | None):
            raise RecipeError(f'settings must be a mapping such as {{"ns3l.weight": 0.5}}, got {self.settings!r}')
        settings = given | dict(self.settings or {})
        return (override(recipe, settings) if settings else recipe), factory


def _data(rows: np.ndarray, y: Any, extra: np.ndarray | None) -> tuple[Dataset, np.ndarray]:
    """The data set of rows and labels, and the classes as the user writes them."""
    labels = _labels(y, len(rows))
    numbers, _, names = encode(labels)
    return Dataset("arrays", rows, numbers, names, x_extra=extra), _classes(labels[numbers >= 0], names)


def _labels(y: Any, rows: int) -> np.ndarray:
    """One label a row, in NumPy; refuses what cannot be classes, in scikit-learn's words where it has some."""
    if y is None:
        raise ValueError("fit requires y to be passed, but the target y is None; unlabeled rows have y = -1")
    labels = column_or_1d(_array(y), warn=True)
    if len(labels) != rows:
        raise ValueError(f"X has {rows} rows and y has {len(labels)} labels: Found input variables with inconsistent "
                         "numbers of samples")  # fmt: skip
    if labels.dtype.kind == "f":
        if np.isinf(labels).any():
            raise ValueError("Input y contains infinity or a value too large for dtype('float64').")
        check_classification_targets(labels[~np.isnan(labels)])
    return labels


def _array(y: Any) -> Any:
    """Labels as an array; lists of several kinds, text and NaN say, stay as they are."""
    if isinstance(y, list | tuple):
        kinds = {type(label) for label in y}
        return np.array(y, dtype=object) if len(kinds) > 1 and not kinds.isdisjoint((str, type(None))) else y
    if getattr(y, "dtype", None) is None:
        return y
    if type(y.dtype).__module__.startswith("pandas"):
        return np.asarray(y, dtype=object)
    found = np.asarray(y)
    return np.where(found == "nan", "", found) if found.dtype.kind == "U" else found  # NumPy writes NaN so into text


def _classes(known: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    """The class names in the type of the labels."""
    kinds = set(map(type, known.tolist()))
    if kinds <= {bool, np.bool_}:
        return np.array([name == "True" for name in names])
    if known.dtype.kind in "iuf":
        return np.array([int(name) for name in names]).astype(known.dtype)
    if all(issubclass(kind, int | float | np.number) for kind in kinds):
        return np.array([int(name) for name in names])
    return np.array(names, dtype=object if known.dtype.kind == "O" else None)


def _images(x: np.ndarray, scale: float) -> np.ndarray:
    """uint8 [N, H, W, C] of images in 0..255, or in 0..1 where the scale is 255; other floats are rounded."""
    high = 255 / scale
    if x.ndim not in (3, 4) or x.dtype.kind not in "buif":
        raise DataError(f"X: expected images [N, H, W] or [N, H, W, C], got {x.dtype} {list(x.shape)}")
    if x.min() < 0 or x.max() > high:
        raise DataError(f"X: image values must lie in 0..{high:g}, as in fit, got {x.min():g}..{x.max():g}")
    return to_rows(x if x.dtype == np.uint8 else np.rint(x * scale).astype(np.uint8), "X")


def _seed(random_state: int | np.random.RandomState | None) -> int:
    """A seed for the run; None takes one from the operating system and leaves NumPy's global state alone."""
    if random_state is None:
        return secrets.randbits(31)
    return int(check_random_state(random_state).randint(2**31 - 1))


def _steps(steps: int) -> int:
    if isinstance(steps, bool) or not isinstance(steps, int | np.integer) or steps < 1:
        raise RecipeError(f"steps must be a whole number of at least 1, got {steps!r}")
    return int(steps)


def _share(fraction: float, data: Dataset) -> float:
    if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 < fraction < 1:
        raise RecipeError(f"validation_fraction must be a number between 0 and 1, got {fraction!r}")
    labeled = int((data.y >= 0).sum())
    if round(fraction * labeled) < 1:
        raise DataError(
            f"validation_fraction={fraction:g} of {labeled} labeled rows is none: raise it, or early_stopping=False"
        )
    return float(fraction)


def _factory(factory: Any, data: Dataset) -> Callable[[], nn.Module]:
    """The factory, after a network of it was tried on two rows."""
    asked = "network must be a name, or a function without arguments that returns a new torch.nn.Module"
    if isinstance(factory, nn.Module) or not callable(factory):
        raise RecipeError(f"{asked}, for example lambda: MyNetwork(); got {factory!r}")
    rows = Identity().fit(data.x[:1])(torch.as_tensor(data.x[:1]).repeat_interleave(2, 0))
    try:
        with torch.no_grad():
            shape = tuple(build(factory, Draw(0))(rows).shape)
    except (RuntimeError, TypeError, ValueError, IndexError) as problem:
        raise RecipeError(f"{asked}; on a batch of shape {tuple(rows.shape)} it fails: {problem}") from problem
    if shape != (2, len(data.classes)):
        raise RecipeError(
            f"the network gives {shape} for a batch of shape {tuple(rows.shape)}; {len(data.classes)} classes need "
            f"logits of shape (2, {len(data.classes)})"
        )
    return factory


def _augmentation(augmentation: str | Augmentation | None) -> Augmentation:
    if isinstance(augmentation, str):
        raise RecipeError(f'augmentation must be "auto", None or an ns3l.augment.Augmentation, got {augmentation!r}')
    return augmentation or Augmentation()


def _known(name: str, registry: Mapping[str, object], what: str) -> str:
    if name not in registry:
        raise RecipeError(f"{what} must be auto or one of {', '.join(registry)}, got {name!r}")
    return name


def _compact(model: Model) -> Model:
    """The model on its own tensors: while training, weights were parts of one vector, which pickle would repeat."""
    for parameter in model.network.parameters():
        parameter.data = parameter.data.clone()
    return model


def _pool(data: Dataset, most: int = 5000) -> np.ndarray:
    """Some rows to look at, evenly spread."""
    return data.x[:: max(1, len(data.x) // most)]
