"""Small public sets with few labels: this estimator beside scikit-learn's classifiers.

    python benchmarks/small_sets.py --seeds 10 --out results/small_sets.json --table results/small_sets.md

Six sets that come with scikit-learn or are made by it, 3 to 10 labels a class, all other training rows unlabeled.
The defaults of `ns3l.recipes.own` were chosen on digits, and on the seeds from 100 on; the seeds reported start at 0.
Every classifier but ours is given raw, standardised and 0-1-scaled rows, and the table shows its best scaling by the
test rows (which favors it); ours is given raw rows.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

import ns3l
from ns3l.environment import environment, hardware
from ns3l.record import write_json

OURS = ("supervised", "pl", "ns3l", "vat", "vat+ns3l")
Rows = tuple[np.ndarray, np.ndarray]


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


SETS: dict[str, tuple[Callable[[], Rows], int]] = {
    "digits": (digits, 3),
    "breast cancer": (cancer, 5),
    "wine": (wine, 3),
    "two moons": (moons, 3),
    "covers (made)": (covers, 10),
    "texts (made)": (texts, 5),
}


def part(name: str, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training rows, their labels (-1 for most), test rows and their labels."""
    make, per_class = SETS[name]
    x, y = make()
    rng = np.random.default_rng(seed)
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


def peer_errors(name: str, seed: int) -> dict[str, float]:
    """Error in per cent of every peer on every scaling."""
    x, labels, test, truth = part(name, seed)
    errors = {}
    for scale, (rows, test_rows) in scaled(x, test).items():
        for peer, make in peers().items():
            known = labels >= 0 if peer in ("SVC", "logistic") else np.ones(len(labels), bool)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                predicted = make().fit(rows[known], labels[known]).predict(test_rows)  # type: ignore[attr-defined]
            errors[f"{peer}, {scale}"] = 100 * float((predicted != truth).mean())
    return errors


def our_errors(name: str, seed: int, **settings: object) -> dict[str, float]:
    """Error in per cent of every method of ours, on raw rows."""
    x, labels, test, truth = part(name, seed)
    errors = {}
    for method in OURS:
        model = ns3l.SemiSupervisedClassifier(method, random_state=seed, device="cpu", **settings).fit(x, labels)
        errors[method] = 100 * float((model.predict(test) != truth).mean())
    return errors


def measured(seeds: range, keep: Callable[[dict[str, dict[str, list[float]]], list[int]], None]) -> None:
    """Errors by set and classifier, one a seed; handed to `keep` after each seed."""
    found: dict[str, dict[str, list[float]]] = {name: {} for name in SETS}
    for seed in seeds:
        begun = time.monotonic()
        for name in SETS:
            for classifier, error in (our_errors(name, seed) | peer_errors(name, seed)).items():
                found[name].setdefault(classifier, []).append(error)
        print(f"seed {seed}: {time.monotonic() - begun:.0f} s", flush=True)
        keep(found, list(range(seeds.start, seed + 1)))


def shown(found: dict[str, dict[str, list[float]]]) -> str:
    """The table in Markdown: error in per cent, mean ± standard deviation; the lowest mean of a set in bold."""
    columns = [*OURS, *peers()]
    lines = ["| set (labels a class) | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for name, errors in found.items():
        best = {column: _best(errors, column) for column in columns}
        lowest = min(np.mean(values) for values in best.values())
        cells = [_cell(values, lowest) for values in best.values()]
        lines.append(f"| {name} ({SETS[name][1]}) | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _best(errors: dict[str, list[float]], column: str) -> list[float]:
    return min((values for key, values in errors.items() if key.split(",")[0] == column), key=np.mean)


def _cell(values: list[float], lowest: float) -> str:
    text = f"{np.mean(values):.1f} ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else f"{values[0]:.1f}"
    return f"**{text}**" if np.mean(values) == lowest else text


def main() -> None:
    """Measure, print the table, write it and the numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path)
    given = parser.parse_args()
    begun = time.monotonic()

    def keep(found: dict[str, dict[str, list[float]]], seeds: list[int]) -> None:
        print(shown(found), flush=True)
        if given.out:
            about = {"seeds": seeds, "labels_per_class": {name: count for name, (_, count) in SETS.items()}}
            about |= {"seconds": time.monotonic() - begun, "hardware": hardware(), "environment": environment()}
            given.out.parent.mkdir(parents=True, exist_ok=True)
            write_json(given.out, json.loads(json.dumps(about | {"error": found}, default=str)))
        if given.table:
            given.table.write_text(f"{len(seeds)} seeds.\n\n{shown(found)}\n", encoding="utf-8")

    measured(range(given.first, given.first + given.seeds), keep)


if __name__ == "__main__":
    main()
