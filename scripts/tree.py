"""Write the annotated tree of README.md from the first docstring line of each module (`make tree`)."""

import argparse
import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "ns3l"
BEGIN, END = "<!-- tree: written by `make tree` -->", "<!-- end of tree -->"
BESIDE = {
    "tests/": "mirrors src/ns3l; tests/terms/test_contract.py runs over every entry of TERMS",
    "benchmarks/": "speed, each file with its own command",
    "docs/": "the documentation (`make docs`)",
    "results/": "what studies found, as small JSON, for `ns3l report` and `make results`",
    "scripts/": "this tree, the pages of results, the pinned dependencies, the bill of materials",
}


def summary(module: Path) -> str:
    """The first line of a module's docstring, without its full stop."""
    text = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0].rstrip(".")


def rows(folder: Path, depth: int = 1) -> Iterator[tuple[str, str]]:
    """Every module and package below `folder`, indented, each with its summary."""
    indent = "  " * depth
    modules = sorted(folder.glob("*.py"), key=lambda path: (path.name != "__init__.py", path.name))
    for module in modules:
        if depth == 1 or module.name != "__init__.py":
            yield indent + module.name, summary(module)
    for package in sorted(path.parent for path in folder.glob("*/__init__.py")):
        yield f"{indent}{package.name}/", summary(package / "__init__.py")
        yield from rows(package, depth + 1)


def tree() -> str:
    """The tree as it belongs between the two marks."""
    every = [("src/ns3l/", ""), *rows(PACKAGE), *BESIDE.items()]
    width = max(len(name) for name, _ in every) + 2
    lines = [f"{name:<{width}}{text}".rstrip() for name, text in every]
    return "\n".join([BEGIN, "```", *lines, "```", END])


def replaced(readme: str) -> str:
    """The README with the tree as it is now."""
    before, mark, rest = readme.partition(BEGIN)
    _, closing, after = rest.partition(END)
    if not mark or not closing:
        raise SystemExit(f"README.md needs a line {BEGIN!r} and, below it, a line {END!r}: the tree goes between them.")
    return before + tree() + after


def main() -> None:
    """Write the tree, or with --check say whether it is the real one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where the tree differs")
    path = ROOT / "README.md"
    now = path.read_text(encoding="utf-8")
    right = replaced(now)
    if parser.parse_args().check:
        sys.exit("README.md's tree is not the real one: run `make tree`." if now != right else 0)
    path.write_text(right, encoding="utf-8")


if __name__ == "__main__":
    main()
