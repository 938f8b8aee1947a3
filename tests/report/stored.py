"""Small run folders with known numbers: two methods by three seeds, and a grid of two by three.

`python tests/report/stored.py` writes them again, with the golden report beside them.
"""

import json
import shutil
from pathlib import Path

HERE = Path(__file__).parent
RUNS = HERE / "stored"
GOLDEN = HERE / "golden"
CLASSES = ["T-shirt", "trouser", "bag"]
STEPS = 400
FINAL = {"supervised": (17.4, 17.1, 17.3), "ns3l": (16.6, 16.2, 16.9)}
GRID = {(0.03, 0.3): (16.9, 17.0), (0.03, 1.0): (16.4, 16.6), (0.03, 3.0): (16.8, 16.5),
        (0.05, 0.3): (17.0, 17.1), (0.05, 1.0): (16.5, 16.9), (0.05, 3.0): (17.2, 17.6)}  # fmt: skip
ENVIRONMENT = {
    "ns3l": "0.1.0",
    "python": "3.11.7",
    "packages": {"torch": "2.13.0", "numpy": "2.4.6"},
    "cpu": "a small processor",
    "threads": 2,
    "gpus": [],
    "cuda": None,
    "git": {"commit": "0123abc", "dirty": False},
}


def recipe(method: str, threshold: float = 0.04, weight: float = 1.0) -> dict:
    """A recipe as a run folder holds it, with the fields that the report looks at."""
    terms = {"supervised": {"weight": 1.0, "term": {"kind": "cross_entropy"}}}
    if "ns3l" in method:
        chooser = {"kind": "threshold", "threshold": threshold}
        terms["ns3l"] = {"weight": weight, "term": {"kind": "ns3l", "passes": 2, "negatives": chooser}}
    return {
        "method": method,
        "data": "fashion-mnist",
        "classes": len(CLASSES),
        "terms": terms,
        "optimizer": {"kind": "adam", "lr": 0.001},
        "steps": STEPS,
        "evaluation": {"every": 100, "rule": "last"},
        "split": {"labels": 2000, "validation": 1000},
        "protocol": "fashion-mnist",
        "schedule": 1.0,
    }


def metrics(method: str, final: float, seed: int) -> list[dict]:
    """Errors that fall to their last value, and negatives where the method has them."""
    lines = []
    for step in range(100, STEPS + 1, 100):
        above = 0.02 * (STEPS - step) + 0.1 * seed * (step < STEPS)
        line = {"step": step, "seconds": step / 50, "test_error": round(final + above, 3)}
        line |= {"validation_error": round(final + above - 0.5, 3), "steps_per_second": 50.0, "memory_mb": 120.0}
        if "ns3l" in method:
            rows = round(0.4 - step / 1000, 3)
            line["negatives"] = {
                "ns3l": {"marked": round(0.2 + step / 1000, 3), "rows_without": rows, "true_marked": 0.01}
            }
        lines.append(line)
    return lines


def evaluation(final: float) -> dict:
    """A final evaluation with three classes and two bins."""
    right, wrong = round(100 - final), round(final)
    confusion = [[right, wrong, 0], [0, right, wrong], [wrong, 0, right]]
    bins = [{"confidence": 0.6, "accuracy": 0.55, "count": 30}, {"confidence": 0.9, "accuracy": 0.85, "count": 70}]
    return {
        "error": final,
        "top_5_error": 0.0,
        "per_class_error": [final - 1, final, final + 1],
        "confusion": confusion,
        "macro_f1": 0.83,
        "nll": 0.5,
        "brier": 0.25,
        "ece": 0.05,
        "reliability": bins,
    }


def result(method: str, final: float, seed: int, status: str = "complete", reason: str | None = None) -> dict:
    """The result of a run."""
    errors = {"last": final, "best_validation": round(final + 0.05, 3), "median_20": round(final + 0.1, 3)}
    return {
        "status": status,
        "step": STEPS,
        "steps": STEPS,
        "seed": seed,
        "method": method,
        "data": "fashion-mnist",
        "labels": 2000,
        "test_error": errors,
        "validation_error": {name: round(value - 0.5, 3) for name, value in errors.items()},
        "rule": "last",
        "evaluation_interval": 100,
        "schedule": 1.0,
        "evaluation": {"test": evaluation(final)},
        "seconds": 8.0,
        "steps_per_second": 50.0,
        "memory_mb": 120.0,
        "hardware": "a small processor, 2 threads",
        "reason": reason,
    }


def write(folder: Path, recipe: dict, result: dict | None, lines: list[dict], seed: int) -> Path:
    """One run folder."""
    folder.mkdir(parents=True, exist_ok=True)
    split = {"hash": f"split-{seed}", "seed": seed, "labeled": [seed, seed + 1]}
    files = {"recipe": recipe, "split": split, "environment": ENVIRONMENT, "model": {"classes": CLASSES}}
    for name, value in (files | ({"result": result} if result else {})).items():
        (folder / f"{name}.json").write_text(json.dumps(value) + "\n", encoding="utf-8")
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return folder


def write_all(root: Path) -> Path:
    """All the stored runs below a folder."""
    for method, finals in FINAL.items():
        for seed, final in enumerate(finals):
            folder = root / "methods" / method / "default" / f"seed-{seed}"
            write(folder, recipe(method), result(method, final, seed), metrics(method, final, seed), seed)
    for (threshold, weight), finals in GRID.items():
        for seed, final in enumerate(finals):
            folder = root / "grid" / f"threshold={threshold},weight={weight}" / f"seed-{seed}"
            made = recipe("ns3l", threshold, weight)
            write(folder, made, result("ns3l", final, seed), metrics("ns3l", final, seed), seed)
    return root


if __name__ == "__main__":
    import ns3l.report.command
    from ns3l.report import report, to_csv, to_latex, to_markdown

    ns3l.report.command._default = lambda *_: None

    shutil.rmtree(RUNS, ignore_errors=True)
    made = report(write_all(RUNS))
    GOLDEN.mkdir(exist_ok=True)
    outputs = {"report.md": to_markdown(made), "results.csv": to_csv(made), "report.tex": to_latex(made)}
    for name, text in outputs.items():
        (GOLDEN / name).write_text(text, encoding="utf-8")
