"""The house rules, checked: everything registered, documented, small, light to import, and free of fetch addresses."""

import ast
import inspect
import pkgutil
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from scripts.tree import tree

import ns3l
import ns3l.terms
from ns3l.objective import Forward

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "ns3l"
MODULES = sorted(PACKAGE.rglob("*.py"))
FORBIDDEN = {"utils", "util", "common", "helpers", "helper", "base", "manager", "ssl"}
HEAVY = {
    "sklearn",
    "scipy",
    "pandas",
    "pyarrow",
    "matplotlib",
    "PIL",
    "typer",
    "rich",
    "jinja2",
    "pooch",
    "ray",
    "onnx",
    "optuna",
}
FUNCTION_LINES, MEDIAN_LINES, FILE_LINES = 50, 10, 400
HOSTS = [
    ".".join(parts)
    for parts in [
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("download", "pytorch", "org"),
        ("anaconda", "org"),
        ("registry", "npmjs", "org"),
        ("jsdelivr", "net"),
        ("unpkg", "com"),
        ("deb", "debian", "org"),
        ("crates", "io"),
    ]
]
Function = ast.FunctionDef | ast.AsyncFunctionDef


def parsed() -> Iterator[tuple[str, ast.Module]]:
    """Every module of the package by its path, parsed."""
    for path in MODULES:
        yield path.relative_to(PACKAGE).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def functions() -> Iterator[tuple[str, int]]:
    """Every function of the package with its length from `def` to its last line."""
    for path, module in parsed():
        for node in ast.walk(module):
            if isinstance(node, Function):
                yield f"{path}:{node.lineno} {node.name}", node.end_lineno - node.lineno + 1


def inherits_docstring(node: ast.ClassDef, method: str, classes: dict[str, ast.ClassDef]) -> bool:
    """Whether an ancestor inside the package documents this method already."""
    ancestors = [classes[base.id] for base in node.bases if isinstance(base, ast.Name) and base.id in classes]
    return any(
        any(isinstance(item, Function) and item.name == method and ast.get_docstring(item) for item in ancestor.body)
        or inherits_docstring(ancestor, method, classes)
        for ancestor in ancestors
    )


def undocumented(path: str, module: ast.Module, classes: dict[str, ast.ClassDef]) -> Iterator[str]:
    """The public names of one module that have no docstring, the module itself first."""
    if not ast.get_docstring(module):
        yield path
    public = [node for node in module.body if isinstance(node, Function | ast.ClassDef) and node.name[0] != "_"]
    yield from (f"{path}:{node.lineno} {node.name}" for node in public if not ast.get_docstring(node))
    for owner in (node for node in public if isinstance(node, ast.ClassDef)):
        methods = [item for item in owner.body if isinstance(item, Function) and item.name[0] != "_"]
        for item in methods:
            if not (ast.get_docstring(item) or is_variant(item) or inherits_docstring(owner, item.name, classes)):
                yield f"{path}:{item.lineno} {owner.name}.{item.name}"


def is_variant(item: Function) -> bool:
    """Whether a method only restates a documented one: an overload, or the setter of a property."""
    names = [ast.unparse(decorator).rpartition(".")[2] for decorator in item.decorator_list]
    return bool({"overload", "setter"} & set(names))


def test_every_file_of_terms_is_registered():
    files = {module.name for module in pkgutil.iter_modules(ns3l.terms.__path__, "ns3l.terms.")}
    registered = {inspect.getmodule(term).__name__ for term in getattr(ns3l.terms, "TERMS", {}).values()}
    assert not files - registered, "add the class in these files to TERMS in src/ns3l/terms/__init__.py"


def test_every_public_name_is_documented():
    classes = {n.name: n for _, module in parsed() for n in ast.walk(module) if isinstance(n, ast.ClassDef)}
    missing = [name for path, module in parsed() for name in undocumented(path, module, classes)]
    assert not missing, "these need a docstring:\n" + "\n".join(missing)


def test_readme_tree_is_the_real_one():
    real = tree() in (ROOT / "README.md").read_text(encoding="utf-8")
    assert real, "run `make tree`"


def test_no_function_is_long():
    long = [f"{name}: {lines} lines" for name, lines in functions() if lines > FUNCTION_LINES]
    assert not long, f"functions over {FUNCTION_LINES} lines:\n" + "\n".join(long)


def test_functions_are_short_as_a_rule():
    assert statistics.median(lines for _, lines in functions()) <= MEDIAN_LINES


def test_no_file_is_long():
    lengths = {path.relative_to(PACKAGE).as_posix(): len(path.read_text().splitlines()) for path in MODULES}
    assert not {path: lines for path, lines in lengths.items() if lines > FILE_LINES}


def test_no_module_has_an_empty_name():
    assert not [path for path in MODULES if {path.stem, path.parent.name} & FORBIDDEN]


def test_import_is_light():
    code = (
        "import sys, time, torch\n"
        "before, start = set(sys.modules), time.process_time()\n"
        "import ns3l\n"
        "seconds = time.process_time() - start\n"
        "print(seconds, *sorted({name.partition('.')[0] for name in set(sys.modules) - before}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    seconds, *loaded = done.stdout.split()
    assert not HEAVY & set(loaded), "import these inside the functions that use them"
    assert float(seconds) < 1.0, "`import ns3l` takes over a second beyond torch"


def tracked() -> list[Path]:
    """Every file that git tracks."""
    try:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs a git checkout")
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def test_no_file_names_a_package_registry():
    found = []
    for path in tracked():
        text = path.read_bytes().decode("utf-8", errors="ignore").lower()
        found += [f"{path.relative_to(ROOT)}: {host}" for host in HOSTS if host in text]
    assert not found, "leave the choice of the package index to the reader's own settings:\n" + "\n".join(found)


def test_the_term_of_contributing_works():
    block = (ROOT / "CONTRIBUTING.md").read_text().split("```python\n")[1].split("```")[0]
    names = {"__name__": __name__}
    exec(compile(block, "CONTRIBUTING.md", "exec"), names)
    logits = torch.tensor([[0.0, 0.0], [20.0, -20.0]], requires_grad=True)
    forward = Forward(batch=None, logits={"unlabeled": logits}, draw=None)
    loss = names["Confidence"]()(forward)
    assert loss.item() == pytest.approx(0.25)
