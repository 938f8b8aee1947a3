"""Every code block of README, CONTRIBUTING and docs/ is run, page by page, in one namespace and one folder.

A comment on the line above a block changes that: `<!-- run: slow -->` and `<!-- run: external -->` mark it like a test,
`<!-- run: file NAME -->` writes it into a file of the folder, `<!-- run: not, REASON -->` leaves it out.
"""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest

from ns3l.cli import main

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(
    r"^(?P<indent> *)(?:<!-- run: (?P<run>.+?) -->\n\s*)?```(?P<language>[\w-]*)[^\n]*\n(?P<code>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
RUNNABLE = ("python", "sh")


@dataclass(frozen=True)
class Block:
    """One fenced block: where it is, what it is, and what the comment above it says."""

    page: Path
    line: int
    language: str
    run: str
    code: str

    @property
    def name(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = []
    for match in BLOCK.finditer(text):
        line = text.count("\n", 0, match.start("code"))
        indent = len(match["indent"])
        code = "".join(row[indent:] or "\n" for row in match["code"].splitlines(keepends=True))
        found.append(Block(page, line, match["language"], match["run"] or "", code))
    return found


def chosen(page: Path, mark: str) -> list[Block]:
    """What a test with this mark runs: blocks without a mark too, since later blocks build on earlier ones."""
    return [b for b in blocks(page) if b.run.split(" ")[0] in ("", "file", mark)]


def pages(mark: str) -> list[Path]:
    return [page for page in PAGES if any(b.run == mark and b.language in RUNNABLE for b in blocks(page))]


def commands(code: str) -> list[list[str]]:
    joined = code.replace("\\\n", " ")
    return [words for line in joined.splitlines() if (words := shlex.split(line, comments=True))]


def run_shell(block: Block) -> None:
    for words in commands(block.code):
        assert words[0] == "ns3l", f"{block.name}: only ns3l commands are run, mark this block `not`: {words}"
        try:
            main(words[1:])
        except SystemExit as end:
            assert not end.code, f"{block.name}: {shlex.join(words)} ended with {end.code}"


def run_page(page: Path, mark: str) -> None:
    names: dict[str, object] = {"__name__": __name__}
    for block in chosen(page, mark):
        if block.run.startswith("file "):
            target = Path(block.run.removeprefix("file "))
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.code, encoding="utf-8")
        elif block.language == "python":
            exec(compile(block.code, block.name, "exec"), names)
        elif block.language == "sh":
            run_shell(block)


def ids(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", pages(""), ids=ids)
def test_the_blocks_of_a_page_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_page(page, "")


@pytest.mark.slow
@pytest.mark.parametrize("page", pages("slow"), ids=ids)
def test_the_slow_blocks_of_a_page_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_page(page, "slow")


@pytest.mark.external
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("page", pages("external"), ids=ids)
def test_the_blocks_of_a_page_that_need_other_packages_run(page, tmp_path, monkeypatch):
    pytest.importorskip("lightning")
    pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    run_page(page, "external")


def test_a_block_that_is_not_run_says_why():
    for page in PAGES:
        for block in blocks(page):
            known = block.run in ("", "slow", "external") or re.match(r"file \S+$|not, \S+", block.run)
            assert known, f"{block.name}: {block.run!r} is not understood"
            assert block.language or page.name == "README.md", f"{block.name}: name the language, or `text`"
