"""Strangers' models and data: nothing is executed, nothing is torn open, every damage is an error of ours."""

import gzip
import io
import json
import os
import pickle
import resource
import struct
import sys
import tarfile
import warnings
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.faults.campaign import QUIET, blobs, many, refused, row, tiny

from ns3l.data.archives import read_gzip, unpack
from ns3l.data.arrays import load_arrays
from ns3l.data.decode import ImageFault, Wanted, decode, quiet_decoder, read_header
from ns3l.data.frames import load_table
from ns3l.data.images import read_labels
from ns3l.data.matlab import variables
from ns3l.data.mnist import read_idx
from ns3l.data.unpickle import loads
from ns3l.errors import UserError
from ns3l.model import load_model
from ns3l.recipe import Recipe
from ns3l.record import read_json, read_run, read_tensors, write_json, write_tensors
from ns3l.report import report, to_csv, to_html
from ns3l.split import Split, make_split
from ns3l.train import fit

MINE = (UserError, ImageFault)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A complete run folder."""
    out = tmp_path_factory.mktemp("run")
    fit(tiny(), blobs(), out=out, how=QUIET)
    return out / "seed-0"


def copied(run: Path, to: Path) -> Path:
    to.mkdir()
    for name in ("model.safetensors", "model.json"):
        (to / name).write_bytes((run / name).read_bytes())
    return to


class Bomb:
    """Unpickling this runs code."""

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, ("touch /tmp/ns3l-was-executed",)


def huge_header(length: int) -> bytes:
    return struct.pack("<Q", length) + b"{" * 64


def promised(shape: list[int]) -> bytes:
    size = int(np.prod(shape, dtype=object)) * 4
    told = json.dumps({"a": {"dtype": "F32", "shape": shape, "data_offsets": [0, size]}}).encode()
    return struct.pack("<Q", len(told)) + told


def test_models_that_are_none(tmp_path, run):
    """Weights that are a pickle, absurd headers, or a promise of more than there is."""
    torch.save({"network.weight": Bomb()}, tmp_path / "torch.pt")
    contents = {
        "a pickle": pickle.dumps(Bomb()),
        "a torch file": (tmp_path / "torch.pt").read_bytes(),
        "header of 2^63": huge_header(2**63),
        "header of 100 GB": huge_header(10**11),
        "10^18 numbers": promised([10**9, 10**9]),
        "negative shape": promised([-1, 4]),
        "deep header": struct.pack("<Q", 400_000) + b"[" * 400_000,
        "empty": b"",
        "text": b"hello",
    }
    with row("hostile", "weights that are pickles or absurd safetensors") as told:
        for name, content in contents.items():
            with told.trying(name):
                folder = copied(run, tmp_path / name.replace(" ", "-"))
                (folder / "model.safetensors").write_bytes(content)
                refused(lambda folder=folder: load_model(folder), (UserError,))
                assert not Path("/tmp/ns3l-was-executed").exists()


CHANGES: dict[str, tuple[tuple[str, ...], object]] = {
    "a network by import path": (("recipe", "network", "name"), "os.system"),
    "width 10^9": (("recipe", "network", "options"), {"hidden": [10**9, 10**9]}),
    "10^5 layers": (("recipe", "network", "options"), {"hidden": [1] * 10**5}),
    "depth 6 * 10^8 + 4": (("recipe", "network"), {"name": "wide-resnet", "options": {"depth": 6 * 10**8 + 4}}),
    "10^12 classes": (("recipe", "classes"), 10**12),
    "rows of 10^12": (("shape",), [10**12]),
    "a shape of text": (("shape",), ["x"]),
    "no shape": (("shape",), []),
    "a shape without end": (("shape",), 7),
    "negative width": (("recipe", "network", "options"), {"hidden": [-8]}),
    "whitening of 10^6 pixels": (("recipe", "preprocessing"), {"kind": "gcn-zca"}),
    "unknown option": (("recipe", "network", "options"), {"hook": 1}),
    "options of text": (("recipe", "network", "options"), "__import__('os')"),
    "a deep setting": (("recipe", "network"), json.loads("[" * 500 + "]" * 500)),
    "classes that are a number": (("classes",), 3),
}


@pytest.mark.filterwarnings("ignore:.*at least 1/K")
def test_descriptions_of_absurd_models(tmp_path, run):
    """A description may ask for any network: what its weights do not fill is refused before memory is taken."""
    with row("hostile", "model descriptions that ask for absurd networks") as told:
        for name, (path, value) in CHANGES.items():
            with told.trying(name):
                folder = copied(run, tmp_path / str(told.tried))
                described = json.loads((folder / "model.json").read_text())
                place = described
                for key in path[:-1]:
                    place = place[key]
                place[path[-1]] = value
                (folder / "model.json").write_text(json.dumps(described))
                refused(lambda folder=folder: load_model(folder), (UserError,))
        told.note = f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB"
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 4 * 2**20


def test_loading_executes_nothing(tmp_path, run):
    """While a model is loaded and a stranger's files are read, nothing is compiled, imported, spawned or unpickled."""
    load_model(run)
    seen: list[str] = []
    watching = [True]

    def watch(event: str, _: tuple) -> None:
        if watching[0] and event in ("exec", "os.system", "subprocess.Popen", "pickle.find_class", "socket.connect"):
            seen.append(event)

    with row("hostile", "loading executes nothing") as told, told.trying():
        sys.addaudithook(watch)
        load_model(run)
        read_run(run)
        watching[0] = False
        assert not seen


