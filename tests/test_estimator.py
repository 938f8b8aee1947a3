"""The scikit-learn door: labels and rows in every form, scikit-learn's own checks, saving, diagnosis."""

import pickle
import signal

import joblib
import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits, make_blobs
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_checks
from torch import nn

import ns3l
from ns3l.errors import DataError, RecipeError
from ns3l.estimator import SemiSupervisedClassifier
from ns3l.schedule import Ramp
from ns3l.terms import TERMS

SIGNS = "labels -1 and 1: here -1 means unlabeled, so that they are refused with advice"
ROUNDING = "float32: the seventh digit of a probability depends on how many rows are predicted at once"
EXPECTED = {"check_classifiers_classes": SIGNS, "check_methods_subset_invariance": ROUNDING}


def small(method="ns3l", **settings):
    return SemiSupervisedClassifier(method, **{"steps": 20, "random_state": 0, "device": "cpu"} | settings)


@pytest.fixture(scope="module")
def blobs():
    """90 rows of three blobs, their classes, and labels of which two thirds are -1."""
    x, truth = make_blobs(90, 4, centers=3, cluster_std=1.0, random_state=0)
    return x, truth, np.where(np.arange(90) % 3 == 0, truth, -1)


@pytest.mark.slow
@estimator_checks.parametrize_with_checks([small(steps=40)], expected_failed_checks=lambda estimator: EXPECTED)
def test_scikit_learns_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    "name", ["check_fit_idempotent", "check_estimators_pickle", "check_dict_unchanged", "check_estimators_unfitted"]
)
def test_the_core_of_scikit_learns_checks(name):
    getattr(estimator_checks, name)("SemiSupervisedClassifier", small(steps=3))


def test_it_learns_from_unlabeled_rows_and_leaves_the_global_state_alone(blobs):
    x, truth, y = blobs
    numpy_state, torch_state = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    model = small(steps=60).fit(x, y)
    assert model.score(x, truth) > 0.95
    assert model.predict_proba(x).sum(1) == pytest.approx(1, abs=1e-9)
    small(random_state=None, steps=2).fit(x, y)
    assert (np.random.get_state()[1] == numpy_state).all()  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), torch_state)


def test_a_seed_repeats_and_another_differs(blobs):
    x, _, y = blobs
    one, again, other = (small(random_state=seed, steps=4).fit(x, y).predict_proba(x) for seed in (3, 3, 4))
    assert (one == again).all() and (one != other).any()
    state = np.random.RandomState(5)
    first, second = (small(random_state=state, steps=1).fit(x, y).seed_ for _ in range(2))
    assert first != second
    assert len({small(random_state=None, steps=1).fit(x, y).seed_ for _ in range(3)}) == 3


@pytest.mark.parametrize(
    ("names", "gap"),
    [
        (["b", "a", "c"], None),
        (["b", "a", "c"], ""),
        (["b", "a", "c"], np.nan),
        ([7, 3, 5], -1),
        ([1.0, 2.0, 3.0], np.nan),
        ([7, 3, 5], None),
    ],
)
def test_labels_and_gaps_in_every_form(blobs, names, gap):
    x, truth, y = blobs
    labels = [gap if k < 0 else names[k] for k in y]
    model = small("supervised", steps=30).fit(x, labels)
    assert model.classes_.tolist() == sorted(names)
    assert (model.predict(x) == np.array(names)[truth]).mean() > 0.9


def test_true_and_false_are_classes_and_text_arrays_may_have_gaps(blobs):
    x, _, y = blobs
    said = [None if k < 0 else bool(k) for k in y]
    assert small(steps=2).fit(x, said).classes_.tolist() == [False, True]
    text = np.array([np.nan if k < 0 else "abc"[k] for k in y])  # NumPy writes the gaps as text
    assert "nan" in text and small(steps=2).fit(x, text).classes_.tolist() == list("abc")


def test_tensors_are_arrays(blobs):
    x, _, y = blobs
    model = small(steps=2).fit(torch.tensor(x), torch.tensor(y))
    assert (model.predict(torch.tensor(x)) == small(steps=2).fit(x, y).predict(x)).all()


def test_the_score_leaves_unlabeled_rows_out(blobs):
    x, _, y = blobs
    model = small(steps=60).fit(x, y)
    known = y >= 0
    assert model.score(x, y) == (model.predict(x)[known] == y[known]).mean() > 0.9
    weight = np.where(np.arange(90) == 0, 1.0, 0.0)
    assert model.score(x, y, sample_weight=weight) == float(model.predict(x)[0] == y[0])
    last = np.flatnonzero(known)[-1]
    swapped = np.where(np.arange(90) == last, (y + 1) % 3, y)  # the last labeled row, and it alone, now counts as wrong
    assert model.score(x, swapped, sample_weight=(np.arange(90) == last) + 1e-9) < 0.01
    assert min(cross_val_score(small(steps=60), x, y, cv=2)) > 0.8
    with pytest.raises(DataError, match="every row of y is unlabeled"):
        model.score(x, np.full(90, -1))


