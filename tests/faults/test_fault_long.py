"""Long runs, stalls, lack of memory and large data: flat, steady, and the same numbers."""

import gc
import itertools
import json
import os
import statistics
import threading
import time
import weakref
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.faults.campaign import QUIET, blobs, many, row, same_end, tiny

from ns3l import train as training
from ns3l.data.dataset import Dataset
from ns3l.recipe import Network
from ns3l.record import index, write_json
from ns3l.split import SplitRequest
from ns3l.store import Staged
from ns3l.train import fit


def resident_mb() -> float:
    """Memory of this process, in megabytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def handles() -> int:
    """Open files of this process."""
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_flat_memory_and_steady_pace(tmp_path, device):
    """Memory, file handles, threads and steps per second of processor time over a long run."""
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    steps = int(os.environ.get("NS3L_FAULTS_STEPS", many(2_000, 1_000_000)))
    every, saved = max(1, steps // many(20, 100)), many(100, 1_000)
    seen: list[tuple[float, int, int, int, float]] = []

    def watch(*_: object) -> bool:
        gc.collect()
        held = torch.cuda.memory_allocated() if device == "cuda" else 0
        seen.append((resident_mb(), held, handles(), threading.active_count(), time.process_time()))
        return False

    made = tiny("ns3l", steps=steps)
    recipe = replace(made, evaluation=replace(made.evaluation, every=every))
    how = replace(QUIET, device=device, watch=watch, checkpoint_steps=saved)
    with row("long", f"memory, handles and pace over many steps ({device})") as told, told.trying():
        fit(recipe, blobs(), out=tmp_path, how=how)
        memory, held, files, threads, clock = zip(*seen, strict=True)
        quarter = len(seen) // 4
        paces = [every / (after - before) for before, after in itertools.pairwise(clock)]
        first, last = statistics.median(paces[:quarter]), statistics.median(paces[-quarter:])
        told.note = (
            f"{steps:,} steps, a checkpoint every {saved:,}; {memory[quarter]:.1f} MB after a quarter, "
            f"{memory[-1]:.1f} MB at the end; handles {files[quarter]} and {files[-1]}; "
            f"steps/s of processor time: {first:.0f} in the first quarter, {last:.0f} in the last"
        )
        told.note += f"; {held[quarter]:,} and {held[-1]:,} bytes on the GPU" if device == "cuda" else ""
        assert files[-1] <= files[quarter] and threads[-1] <= threads[quarter] and held[-1] <= held[quarter]
        assert memory[-1] - memory[quarter] < 8, memory
        assert last > 0.6 * first, paces


def test_a_loader_that_stalls_or_fails(tmp_path, monkeypatch):
    staged = replace(QUIET, resident=False)
    recipe = tiny(steps=30)
    fit(recipe, blobs(), out=tmp_path / "whole", how=staged)
    true, count = Staged.gather, [0]

    def slow(self: Staged, step: int) -> dict[str, torch.Tensor]:
        time.sleep(0.3 if step % 10 == 4 else 0)
        return true(self, step)

    def failing(self: Staged, step: int) -> dict[str, torch.Tensor]:
        count[0] += 1
        if count[0] == 17:
            raise OSError(5, "Input/output error")
        return true(self, step)

    with row("long", "a loader that stalls, a loader that fails") as told:
        with told.trying("stalls"):
            monkeypatch.setattr(Staged, "gather", slow)
            fit(recipe, blobs(), out=tmp_path / "slow", how=staged)
            same_end(tmp_path / "slow" / "seed-0", tmp_path / "whole" / "seed-0")
        with told.trying("fails"):
            monkeypatch.setattr(Staged, "gather", failing)
            with pytest.raises((OSError, ValueError), match="Input/output error"):
                fit(recipe, blobs(), out=tmp_path / "failed", how=staged)
            monkeypatch.setattr(Staged, "gather", true)
            fit(recipe, blobs(), out=tmp_path / "failed", how=staged)
            same_end(tmp_path / "failed" / "seed-0", tmp_path / "whole" / "seed-0")


def test_out_of_device_memory(tmp_path, monkeypatch):
    """Where a group of replicas does not fit, halves of it are trained; the numbers are those of runs alone."""
    true, sizes, given_up = training.Engine, [], []

    class Small(true):
        """An engine on a device that holds one replica."""

        def __init__(self, replicas, execution):
            assert not any(replica() for replica in given_up), "replicas that did not fit are still there"
            sizes.append(len(replicas))
            if len(replicas) > 1:
                given_up.extend(map(weakref.ref, replicas))
                raise torch.cuda.OutOfMemoryError("injected")
            super().__init__(replicas, execution)

    recipe = tiny(steps=20)
    fit(recipe, blobs(), seeds=range(4), out=tmp_path / "alone", how=QUIET)
    monkeypatch.setattr(training, "Engine", Small)
    with row("long", "out of device memory (injected)") as told, told.trying():
        fit(recipe, blobs(), seeds=range(4), out=tmp_path / "group", how=replace(QUIET, replicas=4))
        assert sizes[0] == 4 and sizes.count(1) == 4, sizes
        for seed in range(4):
            same_end(tmp_path / "group" / f"seed-{seed}", tmp_path / "alone" / f"seed-{seed}")
        told.note = f"groups of {', '.join(map(str, sizes))} were tried"


@pytest.mark.gpu
def test_out_of_device_memory_provoked(tmp_path, monkeypatch):
    """The same on a GPU whose memory really ends: eight replicas of 67 MB of weights within four gigabytes."""
    true, sizes = training.Engine, []

    class Counted(true):
        """An engine that is counted."""

        def __init__(self, replicas, execution):
            sizes.append(len(replicas))
            super().__init__(replicas, execution)

    recipe = replace(tiny(steps=20), network=Network("mlp", {"hidden": [4096, 4096]}))
    how = replace(QUIET, device="cuda", replicas=8)
    fit(recipe, blobs(), seeds=range(8), out=tmp_path / "alone", how=replace(how, replicas=1))
    monkeypatch.setattr(training, "Engine", Counted)
    gc.collect()
    torch.cuda.empty_cache()
    allowed = torch.cuda.memory_reserved() + 4 * 2**30
    with row("long", "out of device memory (provoked on a GPU)") as told, told.trying():
        torch.cuda.set_per_process_memory_fraction(allowed / torch.cuda.get_device_properties(0).total_memory)
        try:
            fit(recipe, blobs(), seeds=range(8), out=tmp_path / "group", how=how)
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
        told.note = f"groups of {', '.join(map(str, sizes))} were tried"
        assert sizes[0] == 8 and len(sizes) > 1, sizes
        for seed in range(8):
            same_end(tmp_path / "group" / f"seed-{seed}", tmp_path / "alone" / f"seed-{seed}")


def test_a_large_pool(tmp_path):
    """A memory-mapped pool is trained on without being read into memory as a whole by the loader."""
    rows = many(100_000, 10_000_000)
    path = tmp_path / "pool.npy"
    pool = np.lib.format.open_memmap(path, "w+", np.float32, (rows, 4))
    small = blobs()
    for start in range(0, rows, 1_000_000):
        block = pool[start : start + 1_000_000]
        block[:] = np.resize(small.x, block.shape)
    pool.flush()
    with row("scale", f"{rows:,} unlabeled rows, memory-mapped") as told, told.trying():
        began = time.monotonic()
        mapped = np.load(path, mmap_mode="r")
        data = Dataset("pool", small.x, small.y, small.classes, small.x_test, small.y_test, x_extra=mapped)
        recipe = replace(tiny("ns3l", steps=20), split=SplitRequest(labels=12))
        before = resident_mb()
        result = fit(recipe, data, out=tmp_path / "run", how=replace(QUIET, checkpoint_steps=None)).runs[0].result
        assert result["status"] == "complete" and result["test_error"]["last"] < 67
        disk = sum(item.stat().st_size for item in (tmp_path / "run").rglob("*") if item.is_file()) / 2**20
        told.note = (
            f"{time.monotonic() - began:.0f} s for 20 steps with hashing and splitting; resident memory grew by "
            f"{resident_mb() - before:.0f} MB (index, labels, mapped pages); run folder {disk:.0f} MB"
        )


def test_a_thousand_runs_are_listed(tmp_path):
    """The index of a large study is read anew each time, and at once."""
    fit(tiny(), blobs(), out=tmp_path / "run", how=QUIET)
    held = json.loads((tmp_path / "run" / "seed-0" / "result.json").read_text())
    held["evaluation"] = {"confusion": [[number] * 100 for number in range(100)]}
    for number in range(1_000):
        folder = tmp_path / "study" / f"method-{number % 10}" / f"seed-{number // 10}"
        folder.mkdir(parents=True)
        write_json(folder / "result.json", held | {"seed": number})
    with row("scale", "1,000 runs listed") as told, told.trying():
        began = time.process_time()
        found = index(tmp_path / "study")
        seconds = time.process_time() - began
        assert sorted(run.result["seed"] for run in found) == list(range(1_000)) and seconds < 1
        told.note = f"{seconds:.2f} s of processor time, each with an evaluation of 100 classes"