NAMES = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "=cmd|' /C calc'!A0",
    "+1+1",
    "@SUM(A1)",
    "-2+3",
    "\t=1",
    "$(touch /tmp/ns3l-was-executed)",
    "`id`; rm -rf ~",
    "a\nb\r\nc",
    "../../etc/passwd",
    "\u202egnp.exe",
    "{{ 7 * 7 }}{% raw %}",
    "$x^{2}_\\input{/etc/passwd}",
    "]]>",
    "x" * 10_000,
)


def test_names_are_only_names(tmp_path, run):
    """Class, method and data names with markup, formulas and shell characters, through every form of the report."""
    with row("hostile", "markup, formulas and shell characters in names") as told:
        for number, name in enumerate(NAMES[:: many(5, 1)]):
            with told.trying(name[:30]):
                folder = tmp_path / str(number) / "seed-0"
                folder.mkdir(parents=True)
                for path in run.iterdir():
                    if path.suffix == ".json":
                        held = json.loads(path.read_text())
                        held |= {key: name for key in ("method", "data") if key in held}
                        held |= {"classes": [name, f"{name}2", "c"]} if path.name == "model.json" else {}
                        write_json(folder / path.name, held)
                made = report(tmp_path / str(number))
                page = to_html(made)
                assert page.count("<script") == 1 and "<img" not in page and "onerror=alert(1)>" not in page
                for line in to_csv(made).splitlines()[1:]:
                    assert not line.startswith(("=", "+", "@", "-", "\t", '"=', '"+', '"@', '"-', '"\t'))
                assert not Path("/tmp/ns3l-was-executed").exists()


def test_splits_that_unfold():
    """A manifest of a few bytes can ask for any number of rows; a range that is none is refused."""
    manifest = make_split(blobs(), tiny().split, 0).to_dict()
    with row("hostile", "split manifests that ask for absurd pools") as told:
        for ranges in ([[0, 10**10]], [[0, 10**18]], [[0, 2**28]] * 9, [[]], [[1]], [[1, 2, 3]], [["a", "b"]], 7):
            with told.trying(str(ranges)):
                refused(lambda ranges=ranges: Split.from_dict(manifest | {"unlabeled_ranges": ranges}), (UserError,))


def test_tables_that_unfold(tmp_path, monkeypatch):
    """A few bytes of Parquet can stand for any number of equal rows."""
    import pandas

    path = tmp_path / "bomb.parquet"
    pandas.DataFrame({"a": np.zeros(10**6), "label": ["x"] * 10**6}).to_parquet(path)
    assert path.stat().st_size < 2**16
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 4000}.__getitem__)
    with row("hostile", "a Parquet file that unfolds to more than memory") as told, told.trying():
        refused(lambda: load_table(path, "label"), (UserError,), "1,000,000 rows")


def as_bytes(write: Callable[[Path], object], path: Path) -> bytes:
    write(path)
    return path.read_bytes()


def png(form: str) -> bytes:
    out = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (12, 12, 3), dtype=np.uint8)).save(out, form)
    return out.getvalue()


def tar() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name in ("a/b.txt", "c.txt"):
            entry = tarfile.TarInfo(name)
            entry.size = 40
            archive.addfile(entry, io.BytesIO(bytes(40)))
    return out.getvalue()


def zipped() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/b.txt", "x" * 40)
        archive.writestr("c.txt", "y" * 40)
    return out.getvalue()


def npz() -> bytes:
    out = io.BytesIO()
    np.savez(out, X=np.random.default_rng(0).normal(size=(8, 3)), y=np.arange(8) % 2)
    return out.getvalue()


