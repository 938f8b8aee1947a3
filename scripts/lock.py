"""Write the pinned dependencies: constraints.txt, requirements/locked.txt (hashes), external.txt and tools.txt.

`make lock` runs it. Pins that still fit are kept; `make lock UPGRADE=1` moves all of them to the newest versions.
The result holds for every platform and every supported Python, and names no address to fetch from.
"""

import argparse
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements"
APART = re.compile(r"(torch|triton|cuda-[a-z]+|nvidia-[a-z0-9-]+)==")
HEADER = "# Written by `make lock`; edit pyproject.toml or requirements/*.in instead.\n"
EVERYTHING = ["pyproject.toml", "requirements/build.in", "requirements/torch.in", "--all-extras", "--generate-hashes"]


def resolve(uv: str, sources: list[str], output: Path, upgrade: bool) -> str:
    """Resolve `sources` for all platforms, preferring the pins that `output` already holds."""
    command = [uv, "pip", "compile", "--quiet", "--universal", "--python-version", "3.11", "--no-header"]
    command += ["--no-annotate", "--output-file", str(output), *sources]
    subprocess.run(command + ["--upgrade"] * upgrade, cwd=ROOT, check=True)
    return output.read_text()


def entries(text: str) -> list[str]:
    """The requirements of a resolved file, each with its hashes, without torch and what only its builds need."""
    blocks = re.findall(r"^[a-zA-Z0-9].*(?:\n    .*)*", text, flags=re.MULTILINE)
    return [block for block in blocks if not APART.match(block)]


def plain(block: str) -> str:
    """One requirement without its hashes."""
    return block.split("\\\n")[0].strip()


def write(path: Path, lines: list[str]) -> None:
    """Write one pinned file under the common header."""
    path.write_text(HEADER + "\n".join(lines) + "\n")
    print(f"{path.relative_to(ROOT)}: {len(lines)} requirements")


def main() -> None:
    """Resolve everything once and write the four files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--uv", default="uv", help="the resolver")
    parser.add_argument("--upgrade", action="store_true", help="move every pin to the newest version")
    asked = parser.parse_args()
    constraints, locked = ROOT / "constraints.txt", REQUIREMENTS / "locked.txt"
    blocks = entries(resolve(asked.uv, EVERYTHING, locked, asked.upgrade))
    torch = (REQUIREMENTS / "torch.in").read_text().split()[-1]
    write(locked, blocks)
    write(constraints, sorted([*map(plain, blocks), torch]))
    for name, pinned in (("external", ["--constraint", "constraints.txt"]), ("tools", [])):
        output = REQUIREMENTS / f"{name}.txt"
        write(output, entries(resolve(asked.uv, [f"requirements/{name}.in", *pinned], output, asked.upgrade)))


if __name__ == "__main__":
    main()
