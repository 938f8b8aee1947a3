"""Names, places, the registry, fetching as a whole and what `info` says."""

import gzip
import hashlib
import json
import struct
import threading
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

import ns3l.data as data
from ns3l.data.dataset import Dataset
from ns3l.data.download import Remote
from ns3l.data.known import Known, Official, cache_root, data_root
from ns3l.data.mnist import FILES, MNIST
from ns3l.errors import DataError


@pytest.mark.parametrize(
    ("name", "near"),
    [("cifra10", "cifar10"), ("CIFAR-10", "cifar10"), ("fashion_mnist", "fashion-mnist"), ("SVHN", "svhn")],
)
def test_unknown_name_is_guessed(name: str, near: str) -> None:
    with pytest.raises(DataError, match=f"{name!r}; did you mean {near}?"):
        data.load(name)
    with pytest.raises(DataError, match=f"did you mean {near}?"):
        data.fetch(name)


def test_unknown_name_without_a_guess() -> None:
    with pytest.raises(DataError, match="Known sets: cifar10, cifar100, svhn") as caught:
        data.load("xyz")
    assert "did you mean" not in str(caught.value)


def test_own_files_by_suffix(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("1")
    with pytest.raises(DataError, match=r"ending in .npz, .npy, .parquet, .csv, got '.txt'"):
        data.load(tmp_path / "x.txt")
    with pytest.raises(DataError, match="no data set and no file is called"):
        data.load(tmp_path / "absent.npz")
    np.savez(tmp_path / "x.npz", X=np.eye(4, dtype=np.float32), y=np.array([0, 1, 0, -1]))
    assert data.load(tmp_path / "x.npz").y.tolist() == [0, 1, 0, -1]


def test_options_are_checked() -> None:
    with pytest.raises(DataError, match="cifar10 has no option extra; it takes none"):
        data.load("cifar10", extra=True)
    with pytest.raises(DataError, match="svhn has no option fold; it takes extra"):
        data.load("svhn", fold=1)
    with pytest.raises(DataError, match="mnist has no option extra"):
        data.fetch("mnist", extra=True)


def test_registry_and_official_counts() -> None:
    assert set(data.DATASETS) == {*data.KNOWN, "digits"}
    sizes = {name: (sum(k.official.train), sum(k.official.test), k.official.extra) for name, k in data.KNOWN.items()}
    assert sizes == {
        "cifar10": (50_000, 10_000, 0),
        "cifar100": (50_000, 10_000, 0),
        "svhn": (73_257, 26_032, 531_131),
        "stl10": (5_000, 8_000, 100_000),
        "mnist": (60_000, 10_000, 0),
        "fashion-mnist": (60_000, 10_000, 0),
    }
    remotes = [remote for known in data.KNOWN.values() for remote in known.remotes]
    assert all(len(r.checksum) == len("sha256:") + 64 and r.urls and r.size for r in remotes)
    assert len({remote.checksum for remote in remotes}) == len(remotes)


def test_where_data_are_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NS3L_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data_root() == cache_root() == tmp_path / "cache/ns3l"
    monkeypatch.setenv("NS3L_DATA", str(tmp_path / "named"))
    assert data_root() == tmp_path / "named" and data_root(tmp_path) == tmp_path
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_root() == tmp_path / ".cache/ns3l"
    with pytest.raises(DataError, match=r"mnist was not found in .*named or .*cache/ns3l"):
        data.load("mnist")


def write_mnist(folder: Path, labels: np.ndarray) -> tuple[Remote, ...]:
    """Four idx files of one-pixel images below `folder`, and what a server of them would be called."""
    remotes = []
    for name in FILES:
        shape = (len(labels), 1, 1) if "images" in name else labels.shape
        head = struct.pack(f">BBBB{len(shape)}I", 0, 0, 8, len(shape), *shape)
        content = gzip.compress(head + labels.astype(np.uint8).tobytes(), mtime=0)
        (folder / f"{name}.gz").write_bytes(content)
        checksum = f"sha256:{hashlib.sha256(content).hexdigest()}"
        remotes.append(Remote(f"MNIST/raw/{name}.gz", (name,), checksum, len(content)))
    return tuple(remotes)


@pytest.fixture
def small_mnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """MNIST as a set of 20 images on a local server; (root, requests seen)."""
    (tmp_path / "served").mkdir()
    remotes = write_mnist(tmp_path / "served", np.arange(20) % 10)
    seen: list[str] = []

    class Handler(SimpleHTTPRequestHandler):
        def log_request(self, *_: object) -> None:
            seen.append(self.path)

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=tmp_path / "served"))
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    served = tuple(replace(r, urls=(f"{address}/{Path(r.file).name}",)) for r in remotes)
    small = replace(MNIST, remotes=served, official=Official((2,) * 10, (2,) * 10))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr("ns3l.data.mnist.MNIST", small)
    monkeypatch.setitem(data.KNOWN, "mnist", small)
    yield tmp_path / "root", seen
    server.shutdown()
    server.server_close()


def test_fetch_then_load(small_mnist) -> None:
    root, seen = small_mnist
    with pytest.raises(DataError, match="mnist was not found"):
        data.load("mnist", root=root)
    assert not root.exists()
    assert data.fetch("mnist", root, progress=False) == root / "MNIST/raw"
    assert data.load("mnist", root=root).y.tolist() == [k % 10 for k in range(20)]
    data.fetch("mnist", root, progress=False)
    assert len(seen) == 4


def test_fetched_content_is_counted(small_mnist, monkeypatch: pytest.MonkeyPatch) -> None:
    root, _ = small_mnist
    wrong: Known = replace(data.KNOWN["mnist"], official=Official((3,) + (2,) * 9, (2,) * 10))
    monkeypatch.setitem(data.KNOWN, "mnist", wrong)
    with pytest.raises(DataError, match="not the published mnist: 20 training images, not 21"):
        data.fetch("mnist", root, progress=False)


def test_fetch_of_bundled_digits_needs_nothing(tmp_path: Path) -> None:
    assert data.fetch("digits", tmp_path) == tmp_path and not list(tmp_path.iterdir())


def test_info_is_json_and_right() -> None:
    x = np.random.default_rng(0).integers(0, 256, (50, 4, 5, 3)).astype(np.uint8)
    y = np.array([0, 1, -1, 1, 0] * 10)
    about = data.info(Dataset("toy", x, y, ("a", "b"), x[:3], y[[0, 1, 3]], x[:7]))
    assert json.loads(json.dumps(about)) == about
    assert (about["train"], about["labeled"], about["unlabeled"], about["extra"], about["test"]) == (50, 40, 10, 7, 3)
    assert about["per_class"] == {"a": 20, "b": 20} and about["shape"] == [4, 5, 3]
    assert about["mean"] == pytest.approx((x / 255).mean((0, 1, 2))) and about["std"] == pytest.approx(
        (x / 255).std((0, 1, 2))
    )


def test_info_of_features() -> None:
    x = np.random.default_rng(0).normal(5, 2, (40, 3)).astype(np.float32)
    about = data.info(Dataset("toy", x, np.zeros(40, np.int64), ("a", "b")))
    assert about["kind"] == "features" and about["mean"] == pytest.approx(x.mean(0), rel=1e-5)
    assert about["std"] == pytest.approx(x.std(0), rel=1e-5)


@pytest.mark.parametrize("name", ["", "  "])
def test_an_empty_name_is_not_the_current_folder(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"a known set or a path, got .*the current folder is called '\.'"):
        data.load(name)
