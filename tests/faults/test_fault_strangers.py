"""Strangers' model folders, tables, arrays and folders of images: refused in words, at once, in bounded memory."""

import json
import os
import resource
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.faults.campaign import QUIET, blobs, many, refused, row, tiny

from ns3l.data import load
from ns3l.errors import DataError, UserError
from ns3l.inference import predict
from ns3l.model import load_model
from ns3l.record import read_tensors, write_tensors
from ns3l.report import report, to_csv, to_html, to_text
from ns3l.train import fit

FILES = ("recipe.json", "split.json", "environment.json", "result.json", "model.json")
ABSURD = ("1e999", "9" * 25, "9" * 4_000, "9" * 5_000, "[[[]]]", "null", "{}", '"<script>"', "[" * 400 + "]" * 400)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A complete run folder."""
    out = tmp_path_factory.mktemp("run")
    fit(tiny(), blobs(), out=out, how=QUIET)
    return out / "seed-0"


@contextmanager
def at_once(seconds: int = 20) -> Iterator[None]:
    """Fail what waits for ever."""

    def late(*_: object) -> None:
        raise TimeoutError("it waits for ever")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def peak_mb() -> float:
    """The most memory that this process ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def pictures(folder: Path) -> Path:
    for name in ("a", "b"):
        (folder / name).mkdir(parents=True)
        for number in range(3):
            Image.new("RGB", (8, 8), (number, 0, 0)).save(folder / name / f"{number}.png")
    return folder


def described(folder: Path, change: dict[str, object], raw: str = "") -> None:
    told = json.loads((folder / "model.json").read_text()) | change
    (folder / "model.json").write_text(json.dumps(told).replace('"RAW"', raw))


def weighed(folder: Path, change: Callable[[str, torch.Tensor], torch.Tensor]) -> None:
    tensors, note = read_tensors(folder / "model.safetensors")
    write_tensors(folder / "model.safetensors", {name: change(name, value) for name, value in tensors.items()}, note)


def not_numbers(name: str, value: torch.Tensor) -> torch.Tensor:
    return torch.full_like(value, torch.nan) if value.is_floating_point() else value


