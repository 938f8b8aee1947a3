"""One folder per run: atomic, checkpointed, resumable, locked, and readable without this library."""

from ns3l.record.files import differences, read_json, refuse_file, write_bytes, write_json
from ns3l.record.folder import RunFolder
from ns3l.record.interruption import Interruption
from ns3l.record.reading import RunRecord, RunSummary, find_runs, index, read_run
from ns3l.record.tensors import read_tensors, write_tensors

__all__ = [
    "Interruption",
    "RunFolder",
    "RunRecord",
    "RunSummary",
    "differences",
    "find_runs",
    "index",
    "read_json",
    "read_run",
    "read_tensors",
    "refuse_file",
    "write_bytes",
    "write_json",
    "write_tensors",
]
