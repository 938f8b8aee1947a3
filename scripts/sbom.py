"""Write a software bill of materials (CycloneDX 1.6 JSON) of ns3l and all it needs, from what is installed here.

    python scripts/sbom.py [--extra data ...] [--out FILE]

Nothing is fetched and nothing about the machine is written: the same environment gives the same bytes.
"""

import argparse
import json
import re
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def purl(name: str, version: str) -> str:
    """The package URL by which CycloneDX names a Python distribution."""
    return f"pkg:pypi/{name}@{version.replace('+', '%2B')}"


def needed(name: str, extras: frozenset[str]) -> list[tuple[str, frozenset[str]]]:
    """What an installed distribution asks for on this machine, with these extras."""
    parsed = [Requirement(line) for line in metadata.requires(name) or []]
    wanted = [r for r in parsed if not r.marker or any(r.marker.evaluate({"extra": e}) for e in extras | {""})]
    return [(canonicalize_name(r.name), frozenset(r.extras)) for r in wanted]


def reached(root: str, extras: frozenset[str]) -> dict[str, set[str]]:
    """Every installed distribution that `root` needs, directly or not, and what each of them needs in turn."""
    graph: dict[str, set[str]] = {}
    waiting, seen = [(root, extras)], set()
    while waiting:
        name, asked = waiting.pop()
        if (name, asked) in seen or not installed(name):
            continue
        seen.add((name, asked))
        follow = [(other, more) for other, more in needed(name, asked) if installed(other)]
        graph.setdefault(name, set()).update(other for other, _ in follow if other != name)
        waiting += follow
    return graph


def installed(name: str) -> bool:
    """Whether a distribution is here (optional ones may not be)."""
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def licenses(name: str) -> list[dict[str, object]]:
    """The license that a distribution declares: an SPDX expression, or the first line of its old free-text field."""
    told = metadata.metadata(name)
    if "License-Expression" in told:
        return [{"expression": told["License-Expression"]}]
    lines = told["License"].strip().splitlines() if "License" in told else []
    classified = [c.rpartition(" :: ")[2] for c in told.get_all("Classifier", []) if c.startswith("License ::")]
    names = classified or lines[:1]
    return [{"license": {"name": re.sub(r"\s+", " ", text)}} for text in names]


def component(name: str, kind: str = "library") -> dict[str, object]:
    """One entry of the bill."""
    version = metadata.version(name)
    address = purl(name, version)
    entry = {"type": kind, "bom-ref": address, "name": name, "version": version, "purl": address}
    found = licenses(name)
    return {**entry, "licenses": found} if found else {**entry}


def bill(root: str, extras: frozenset[str]) -> dict[str, object]:
    """The whole bill: the root, its components and who depends on whom."""
    graph = reached(root, extras)
    names = {name: purl(name, metadata.version(name)) for name in graph}
    edges = [{"ref": names[name], "dependsOn": sorted(names[o] for o in graph[name])} for name in sorted(graph)]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": component(root, "application")},
        "components": [component(name) for name in sorted(graph) if name != root],
        "dependencies": edges,
    }


def main() -> None:
    """Print the bill, or write it to a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--extra", action="append", default=[], help="an optional part of ns3l to include")
    parser.add_argument("--out", type=Path, help="the file to write (default: standard output)")
    asked = parser.parse_args()
    text = json.dumps(bill("ns3l", frozenset(asked.extra)), indent=2)
    if asked.out is None:
        print(text)
        return
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(text + "\n", encoding="utf-8")
    print(f"{asked.out}: {len(json.loads(text)['components'])} components")


if __name__ == "__main__":
    main()
