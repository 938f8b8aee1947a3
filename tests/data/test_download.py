"""Downloads from a local server that cuts off, stalls, lies and sends damaged files."""

import hashlib
import multiprocessing
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock

from ns3l.data import download as module
from ns3l.data.download import Remote, download
from ns3l.errors import DataError

CONTENT = np.random.default_rng(0).integers(0, 256, 300_000).astype(np.uint8).tobytes()


class Server(ThreadingHTTPServer):
    """Answers one request after another as `plan` says ("whole" when it is used up); `asked` keeps the ranges."""

    daemon_threads = True

    def __init__(self, *plan: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.plan, self.asked, self.release = list(plan), [], threading.Event()
        self.url = f"http://127.0.0.1:{self.server_port}/file.bin"

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is part of the tests."""


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *_: object) -> None:
        """Silence."""

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        self.server.asked.append(asked)
        step, _, number = (self.server.plan.pop(0) if self.server.plan else "whole").partition(":")
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and step != "no-range" else 0
        getattr(self, step.replace("-", "_"))(start, int(number or 0))

    def head(self, start: int, length: int) -> None:
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}")
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def whole(self, start: int, _: int) -> None:
        if start >= len(CONTENT):
            self.send_error(416)
            return
        self.head(start, len(CONTENT) - start)
        self.wfile.write(CONTENT[start:])

    no_range = whole

    def cut(self, start: int, number: int) -> None:
        self.head(start, len(CONTENT) - start)
        self.wfile.write(CONTENT[start : start + number])

    def stall(self, start: int, number: int) -> None:
        self.cut(start, number)
        self.wfile.flush()
        self.server.release.wait(20)

    def trickle(self, start: int, _: int) -> None:
        self.head(start, len(CONTENT) - start)
        for byte in range(start, len(CONTENT)):
            self.wfile.write(CONTENT[byte : byte + 1])
            if self.server.release.wait(0.05):
                return

    def says_less(self, start: int, number: int) -> None:
        self.head(start, number)
        self.wfile.write(CONTENT[start : start + number])

    def says_more(self, start: int, number: int) -> None:
        self.head(start, len(CONTENT) + number)
        self.wfile.write(CONTENT[start:])

    def sends_more(self, start: int, number: int) -> None:
        self.head(start, len(CONTENT) + number)
        self.wfile.write(CONTENT[start:] + bytes(number))

    def damaged(self, start: int, _: int) -> None:
        self.head(start, len(CONTENT) - start)
        self.wfile.write(bytes(100) + CONTENT[start + 100 :])

    def error(self, _: int, number: int) -> None:
        self.send_error(number)

    def garbage(self, *_: int) -> None:
        self.wfile.write(b"\x00\x01 no http at all\r\n\r\n")

    def elsewhere(self, *_: int) -> None:
        self.send_response(302)
        self.send_header("Location", "file:///etc/passwd")
        self.end_headers()


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator:
    """Start servers by plan; all are stopped at the end."""
    monkeypatch.setattr(module, "PAUSE", 0.01)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    started: list[Server] = []

    def start(*plan: str) -> Server:
        started.append(Server(*plan))
        threading.Thread(target=started[-1].serve_forever, args=(0.01,), daemon=True).start()
        return started[-1]

    yield start
    for server in started:
        server.release.set()
        server.shutdown()
        server.server_close()


def remote(*servers: Server, content: bytes = CONTENT) -> Remote:
    checksum = f"sha256:{hashlib.sha256(content).hexdigest()}"
    return Remote("sub/file.bin", tuple(server.url for server in servers), checksum, len(content))


def get(root: Path, *servers: Server, timeout: float = 5.0) -> Path:
    return download(remote(*servers), root, progress=False, timeout=timeout)


def left(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "sub").iterdir() if not path.name.endswith(".lock"))


def test_plain(tmp_path: Path, serve) -> None:
    server = serve()
    assert get(tmp_path, server).read_bytes() == CONTENT
    assert left(tmp_path) == ["file.bin"]
    get(tmp_path, server)
    assert server.asked == [None]


@pytest.mark.parametrize("plan", [["cut:100000"], ["cut:100000", "cut:1", "cut:150000"], ["says-less:1000"]])
def test_cut_off_is_resumed(tmp_path: Path, serve, plan: list[str]) -> None:
    server = serve(*plan)
    assert get(tmp_path, server).read_bytes() == CONTENT
    sizes = [int(step.split(":")[1]) for step in plan]
    assert server.asked == [None] + [f"bytes={sum(sizes[: k + 1])}-" for k in range(len(sizes))]
    assert left(tmp_path) == ["file.bin"]


def test_partial_file_of_an_earlier_run_is_continued(tmp_path: Path, serve) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/file.bin.part").write_bytes(CONTENT[:123_456])
    server = serve()
    assert get(tmp_path, server).read_bytes() == CONTENT
    assert server.asked == ["bytes=123456-"]


def test_complete_partial_file_needs_no_network(tmp_path: Path, serve) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/file.bin.part").write_bytes(CONTENT)
    server = serve()
    assert get(tmp_path, server).read_bytes() == CONTENT
    assert server.asked == []


@pytest.mark.parametrize("size", [5_000, 300_000, 400_000])
def test_wrong_partial_file_is_replaced(tmp_path: Path, serve, size: int) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/file.bin.part").write_bytes(bytes(size))
    assert get(tmp_path, serve()).read_bytes() == CONTENT
    assert left(tmp_path) == ["file.bin"]


def test_server_without_ranges(tmp_path: Path, serve) -> None:
    server = serve("cut:1000", "no-range")
    assert get(tmp_path, server).read_bytes() == CONTENT
    assert server.asked == [None, "bytes=1000-"]


def test_stall_is_left_and_resumed(tmp_path: Path, serve) -> None:
    server = serve("stall:2000")
    begun = time.monotonic()
    assert get(tmp_path, server, timeout=0.3).read_bytes() == CONTENT
    assert server.asked == [None, "bytes=2000-"] and time.monotonic() - begun < 4


def test_trickle_counts_as_stall(tmp_path: Path, serve) -> None:
    server = serve("trickle")
    assert get(tmp_path, server, timeout=0.4).read_bytes() == CONTENT
    assert len(server.asked) == 2


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("damaged", "does not match the known hash"),
        ("cut:0", "ended after 0 of 300,000 bytes"),
        ("sends-more:5000", "sends more than the 300,000 bytes"),
        ("error:404", "answers 404 Not Found"),
        ("error:500", "answers 500"),
        ("garbage", "no http at all|BadStatusLine|ended after 0"),
        ("elsewhere", "redirection|302"),
        ("stall:0", "timed out"),
    ],
)
def test_bad_server_leaves_nothing_and_says_all(tmp_path: Path, serve, step: str, message: str) -> None:
    server = serve(*[step] * 20)
    with pytest.raises(DataError, match=message) as caught:
        get(tmp_path, server, timeout=0.2)
    text = str(caught.value)
    for part in (server.url, remote(server).checksum, str(tmp_path / "sub/file.bin"), "300,000 bytes", "by hand"):
        assert part in text
    assert "file.bin" not in left(tmp_path) and not any(name.startswith("tmp") for name in left(tmp_path))


def test_says_more_than_it_sends(tmp_path: Path, serve) -> None:
    assert get(tmp_path, serve("says-more:5000")).read_bytes() == CONTENT


def test_mirror_is_used(tmp_path: Path, serve) -> None:
    bad, good = serve(*["damaged"] * 9), serve()
    assert get(tmp_path, bad, good).read_bytes() == CONTENT
    assert len(bad.asked) == 1 and good.asked == [None]


def test_damaged_file_under_the_final_name_is_replaced(tmp_path: Path, serve) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/file.bin").write_bytes(CONTENT[:-1])
    assert get(tmp_path, serve()).read_bytes() == CONTENT


def test_no_network(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/file.bin"
    with pytest.raises(DataError, match="refused"):
        download(Remote("file.bin", (url,), "md5:" + "0" * 32, 10), tmp_path, progress=False)
    with pytest.raises(DataError, match="only http and https"):
        download(Remote("file.bin", ("ftp://127.0.0.1/x",), "md5:" + "0" * 32, 10), tmp_path, progress=False)


def test_two_at_once_download_once(tmp_path: Path, serve) -> None:
    server = serve("stall:1000")
    threads = [threading.Thread(target=get, args=(tmp_path, server)) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    server.release.set()
    for thread in threads:
        thread.join()
    assert server.asked == [None, "bytes=1000-"]
    assert (tmp_path / "sub/file.bin").read_bytes() == CONTENT


def _hold(path: str, held: object, release: object) -> None:
    with FileLock(path):
        held.set()  # type: ignore[attr-defined]
        release.wait(20)  # type: ignore[attr-defined]


def test_another_process_is_waited_for(tmp_path: Path, serve, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sub").mkdir()
    spawn = multiprocessing.get_context("spawn")
    held, release = spawn.Event(), spawn.Event()
    other = spawn.Process(target=_hold, args=(str(tmp_path / "sub/.file.bin.lock"), held, release))
    other.start()
    held.wait(20)
    monkeypatch.setattr(module, "PATIENCE", 0.2)
    with pytest.raises(DataError, match="another process has held"):
        get(tmp_path, serve())
    release.set()
    other.join()
    assert get(tmp_path, serve()).read_bytes() == CONTENT


def test_folder_that_cannot_be_written(tmp_path: Path, serve) -> None:
    (tmp_path / "sub").write_text("a file")
    with pytest.raises(DataError, match="cannot be written"):
        get(tmp_path, serve())


def test_full_disk(tmp_path: Path, serve, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module._Resuming, "_copy", full)
    with pytest.raises(DataError, match="No space left on device"):
        get(tmp_path, serve())
    assert "file.bin" not in left(tmp_path)


@pytest.mark.faults
def test_killed_and_resumed(tmp_path: Path, serve) -> None:
    server = serve("stall:70000")
    program = (
        "import sys; from pathlib import Path; from ns3l.data.download import Remote, download;"
        "download(Remote('sub/file.bin', (sys.argv[1],), sys.argv[2], int(sys.argv[3])), Path(sys.argv[4]))"
    )
    wanted = remote(server)
    child = subprocess.Popen(
        [sys.executable, "-c", program, server.url, wanted.checksum, str(wanted.size), str(tmp_path)]
    )
    part = tmp_path / "sub/file.bin.part"
    deadline = time.monotonic() + 60
    while not (part.exists() and part.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.02)
    child.kill()
    child.wait()
    have = part.stat().st_size
    assert have and not (tmp_path / "sub/file.bin").exists()
    assert get(tmp_path, server).read_bytes() == CONTENT
    assert server.asked == [None, f"bytes={have}-"]