def parquet(path: Path) -> None:
    import pandas

    pandas.DataFrame({"a": [0.5, 1.5, 2.5], "label": ["x", "y", "x"]}).to_parquet(path)


def mat(path: Path) -> None:
    from scipy.io import savemat

    savemat(path, {"X": np.zeros((3, 4), np.uint8), "y": np.arange(4, dtype=np.uint8)}, do_compression=True)


Reader = tuple[str, bytes, Callable[[Path], object], int]


def readers(folder: Path, run: Path) -> list[Reader]:
    """Every reader: the ending, a sound file, what reads it, and its share of the inputs."""
    idx = b"\0\0\x08\x01" + struct.pack(">I", 20) + bytes(20)
    split = json.dumps(make_split(blobs(), tiny().split, 0).to_dict()).encode()
    data = pickle.dumps({b"data": np.zeros((2, 4), np.uint8), b"labels": [1, 2]}, 2)
    form = Wanted(8, 3).form()

    def picture(path: Path) -> object:
        return read_header(path), decode(path, form)

    weights = as_bytes(lambda path: write_tensors(path, {"a": torch.zeros(5)}, {"b": 1}), folder / "t")
    csv = b"a,b,label\n1,2,x\n3,4,y\n5,6,\n"
    return [
        ("idx.gz", gzip.compress(idx), lambda path: read_idx(path, 1), 4),
        ("gz", gzip.compress(b"x" * 50), read_gzip, 4),
        ("pkl", data, lambda path: loads(path.read_bytes()), 12),
        ("safetensors", weights, read_tensors, 12),
        ("json", (run / "result.json").read_bytes(), read_json, 12),
        ("recipe", (run / "recipe.json").read_bytes(), lambda path: Recipe.from_dict(read_json(path)), 8),
        ("split", split, lambda path: Split.from_dict(read_json(path)), 8),
        ("png", png("PNG"), picture, 8),
        ("jpg", png("JPEG"), picture, 6),
        ("gif", png("GIF"), picture, 4),
        ("bmp", png("BMP"), picture, 4),
        ("mat", as_bytes(mat, folder / "m.mat"), lambda path: list(variables(path)), 6),
        ("npz", npz(), load_arrays, 3),
        ("tar.gz", tar(), lambda path: unpack(path, path.with_name("unpacked")), 2),
        ("zip", zipped(), lambda path: unpack(path, path.with_name("unpacked")), 2),
        ("labels.csv", b"name,label\na.png,x\nb.png,y\n", read_labels, 3),
        ("csv", csv, lambda path: load_table(path, "label"), 1),
        ("parquet", as_bytes(parquet, folder / "p.parquet"), lambda path: load_table(path, "label"), 1),
    ]


def mutated(content: bytes, draw: np.random.Generator) -> bytes:
    """A file with bytes flipped, cut out, doubled, put in, or made of chance altogether."""
    raw = bytearray(content)
    for _ in range(int(draw.integers(1, 5))):
        place, length = int(draw.integers(0, max(1, len(raw)))), int(draw.integers(1, 9))
        match int(draw.integers(0, 8)):
            case 0 | 1 | 2:
                raw[place : place + 1] = bytes([int(draw.integers(0, 256))])
            case 3:
                raw[place : place + length] = draw.bytes(length)
            case 4:
                del raw[place : place + length]
            case 5:
                raw[place:place] = raw[place : place + 8 * length]
            case 6:
                del raw[place:]
            case _:
                raw[place : place + 4] = draw.choice(
                    [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\0", b"\x80\0\0\0"]
                )
    return bytes(raw) if draw.random() > 0.02 else draw.bytes(int(draw.integers(0, 200)))


def test_fuzz(tmp_path, run):
    """Every reader gives what it read, or an error of ours; no other exception, no runaway memory."""
    draw = np.random.default_rng(0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with row("hostile", "fuzzed files through every reader") as told, quiet_decoder(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        known = readers(tmp_path, run)
        counts: list[str] = []
        for ending, content, read, share in known:
            path = tmp_path / f"fuzzed.{ending}"
            number = max(3, share * many(1, 1010))
            for _ in range(number):
                bad = mutated(content, draw)
                path.write_bytes(bad)
                with told.trying(f"{ending} {bad[:60]!r}"), suppress(*MINE):
                    read(path)
            counts.append(f"{ending} {number:,}")
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        told.note = f"{', '.join(counts)}; peak memory grew by {grown:.0f} MB"
        assert grown < 1500, told.note