def test_unlabeled_rows_given_apart(blobs):
    x, truth, y = blobs
    model = small(steps=60).fit(x[y >= 0], y[y >= 0], X_unlabeled=x[y < 0])
    assert model.score(x, truth) > 0.95


def test_data_frames(blobs):
    pandas = pytest.importorskip("pandas")
    x, _, y = blobs
    frame = pandas.DataFrame(x, columns=list("abcd"))
    model = small().fit(frame, pandas.Series(y).astype("Int64").replace(-1, pandas.NA))
    assert model.feature_names_in_.tolist() == list("abcd")
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[["b", "a", "c", "d"]])


@pytest.mark.parametrize("form", ["uint8", "0..1", "0..255", "channels"])
def test_images_in_every_form_give_the_same_model(form):
    images, truth = load_digits(return_X_y=True)
    images = (images[:60].reshape(-1, 8, 8) * 15).astype(np.uint8)
    y = np.where(np.arange(60) < 30, truth[:60], -1)
    forms = {"uint8": images, "0..1": images / 255, "0..255": images.astype(float), "channels": images[..., None]}
    wanted = small(steps=3).fit(images, y).predict_proba(images)
    model = small(steps=3).fit(forms[form], y)
    assert (model.predict_proba(forms[form]) == wanted).all()
    if form == "0..1":
        dark = model.predict_proba(forms[form][:1] * 0)
        assert dark.shape == (1, 10)
        with pytest.raises(DataError, match=r"0\.\.1"):
            model.predict(images)


def test_images_and_features_are_not_mixed(blobs):
    x, _, y = blobs
    images = np.zeros((5, 4, 4))
    with pytest.raises(DataError, match=r"fit had features \[N, D\], got rows of shape \[4, 4\]"):
        small(steps=2).fit(x, y, X_unlabeled=images)
    model = small(steps=2).fit(np.random.default_rng(0).random((90, 4, 4)), y)
    with pytest.raises(DataError, match=r"fit had images .* got rows of shape \[4\]"):
        model.predict(x)
    with pytest.raises(DataError, match="fit had features"):
        model.fit(x, y).predict(images)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda x, y: (x, np.where(y > 0, 1, -1)), DataError, "name them 0 and 1"),
        (lambda x, y: (x, np.full(90, -1)), DataError, "2 classes"),
        (lambda x, y: (x, np.where(y == 0, 0, -1)), DataError, "2 classes"),
        (lambda x, y: (x, y[:-1]), ValueError, "90 rows and y has 89"),
        (lambda x, y: (x, None), ValueError, "y is None"),
        (lambda x, y: (x, np.linspace(0.1, 0.9, 90)), ValueError, "continuous"),
        (lambda x, y: (np.where(x == x[3, 2], np.nan, x), y), ValueError, "NaN"),
    ],
)
def test_what_cannot_be_learned_from_is_refused(blobs, change, error, words):
    x, _, y = blobs
    with pytest.raises(error, match=words):
        small().fit(*change(x, y))


def test_sparse_rows_are_refused_with_advice(blobs):
    from scipy.sparse import csr_matrix

    with pytest.raises(TypeError, match="TruncatedSVD"):
        small().fit(csr_matrix(blobs[0]), blobs[2])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"method": "nsl3"}, "did you mean"),
        ({"steps": 0}, "steps"),
        ({"network": "resnet"}, "small-conv-net"),
        ({"preprocessing": "whiten"}, "standardize"),
        ({"augmentation": "noise"}, "Augmentation"),
        ({"settings": {"ns3l.negatives.treshold": 0.1}}, "threshold"),
        ({"settings": ["ns3l.weight"]}, "settings must be a mapping"),
        ({"method": 3}, r"names joined by \+ or an ns3l.Objective, got 3"),
        ({"device": "gpu"}, 'device must be "auto"'),
        ({"device": 1.5}, 'device must be "auto"'),
        ({"device": "cuda:99"}, "there is no device cuda:99"),
        ({"early_stopping": True, "validation_fraction": 2}, "between 0 and 1"),
        ({"network": nn.Linear(4, 3)}, "lambda"),
        ({"network": lambda: nn.Linear(4, 7)}, r"3 classes need logits of shape \(2, 3\)"),
        ({"network": lambda: nn.Linear(9, 3)}, "cannot be multiplied"),
    ],
)
def test_wrong_settings_name_the_right_ones(blobs, settings, words):
    with pytest.raises(RecipeError, match=words):
        small(**settings).fit(blobs[0], blobs[2])


def test_every_row_labeled_and_one_label_in_a_class(blobs):
    x, truth, y = blobs
    assert small(steps=60).fit(x, truth).score(x, truth) > 0.95
    one = np.where((y == 0) & (np.arange(90) > np.flatnonzero(y == 0)[0]), -1, y)
    assert small(steps=60).fit(x, one).score(x, truth) > 0.8