def no_scale(name: str, value: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(value) if name == "preprocess.scale" else value


def piped(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return change


MODELS: dict[str, tuple[Callable[[Path], None], str]] = {
    "infinite shape": (lambda f: described(f, {"shape": ["RAW"]}, "1e999"), "larger than any number"),
    "shape of 25 digits": (lambda f: described(f, {"shape": ["RAW"]}, "9" * 25), "25 digits"),
    "labels that are lists": (lambda f: described(f, {"labels": [[1], [2, 3], {}]}), "numbers or text"),
    "classes that are lists": (lambda f: described(f, {"classes": [[1], None, {}]}), "names that differ"),
    "classes of one name": (lambda f: described(f, {"classes": ["a"] * 3}), "names that differ"),
    "weights that are NaN": (lambda f: weighed(f, not_numbers), "NaN or infinity"),
    "scale of 0": (lambda f: weighed(f, no_scale), "NaN or infinity"),
    "description that is a pipe": (piped("model.json"), "not a regular file"),
    "weights that are a pipe": (piped("model.safetensors"), "not a regular file"),
}


def test_models(tmp_path, run):
    with row("hostile", "models whose names, shapes and numbers lie, or that are pipes") as told:
        for number, (name, (change, words)) in enumerate(MODELS.items()):
            folder = tmp_path / str(number)
            shutil.copytree(run, folder)
            change(folder)
            with told.trying(name), at_once():
                refused(lambda f=folder: load_model(f).predict(blobs().x), (UserError,), words)


def test_absurd_numbers_in_run_folders(tmp_path, run):
    """Every value of a file replaced: the report leaves out what it cannot read, and raises nothing but our errors."""
    with row("hostile", "absurd numbers and nesting in every file of a run folder") as told:
        for name in FILES:
            for absurd in ABSURD[:: many(4, 1)]:
                folder = tmp_path / str(told.tried)
                shutil.copytree(run, folder)
                names = json.loads((folder / name).read_text())
                (folder / name).write_text(json.dumps(dict.fromkeys(names, "V")).replace('"V"', absurd))
                with told.trying(f"{name}: {absurd[:20]}"), at_once(60):
                    try:
                        made = report(folder)
                        to_html(made), to_csv(made), to_text(made)
                        load_model(folder)
                    except UserError:
                        continue
        for name in ("result.json", "metrics.jsonl", "recipe.json"):
            folder = tmp_path / name
            shutil.copytree(run, folder)
            piped(name)(folder)
            with told.trying(f"{name} is a pipe"), at_once(60):
                to_text(report(folder))


def header(shape: tuple[int, ...], kind: str = "<f8") -> Callable[[Path], object]:
    """An .npy file of a header and few bytes."""

    def write(path: Path) -> None:
        with path.open("wb") as file:
            np.lib.format.write_array_header_1_0(file, {"descr": kind, "fortran_order": False, "shape": shape})
            file.write(bytes(100))

    return write


def test_arrays_to_predict(tmp_path, run):
    """What a header promises is not believed: memory is taken for rows as the model takes them, and for no others."""
    arrays = {
        "rows of 10^12 numbers": header((10, 10**12)),
        "rows of 10^9 numbers": header((10, 10**9)),
        "text of 10^8 letters": header((10_000, 4), "<U100000000"),
        "no rows": header((0, 4)),
        "rows of nothing": header((5, 0)),
        "negative": header((-1, 4)),
        "10^18 rows": header((10**18, 4)),
        "a pipe": os.mkfifo,
    }
    model, before = load_model(run), peak_mb()
    with row("hostile", "arrays to predict whose headers lie") as told:
        for number, (name, write) in enumerate(arrays.items()):
            path = tmp_path / f"{number}.npy"
            write(path)
            with told.trying(name), at_once():
                refused(lambda p=path: list(predict(model, p)), (UserError,))
        told.note = f"peak memory grew by {peak_mb() - before:.0f} MB"
        assert peak_mb() - before < 300


def parquet(path: Path, **columns: object) -> Path:
    import pyarrow
    from pyarrow.parquet import write_table

    write_table(pyarrow.table(columns), path, store_schema=False)
    return path


def repeated(length: int, rows: int) -> object:
    """Two long texts, each many times: a few hundred kilobytes of file, gigabytes of text."""
    import pyarrow

    return pyarrow.DictionaryArray.from_arrays(np.arange(rows, dtype=np.int32) % 2, ["x" * length, "y" * length])


def test_tables(tmp_path, run):
    long, zeros = repeated(200_000, 20_000), np.zeros(20_000)
    names, before = ["x", "y"] * 10_000, peak_mb()
    with row("hostile", "Parquet: texts that unfold, lists, structures") as told:
        path = parquet(tmp_path / "text.parquet", a=zeros, text=long, label=names)
        with told.trying("4 GB of text beside the labels"), at_once():
            assert path.stat().st_size < 2**20
            refused(lambda: load(path), (DataError,), "not: text")
        path = parquet(tmp_path / "label.parquet", a=zeros, label=long)
        with told.trying("4 GB of labels"), at_once():
            refused(lambda: load(path), (DataError,), "200,000 characters")
        path = parquet(tmp_path / "rows.parquet", a=zeros, b=zeros, c=zeros, d=zeros, label=long)
        with told.trying("4 GB of text beside rows to predict"), at_once():
            assert sum(len(block.names) for block in predict(load_model(run), path)) == 20_000
        nested = {"a": [[1.0], [2.0, 3.0]], "s": [{"u": 1}, {"u": 2}], "label": ["x", "y"]}
        path = parquet(tmp_path / "nested.parquet", **nested)
        with told.trying("lists and structures"):
            refused(lambda: load(path), (DataError,), "lists or structures are not read: a, s")
        for ending in ("csv", "parquet", "npz", "npy"):
            path = tmp_path / f"pipe.{ending}"
            os.mkfifo(path)
            with told.trying(f"a pipe called .{ending}"), at_once():
                np.save(tmp_path / "y.npy", np.arange(3))
                refused(lambda p=path: load(p), (DataError,))
        told.note = f"peak memory grew by {peak_mb() - before:.0f} MB"
        assert peak_mb() - before < 400


def test_links_out_of_a_folder_of_images(tmp_path):
    """A folder may bring a store of its own: nothing outside it is written, no pipe in it is waited for."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    with row("hostile", "links and pipes in the store of a folder of images") as told:
        for name in ("lock", "manifest.json", "manifest.json.part", "images-0123456789abcdef.uint8.part"):
            for put in (lambda path: path.symlink_to(victim), os.mkfifo):
                folder = pictures(tmp_path / str(told.tried))
                (folder / ".ns3l-store").mkdir()
                put(folder / ".ns3l-store" / name)
                with told.trying(name), at_once():
                    try:
                        assert len(load(folder).x) == 6
                    except DataError:
                        continue
                    finally:
                        assert victim.read_text() == "precious"
        folder = pictures(tmp_path / "loop")
        (folder / "a" / "up").symlink_to("..")
        with told.trying("a link to the folder above"), at_once():
            assert len(load(folder).x) == 6
