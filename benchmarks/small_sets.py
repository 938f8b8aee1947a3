"""Small public sets with few labels: this estimator beside scikit-learn's classifiers.

    python benchmarks/small_sets.py --seeds 10 --workers 14 --root FOLDER --out small_sets.json --table small_sets.md

Six sets that come with scikit-learn or are made by it, and Fashion-MNIST where `--root` says where it lies; 3 to 10
labels a class, all other training rows unlabeled. The defaults of `ns3l.recipes.own` were chosen on the seeds from 100
on; the seeds reported start at 0. Every classifier is given raw, standardised and 0-1-scaled rows. The first table
shows ours on raw rows, and the others in the scaling that is best for them by the test rows (which favors them); the
second shows ours by scaling. Each (set, seed) is a job of its own on one thread.
"""

import argparse
import json
import multiprocessing
import os
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache, partial
from pathlib import Path

import numpy as np

import ns3l
from ns3l.environment import environment, hardware
from ns3l.record import write_json

OURS = ("supervised", "pl", "ns3l", "vat", "vat+ns3l")
SCALED = ("supervised", "ns3l")
"""Those of ours that are also given scaled rows."""
FASHION, POOL = "Fashion-MNIST", 5000
Rows = tuple[np.ndarray, np.ndarray]
Errors = dict[str, float]
Found = dict[str, dict[int, Errors]]


def digits() -> Rows:
    """1,797 handwritten digits, 64 gray levels, 10 classes."""
    from sklearn.datasets import load_digits

    return load_digits(return_X_y=True)


def cancer() -> Rows:
    """569 tumors, 30 measures of very different scale, 2 classes."""
    from sklearn.datasets import load_breast_cancer

    return load_breast_cancer(return_X_y=True)


def wine() -> Rows:
    """178 wines, 13 measures, 3 classes."""
    from sklearn.datasets import load_wine

    return load_wine(return_X_y=True)


def moons() -> Rows:
    """1,500 points of two moons."""
    from sklearn.datasets import make_moons

    return make_moons(1500, noise=0.1, random_state=0)


def covers() -> Rows:
    """2,000 rows in the form of forest covers: 54 features, 10 of which tell something, 7 classes."""
    from sklearn.datasets import make_classification

    return make_classification(
        2000, 54, n_informative=10, n_redundant=4, n_classes=7, n_clusters_per_class=1, class_sep=1.5, random_state=0
    )


def texts() -> Rows:
    """1,500 word counts over 3,000 words in 5 topics, weighted (tf-idf) and reduced to 100 dimensions."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfTransformer

    rng = np.random.default_rng(0)
    common = rng.dirichlet(np.full(3000, 0.1))
    topics = 0.8 * common + 0.2 * rng.dirichlet(np.full(3000, 0.05), 5)
    y = rng.integers(0, 5, 1500)
    counts = np.stack([rng.multinomial(60, topics[k]) for k in y])
    return TruncatedSVD(100, random_state=0).fit_transform(TfidfTransformer().fit_transform(counts)), y


def fashion(root: Path) -> Rows:
    """70,000 images of clothes, 28 x 28 gray levels, 10 classes: the training images, then the test images."""
    data = ns3l.load("fashion-mnist", root)
    assert data.x_test is not None and data.y_test is not None
    return np.concatenate([data.x, data.x_test])[..., 0], np.concatenate([data.y, data.y_test])


SETS: dict[str, tuple[Callable[[], Rows], int]] = {
    "digits": (digits, 3),
    "breast cancer": (cancer, 5),
    "wine": (wine, 3),
    "two moons": (moons, 3),
    "covers (made)": (covers, 10),
    "texts (made)": (texts, 5),
}


@cache
def made(name: str) -> Rows:
    """All rows of a set and their classes."""
    return SETS[name][0]()


def part(name: str, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training rows, their labels (-1 for most), test rows and their labels."""
    per_class, (x, y) = SETS[name][1], made(name)
    rng = np.random.default_rng(seed)
    if name == FASHION:
        train, test = rng.permutation(60_000)[:POOL], np.arange(60_000, 70_000)
    else:
        order = rng.permutation(len(y))
        train, test = order[: int(0.75 * len(y))], order[int(0.75 * len(y)) :]
    labels = np.full(len(train), -1)
    for k in np.unique(y):
        labels[rng.choice(np.flatnonzero(y[train] == k), per_class, replace=False)] = k
    return x[train], labels, x[test], y[test]


def scaled(x: np.ndarray, test: np.ndarray) -> dict[str, Rows]:
    """The rows raw, standardised, and with every feature in 0..1."""
    from sklearn.preprocessing import MinMaxScaler, StandardScaler

    fitted = {"standardised": StandardScaler().fit(x), "0-1": MinMaxScaler().fit(x)}
    return {"raw": (x, test)} | {name: (s.transform(x), s.transform(test)) for name, s in fitted.items()}


