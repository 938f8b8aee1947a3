"""Look every pinned dependency up in the public list of known vulnerabilities (`make audit`).

Exit status: 0 nothing known, 1 something known (listed), 3 not everything could be looked up, so nothing is promised.
Where the list is out of reach pip-audit may skip every package and still end well; here that counts as not audited.
"""

import argparse
import json
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COMMAND = ["--requirement", "constraints.txt", "--no-deps", "--disable-pip", "--progress-spinner", "off"]


def verdict(packages: list[dict]) -> tuple[int, list[str]]:
    """The exit status and what to print, from pip-audit's list of packages."""
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    found = [(package, entry) for package in packages for entry in package.get("vulns", [])]
    lines = [f"{package['name']} {package['version']}: {entry['id']}" for package, entry in found]
    looked_up = len(packages) - len(skipped)
    lines.append(f"{len(packages)} pinned, {looked_up} looked up, {len(found)} known vulnerabilities")
    if looked_up and not skipped:
        return int(bool(found)), lines
    lines.append(f"NOT AUDITED: {len(skipped)} could not be looked up. Run `make audit` where the list is in reach.")
    return 3, lines


def main() -> int:
    """Run pip-audit over every pin, torch included."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", default="pip-audit", help="the pip-audit program")
    command = [parser.parse_args().tool, *COMMAND, "--format", "json"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        packages = json.loads(done.stdout)["dependencies"]
    except (OSError, ValueError) as problem:
        told = [str(problem)] if isinstance(problem, OSError) else done.stderr.strip().splitlines()
        reason = (told or ["pip-audit said nothing"])[-1]
        print(f"NOT AUDITED: {reason}. Run `make audit` where the list of known vulnerabilities is in reach.")
        return 3
    status, lines = verdict(packages)
    print(*lines, sep="\n")
    return status


if __name__ == "__main__":
    raise SystemExit(main())
