"""The reference names every part of the package, and the site loads nothing from elsewhere."""

import re
from pathlib import Path

import pytest

import ns3l

ROOT = Path(__file__).resolve().parent.parent.parent
NAMED = set(
    re.findall(r"^::: (ns3l[\w.]*)", "\n".join(p.read_text() for p in (ROOT / "docs/reference").glob("*.md")), re.M)
)
PROGRAM = {"__init__", "__main__", "cli"}
PARTS = sorted(
    {path.stem for path in (ROOT / "src/ns3l").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
)


@pytest.mark.parametrize("part", [part for part in PARTS if part not in PROGRAM])
def test_every_part_is_in_the_reference(part):
    found = any(name == f"ns3l.{part}" or name.startswith(f"ns3l.{part}.") for name in NAMED)
    assert found, f"add `::: ns3l.{part}` to a page of docs/reference"


def test_the_public_names_are_in_the_reference():
    functions = {f"ns3l.{name}" for name in ns3l.__all__}
    inside = {"ns3l.Dataset", "ns3l.Objective", "ns3l.Recipe", "ns3l.Split", "ns3l.SplitRequest", "ns3l.make_split"}
    assert functions - inside - {"ns3l.recipe"} <= NAMED
    assert {"ns3l.data.dataset", "ns3l.objective", "ns3l.recipe", "ns3l.split", "ns3l.recipes.recipe"} <= NAMED


def test_no_page_loads_anything_from_elsewhere():
    for page in sorted((ROOT / "docs").rglob("*.md")):
        assert not re.search(r"<(script|link|img|iframe)[^>]+https?:|!\[[^]]*\]\(https?:", page.read_text()), page
    settings = (ROOT / "mkdocs.yml").read_text()
    assert "font: false" in settings and "http" not in settings