def peers() -> dict[str, Callable[[], object]]:
    """scikit-learn's classifiers: two supervised ones, self-training, label spreading."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier
    from sklearn.svm import SVC

    return {
        "SVC": lambda: SVC(C=10),
        "logistic": lambda: LogisticRegression(max_iter=2000),
        "SelfTraining(logistic)": lambda: SelfTrainingClassifier(LogisticRegression(max_iter=2000)),
        "LabelSpreading": lambda: LabelSpreading(kernel="knn", n_neighbors=7),
        "LabelSpreading (rbf)": lambda: LabelSpreading(kernel="rbf"),
    }


def peer_errors(name: str, seed: int) -> Errors:
    """Error in per cent of every peer on every scaling."""
    x, labels, test, truth = part(name, seed)
    errors = {}
    for scale, (rows, test_rows) in scaled(x.reshape(len(x), -1), test.reshape(len(test), -1)).items():
        for peer, make in peers().items():
            known = labels >= 0 if peer in ("SVC", "logistic") else np.ones(len(labels), bool)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                predicted = make().fit(rows[known], labels[known]).predict(test_rows)  # type: ignore[attr-defined]
            errors[f"{peer}, {scale}"] = 100 * float((predicted != truth).mean())
    return errors


def our_errors(name: str, seed: int) -> Errors:
    """Error in per cent of every method of ours on raw rows, of some on the other scalings; images stay images."""
    x, labels, test, truth = part(name, seed)
    errors = {}
    for scale, (rows, test_rows) in (scaled(x, test) if x.ndim == 2 else {"raw": (x, test)}).items():
        for method in OURS if scale == "raw" else SCALED:
            model = ns3l.SemiSupervisedClassifier(method, random_state=seed, device="cpu").fit(rows, labels)
            errors[f"{method}, {scale}"] = 100 * float((model.predict(test_rows) != truth).mean())
    return errors


def job(name: str, seed: int, root: Path | None) -> tuple[str, int, Errors, float]:
    """All errors on one split of one set, and the seconds that they took."""
    begun = time.monotonic()
    offer(root)
    errors = our_errors(name, seed) | peer_errors(name, seed)
    return name, seed, errors, time.monotonic() - begun


def offer(root: Path | None) -> None:
    """Fashion-MNIST among the sets, where it is on disk."""
    if root is not None:
        SETS[FASHION] = (partial(fashion, root), 10)


def measured(seeds: range, workers: int, root: Path | None, keep: Callable[[Found], None]) -> Found:
    """Errors by set, seed and classifier, the longest jobs first; handed to `keep` after each."""
    found: Found = {name: {} for name in SETS}
    jobs = [(name, seed) for name in sorted(SETS, key=(FASHION, "digits").__contains__, reverse=True) for seed in seeds]
    os.environ["OMP_NUM_THREADS"] = "1"  # of the processes that are begun here
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        for done in as_completed([pool.submit(job, name, seed, root) for name, seed in jobs]):
            name, seed, errors, seconds = done.result()
            found[name][seed] = errors
            print(f"{name}, seed {seed}: {seconds:.0f} s", flush=True)
            keep(found)
    return found


def shown(found: Found) -> str:
    """Both tables in Markdown: error in per cent, mean ± standard deviation; the lowest mean of a set in bold."""
    ours = [f"{method}, raw" for method in OURS]
    by_scale = [f"{method}, {scale}" for method in SCALED for scale in ("raw", "standardised", "0-1")]
    return "\n\n".join([_table(found, [*ours, *peers()], [*OURS, *peers()]), _table(found, by_scale, by_scale)])


def _table(found: Found, columns: list[str], titles: list[str]) -> str:
    lines = ["| set (labels a class, seeds) | " + " | ".join(titles) + " |", "|---" * (len(columns) + 1) + "|"]
    for name, by_seed in found.items():
        best = [_best(list(by_seed.values()), column) for column in columns]
        if any(best):
            lowest = min(np.mean(values) for values in best if values)
            cells = " | ".join(_cell(values, lowest) for values in best)
            lines.append(f"| {name} ({SETS[name][1]}, {len(by_seed)}) | {cells} |")
    return "\n".join(lines)


def _best(errors: list[Errors], column: str) -> list[float]:
    """The errors of a column by seed; where it names no scaling, in the one of the lowest mean."""
    keys = [key for key in (errors[0] if errors else ()) if column in (key, key.split(",")[0])]
    return min(([one[key] for one in errors] for key in keys), key=np.mean, default=[])


def _cell(values: list[float], lowest: float) -> str:
    if not values:
        return "–"
    text = f"{np.mean(values):.1f} ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else f"{values[0]:.1f}"
    return f"**{text}**" if np.mean(values) == lowest else text


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--sets", help="only these, by name, separated by commas")
    parser.add_argument("--workers", type=int, default=2, help="jobs side by side")
    parser.add_argument("--root", type=Path, help="where Fashion-MNIST lies, for a row of its own")
    parser.add_argument("--out", type=Path, help="a JSON file: every error, and what it was measured with")
    parser.add_argument("--table", type=Path, help="a Markdown file")
    return parser.parse_args()


def main() -> None:
    """Measure, print the tables, write them and the numbers."""
    given, begun = _arguments(), time.monotonic()
    offer(given.root)
    for name in set(SETS) - set(given.sets.split(",") if given.sets else SETS):
        del SETS[name]
    seeds = range(given.first, given.first + given.seeds)

    def keep(found: Found) -> None:
        if given.out:
            about = {"seeds": list(seeds), "labels_per_class": {name: count for name, (_, count) in SETS.items()}}
            about |= {"seconds": time.monotonic() - begun, "hardware": hardware(), "environment": environment()}
            given.out.parent.mkdir(parents=True, exist_ok=True)
            write_json(
                given.out, json.loads(json.dumps(about | {"workers": given.workers, "error": found}, default=str))
            )
        if given.table:
            given.table.parent.mkdir(parents=True, exist_ok=True)
            given.table.write_text(f"{shown(found)}\n", encoding="utf-8")

    print(shown(measured(seeds, given.workers, given.root, keep)))


if __name__ == "__main__":
    main()
