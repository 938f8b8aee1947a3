"""Serve a report that refreshes itself while runs go on: to this machine only."""

import hashlib
from collections.abc import Callable, Iterable
from functools import partial
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock

from ns3l.errors import UserError
from ns3l.report.collect import find
from ns3l.report.html import to_html

_HOST = "127.0.0.1"
_WAITING = '<!doctype html><meta http-equiv="refresh" content="2"><title>ns3l report</title><p>'
_WATCHED = ("recipe.json", "result.json", "metrics.jsonl", "split.json", "environment.json", "model.json")


class Live:
    """The current page and its version; the page is made again when a file of a run has changed."""

    def __init__(self, paths: Iterable[str | Path], rule: str | None = None) -> None:
        self._roots = tuple(Path(path) for path in paths)
        self._rule = rule
        self._lock = Lock()
        self._made = ("", "")

    def version(self) -> str:
        """What changes when any file of any run changes."""
        state = hashlib.sha256()
        folders = find(root for root in self._roots if root.is_dir())
        for path in (*self._roots, *(folder / name for folder in folders for name in _WATCHED)):
            state.update(f"{path}:{_stamp(path)};".encode(errors="replace"))
        return state.hexdigest()[:16]

    def page(self) -> str:
        """The page of the current version."""
        with self._lock:
            version = self.version()
            if self._made[0] != version:
                self._made = (version, self._make(version))
            return self._made[1]

    def _make(self, version: str) -> str:
        from ns3l.report import report

        try:
            return to_html(report(self._roots, rule=self._rule), poll=version)
        except UserError as error:
            return _WAITING + escape(str(error))


def _stamp(path: Path) -> str:
    try:
        status = path.stat()
    except OSError:
        return "-"
    return f"{status.st_mtime_ns}-{status.st_size}"


class _Handler(BaseHTTPRequestHandler):
    """Two addresses: the page and its version. Requests by another host name are refused."""

    server_version = "ns3l"
    sys_version = ""

    def __init__(self, live: Live, *positional: object) -> None:
        self._live = live
        super().__init__(*positional)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        """Answer the page or its version."""
        routes: dict[str, tuple[Callable[[], str], str]] = {
            "/": (self._live.page, "text/html; charset=utf-8"),
            "/version": (self._live.version, "text/plain; charset=utf-8"),
        }
        name = self.headers.get("Host", "").rsplit(":", 1)[0]
        if name not in (_HOST, "localhost"):
            self.send_error(HTTPStatus.FORBIDDEN, "this report is served to this machine only")
        elif self.path not in routes:
            self.send_error(HTTPStatus.NOT_FOUND)
        else:
            self._answer(*routes[self.path])

    def _answer(self, make: Callable[[], str], kind: str) -> None:
        body = make().encode(errors="replace")
        self.send_response(HTTPStatus.OK)
        fixed = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY"}
        for name, value in {**fixed, "Content-Type": kind, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *values: object) -> None:
        """Say nothing about single requests."""


def make_server(paths: Iterable[str | Path], port: int = 0, *, rule: str | None = None) -> ThreadingHTTPServer:
    """A server bound to this machine's loopback address; port 0 takes a free one."""
    try:
        return ThreadingHTTPServer((_HOST, port), partial(_Handler, Live(paths, rule)))
    except (OSError, OverflowError) as error:
        raise UserError(f"expected a free port, got {port} ({error}); name another one with --port") from error


def serve(paths: str | Path | Iterable[str | Path], port: int = 8000, *, rule: str | None = None) -> None:
    """Serve the report on loopback until interrupted, refreshed while runs go on."""
    roots = [paths] if isinstance(paths, str | Path) else list(paths)
    with make_server(roots, port, rule=rule) as server:
        print(f"Report at http://{_HOST}:{server.server_port}/ (Ctrl-C ends it)", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("Stopped.")