def test_an_objective_and_a_network_of_ones_own(blobs):
    x, truth, y = blobs
    objective = ns3l.Objective(supervised=(1.0, TERMS["supervised"]()), ns3l=(Ramp(1.0, 10), TERMS["ns3l"]()))
    model = small(objective, network=lambda: nn.Linear(4, 3), steps=80, learning_rate=0.05).fit(x, y)
    assert model.score(x, truth) > 0.9 and model.recipe_.batch.unlabeled


def test_early_stopping_keeps_the_best_weights(blobs):
    x, _, y = blobs
    model = small(early_stopping=True, validation_fraction=0.3, patience=1, steps=160, settings={"batch.labeled": 8})
    model.fit(x, y)
    assert model.result_["rule"] == "best_validation" and model.result_["step"] < 160


def test_early_stopping_needs_a_row_to_look_at(blobs):
    with pytest.raises(DataError, match="of 30 labeled rows is none"):
        small(early_stopping=True, validation_fraction=0.001).fit(blobs[0], blobs[2])


def test_it_works_inside_scikit_learn(blobs):
    x, truth, _ = blobs
    pipeline = make_pipeline(StandardScaler(), small(steps=8))
    assert len(cross_val_score(pipeline, x, truth, cv=2)) == 2
    search = GridSearchCV(small(), {"steps": [4, 8], "method": ["supervised"]}, cv=2).fit(x, truth)
    assert search.best_params_["steps"] in (4, 8)
    assert clone(search.best_estimator_).get_params() == search.best_estimator_.get_params()


def test_pickle_and_folder_keep_predictions_and_labels(blobs, tmp_path):
    x, _, y = blobs
    labels = np.where(y < 0, -1, y * 10)
    model = small().fit(x, labels)
    stored = pickle.dumps(model)
    assert (pickle.loads(stored).predict_proba(x) == model.predict_proba(x)).all()
    assert len(stored) < 4 * sum(p.numel() for p in model.model_.network.parameters()) + 30_000
    model.save(tmp_path)
    read = ns3l.load_model(tmp_path)
    assert read.labels == (0, 10, 20) and read.classes == ("0", "10", "20")
    assert (read.predict(x.astype(np.float32)) == model.predict(x)).all()
    assert not list(tmp_path.glob("*.p*k*l*"))


def test_nothing_works_before_fit(blobs):
    for call in (lambda m: m.predict(blobs[0]), lambda m: m.save("x"), lambda m: m.diagnose()):
        with pytest.raises(NotFittedError):
            call(small())


class Impatient(nn.Linear):
    """A network whose user presses Ctrl-C in training."""

    def forward(self, rows):
        if self.training and torch.is_grad_enabled():
            signal.raise_signal(signal.SIGINT)
        return super().forward(rows)


def impatient():
    return Impatient(4, 3)


def test_an_interrupted_fit_leaves_no_half_model_and_the_global_state_alone(blobs):
    x, _, y = blobs
    model = small().fit(x, y + (y >= 0))
    state, handlers = torch.get_rng_state(), [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    deterministic, threads = torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()
    with pytest.raises(KeyboardInterrupt):
        model.set_params(network=impatient, steps=10**6).fit(x, y)
    with pytest.raises(NotFittedError):
        model.predict(x)  # the earlier model's classes are not those of this fit
    assert torch.equal(torch.get_rng_state(), state)
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert (torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()) == (deterministic, threads)
    assert model.set_params(network="auto", steps=20).fit(x, y).classes_.tolist() == [0, 1, 2]


def test_a_pipeline_is_kept_as_it_is(blobs, tmp_path):
    x, _, y = blobs
    pipeline = make_pipeline(StandardScaler(), small()).fit(x, y)
    joblib.dump(pipeline, tmp_path / "pipeline.joblib")
    again = joblib.load(tmp_path / "pipeline.joblib")
    assert (again.predict_proba(x) == pipeline.predict_proba(x)).all()
    pipeline[-1].save(tmp_path / "model")
    scaled = pipeline[0].transform(x).astype(np.float32)
    assert ns3l.load_model(tmp_path / "model").probabilities(scaled) == pytest.approx(
        pipeline.predict_proba(x), abs=1e-6
    )


@pytest.mark.slow
def test_processes_give_what_one_process_gives(blobs):
    x, _, y = blobs
    pipeline = make_pipeline(StandardScaler(), small())
    alone, together = (cross_val_score(pipeline, x, y, cv=3, n_jobs=jobs) for jobs in (1, 2))
    assert (alone == together).all()


def test_a_run_that_is_lost_says_so(blobs):
    x, _, y = blobs
    with pytest.raises(ns3l.errors.RunError, match="no longer finite"):
        small(learning_rate=1e38).fit(x, y)


def test_preprocessing_is_what_was_asked_for_and_classes_keep_their_type(blobs):
    x, _, y = blobs
    model = small(preprocessing="none", steps=1).fit(x, y.astype(np.float32))
    assert model.recipe_.preprocessing.name == "none"
    assert model.predict(x).dtype == np.float32
