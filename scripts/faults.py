"""The long fault campaign: runs it, prints one line a row, writes the table into docs/faults.md.

python scripts/faults.py                 everything, and the table anew
python scripts/faults.py -k kills        a part of it; the table stays as it is
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "faults.md"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
COMMAND = "make faults"
ELSEWHERE = {
    "tests/record/test_run_checkpoint.py": ("disk", "checkpoints: kills, flipped bytes, full disk, two writers"),
    "tests/record/test_run_folder.py": ("disk", "run folders: another run, crash between files, second writer"),
    "tests/record/test_run_reading.py": ("scale", "1,000 runs listed under a second; absurd JSON"),
    "tests/data/test_download.py": ("kills", "downloads: cut, stalled, lying servers, two at once"),
    "tests/data/test_store.py": ("kills", "image stores: two builds at once, full disk, damage"),
    "tests/data/test_archives.py": ("hostile", "archives: traversal, links, bombs, wrong types"),
    "tests/data/test_decode.py": ("hostile", "images: bombs, cut, wrong ending, 0x0, 16 bit, CMYK, animated"),
    "tests/data/test_unpickle.py": ("hostile", "pickles that would run code"),
    "tests/data/test_arrays.py": ("hostile", "arrays: pickled, too large, damaged"),
    "tests/test_study.py": ("kills", "studies: stopped, failed, started twice, another study's folder"),
    "tests/executors/test_processes.py": ("kills", "worker processes that are killed or fail"),
    "tests/executors/test_ray.py": ("scale", "a Ray cluster of two nodes that loses one"),
    "tests/test_supply.py": ("supply", "pins, hashes, bill of materials, audit that never lies"),
}
"""Tests beside the campaign that belong to it: each file is a row."""
ORDER = ("kills", "disk", "numbers", "hostile", "long", "scale", "supply")


def run(arguments: list[str], table: Path) -> int:
    """The campaign's own rows, in the long form."""
    told = {"NS3L_FAULTS": "long", "NS3L_FAULTS_TABLE": str(table), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "tests/faults", "-m", "faults", "-q", "-s", "-p", "no:cacheprovider"]
    return subprocess.run(
        [*command, "--timeout=3600", *arguments], cwd=ROOT, env=os.environ | told, check=False
    ).returncode


def elsewhere(table: Path) -> int:
    """The tests that lie beside what they test, counted by file."""
    present = [path for path in ELSEWHERE if (ROOT / path).is_file()]
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "found.xml"
        command = [
            sys.executable,
            "-m",
            "pytest",
            *present,
            "-m",
            "",
            "-q",
            f"--junitxml={found}",
            "-p",
            "no:cacheprovider",
        ]
        code = subprocess.run(command, cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=False).returncode
        cases = list(ElementTree.parse(found).getroot().iter("testcase"))
    counts: dict[str, list[float]] = defaultdict(lambda: [0, 0, 0.0])
    for case in cases:
        held = counts[case.get("classname", "").replace(".", "/") + ".py"]
        skipped, failed = (
            case.find("skipped") is not None,
            case.find("failure") is not None or case.find("error") is not None,
        )
        held[0] += not skipped
        held[1] += failed
        held[2] += float(case.get("time", 0))
    with table.open("a", encoding="utf-8") as file:
        for path in present:
            part, name = ELSEWHERE[path]
            tried, lost, seconds = counts[path]
            told = {
                "part": part,
                "row": name,
                "tried": tried,
                "survived": tried - lost,
                "lost": lost,
                "seconds": round(seconds, 1),
            }
            file.write(
                json.dumps(told | {"note": f"tests of `{path}`" + ("" if tried else ": skipped on this machine")})
                + "\n"
            )
            print(f"{part}: {name}: tried {tried}, survived {tried - lost}, lost {lost}, {seconds:.1f} s", flush=True)
    return code


def machine() -> str:
    """Where it ran, in words."""
    import torch

    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        "",
    )
    versions = f"Python {platform.python_version()}, torch {torch.__version__}"
    return f"{model or platform.machine()}, {os.cpu_count()} cores, {versions}"


def written(rows: list[dict]) -> str:
    """The table as Markdown."""
    rows.sort(key=lambda told: ORDER.index(told["part"]) if told["part"] in ORDER else len(ORDER))
    total = [sum(int(told[name]) for told in rows) for name in ("tried", "survived", "lost")]
    lines = [
        f"`{COMMAND}`, {time.strftime('%Y-%m-%d')}, {machine()}: "
        f"{len(rows)} rows, tried {total[0]:,}, survived {total[1]:,}, lost {total[2]:,}.",
        "",
        "| part | fault | tried | survived | lost | seconds | measured |",
        "|---|---|---:|---:|---:|---:|---|",
    ]
    for told in rows:
        cells = [
            told["part"],
            told["row"],
            *(f"{int(told[n]):,}" for n in ("tried", "survived", "lost")),
            f"{told['seconds']:,}",
        ]
        lines.append("| " + " | ".join([*cells, told["note"].replace("|", "/")]) + " |")
    return "\n".join(lines)


def main() -> int:
    """Run, print, and write the table where everything ran."""
    arguments = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "rows.jsonl"
        table.touch()
        code = run(arguments, table)
        code = max(code, 0 if arguments else elsewhere(table))
        rows = [json.loads(line) for line in table.read_text(encoding="utf-8").splitlines()]
    lost = sum(int(told["lost"]) for told in rows)
    print(f"{len(rows)} rows, lost {lost}")
    if not arguments and rows:
        head, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        _, _, tail = rest.partition(END)
        PAGE.write_text(f"{head}{BEGIN}\n\n{written(rows)}\n\n{END}{tail}", encoding="utf-8")
    return code or int(lost > 0)


if __name__ == "__main__":
    sys.exit(main())
