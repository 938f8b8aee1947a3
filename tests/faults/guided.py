"""One reader under a fuzzer that is guided by coverage: `python -m tests.faults.guided ENDING -runs=1000`.

Needs atheris (`pip install atheris`). What follows the ending goes to libFuzzer. It ends with 0 where nothing
but rows and errors of ours came out.
"""

import sys
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["ns3l"]):
    from tests.faults.campaign import QUIET, blobs, tiny
    from tests.faults.test_fault_hostile import MINE, readers

    from ns3l.data.decode import quiet_decoder
    from ns3l.train import fit


def main() -> None:
    """Fuzz until libFuzzer has had its runs; it ends the process."""
    warnings.simplefilter("ignore")
    folder = Path(tempfile.mkdtemp())
    fit(tiny(), blobs(), out=folder / "run", how=QUIET)
    known = {ending: (content, read) for ending, content, read, _ in readers(folder, folder / "run" / "seed-0")}
    content, read = known[sys.argv[1]]
    corpus, path = folder / "corpus", folder / f"fuzzed.{sys.argv[1]}"
    corpus.mkdir()
    (corpus / "sound").write_bytes(content)

    def once(data: bytes) -> None:
        path.write_bytes(data)
        with suppress(*MINE):
            read(path)

    with quiet_decoder():
        limits = [f"-max_len={2 * len(content) + 200}", "-rss_limit_mb=4000", "-timeout=60"]
        atheris.Setup([sys.argv[0], *sys.argv[2:], *limits, f"-artifact_prefix={folder}/", str(corpus)], once)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
