"""The long fault campaign: runs it, prints one line a row, writes the table into docs/faults.md.

python scripts/faults.py                 everything
python scripts/faults.py -k kills        the campaign's rows that this selects; the other rows of the table stay
python scripts/faults.py --elsewhere     the rows of tests that lie beside what they test
"""

import argparse
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
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "faults.md"
ROWS = ROOT / "docs" / "assets" / "faults.json"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
LONGEST = "flat"
"""The one row that takes as long as all others together: it runs beside them."""
ELSEWHERE = {
    "tests/record/test_run_checkpoint.py": ("disk", "checkpoints: kills, flipped bytes, full disk, two writers"),
    "tests/record/test_run_folder.py": ("disk", "run folders: another run, crash between files, second writer"),
    "tests/record/test_run_reading.py": ("hostile", "run folders that are read: absurd JSON, huge metrics"),
    "tests/data/test_download.py": ("kills", "downloads: cut, stalled, lying servers, two at once"),
    "tests/data/test_store.py": ("kills", "image stores: two builds at once, full disk, damage"),
    "tests/data/test_archives.py": ("hostile", "archives: traversal, links, bombs, wrong types"),
    "tests/data/test_decode.py": ("hostile", "images: bombs, cut, wrong ending, 0x0, 16 bit, CMYK, animated"),
    "tests/data/test_unpickle.py": ("hostile", "pickles that would run code"),
    "tests/data/test_arrays.py": ("hostile", "arrays: pickled, too large, damaged"),
    "tests/test_study.py": ("kills", "studies: stopped, failed, started twice, another study's folder"),
    "tests/executors/test_processes.py": ("kills", "worker processes that are killed or fail"),
    "tests/executors/test_ray.py": ("scale", "Ray: a lost node, a signal, a cluster of its own"),
    "tests/test_supply.py": ("supply", "pins, hashes, bill of materials, audit that never lies"),
}
"""Tests beside the campaign that belong to it: each file is a row."""
ORDER = ("kills", "disk", "numbers", "hostile", "long", "scale", "supply")
NUMBERS = ("tried", "survived", "lost")


def pytest(*arguments: str, **told: str) -> "subprocess.Popen[bytes]":
    """Pytest in a process of its own."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    return subprocess.Popen(command, cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"} | told)


def campaign(table: Path, chosen: str) -> "subprocess.Popen[bytes]":
    """The campaign's own rows in the long form, as many as are chosen."""
    given = ("tests/faults", "-m", "faults", "-s", "--timeout=7200", "-k", chosen)
    return pytest(*given, NS3L_FAULTS="long", NS3L_FAULTS_TABLE=str(table))


def elsewhere(table: Path) -> int:
    """The tests that lie beside what they test, counted by file."""
    found = table.with_suffix(".xml")
    code = pytest(*ELSEWHERE, "-m", "", f"--junitxml={found}").wait()
    counts: dict[str, list[float]] = defaultdict(lambda: [0, 0, 0.0])
    for case in ElementTree.parse(found).getroot().iter("testcase"):
        held = counts[case.get("classname", "").replace(".", "/") + ".py"]
        held[0] += case.find("skipped") is None
        held[1] += case.find("failure") is not None or case.find("error") is not None
        held[2] += float(case.get("time", 0))
    with table.open("a", encoding="utf-8") as file:
        for path, (part, name) in ELSEWHERE.items():
            tried, lost, seconds = counts[path]
            told = {"part": part, "row": name, "tried": tried, "survived": tried - lost, "lost": lost}
            note = f"tests of `{path}`" + ("" if tried else ": skipped on this machine")
            print(f"{part}: {name}: tried {tried}, survived {tried - lost}, lost {lost}, {seconds:.1f} s", flush=True)
            file.write(json.dumps(told | {"seconds": round(seconds, 1), "note": note}) + "\n")
    return code


def machine() -> str:
    """Where it ran, in words."""
    import torch

    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.split(":")[1].strip() for line in lines if "model name" in line), platform.machine())
    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    return f"{model}, {os.cpu_count()} cores{gpu}, Python {platform.python_version()}, torch {torch.__version__}"


def merged(old: list[dict[str, Any]], new: list[dict[str, Any]], everything: bool) -> list[dict[str, Any]]:
    """The rows of the table: new ones in the place of old ones.

    Where everything ran, old rows of this machine that were not made again are no rows any more.
    """
    made = {told["row"] for told in new}
    here = {told["machine"] for told in new}
    kept = [told for told in old if told["row"] not in made and not (everything and told["machine"] in here)]
    return sorted([*kept, *new], key=lambda told: ORDER.index(told["part"]))


def written(rows: list[dict[str, Any]]) -> str:
    """The table as Markdown."""
    total = [sum(int(told[name]) for told in rows) for name in NUMBERS]
    machines = list(dict.fromkeys(told["machine"] for told in rows))
    lines = [f"{len(rows)} rows, tried {total[0]:,}, survived {total[1]:,}, lost {total[2]:,}.", ""]
    lines += [f"{number}. {name}" for number, name in enumerate(machines, 1)]
    lines += ["", "| part | fault | tried | survived | lost | seconds | measured | on | day |"]
    lines += ["|---|---|---:|---:|---:|---:|---|---:|---|"]
    for told in rows:
        counts = [f"{int(told[name]):,}" for name in NUMBERS]
        place = str(machines.index(told["machine"]) + 1)
        cells = [told["part"], told["row"], *counts, f"{told['seconds']:,}", told["note"], place, told["day"]]
        lines.append("| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |")
    return "\n".join(lines)


def ran(asked: argparse.Namespace) -> tuple[int, list[dict[str, Any]]]:
    """Run what is asked for: the exit code, and the rows."""
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "rows.jsonl"
        table.touch()
        if asked.elsewhere:
            code = elsewhere(table)
        elif asked.chosen:
            code = campaign(table, asked.chosen).wait()
        else:
            beside = campaign(table, LONGEST)
            code = max(campaign(table, f"not {LONGEST}").wait(), elsewhere(table), beside.wait())
        rows = [json.loads(line) for line in table.read_text(encoding="utf-8").splitlines()]
    more = {"machine": machine(), "day": time.strftime("%Y-%m-%d")}
    return code, [told | more for told in rows if told["tried"]]


def main() -> int:
    """Run, print, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-k", dest="chosen", help="only the rows whose tests this selects")
    parser.add_argument("--elsewhere", action="store_true", help="only the tests that lie beside what they test")
    asked = parser.parse_args()
    code, new = ran(asked)
    old = json.loads(ROWS.read_text(encoding="utf-8")) if ROWS.exists() else []
    rows = merged(old, new, everything=not (asked.chosen or asked.elsewhere))
    ROWS.write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n", encoding="utf-8")
    head, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(f"{head}{BEGIN}\n\n{written(rows)}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")
    lost = sum(int(told["lost"]) for told in new)
    print(f"{len(new)} rows, lost {lost}")
    return code or int(lost > 0)


if __name__ == "__main__":
    sys.exit(main())
