"""The served report: loopback only, made again when a run goes on; and files written whole."""

import json
import shutil
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

from ns3l.errors import UserError
from ns3l.report import report, to_json, write_html
from ns3l.report.serve import make_server

STORED = Path(__file__).parent / "stored" / "methods"


@contextmanager
def served(*roots: Path):
    """The address of a report served in a thread."""
    with make_server(roots) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def get(address: str, host: str | None = None) -> tuple[int, str]:
    request = urllib.request.Request(address, headers={"Host": host} if host else {})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


def test_it_listens_on_the_loopback_address_alone():
    with make_server([STORED]) as server:
        assert server.server_address[0] == "127.0.0.1"


def test_other_host_names_and_other_paths_are_refused(tmp_path):
    with served(tmp_path) as address:
        assert get(address + "/version", "evil.example")[0] == 403
        assert get(address + "/../../etc/passwd")[0] == 404
        assert get(address + "/version")[0] == 200


def test_the_page_changes_when_a_run_goes_on(tmp_path):
    shutil.copytree(STORED / "supervised" / "default" / "seed-0", tmp_path / "runs" / "seed-0")
    with served(tmp_path) as address:
        version, page = get(address + "/version")[1], get(address + "/")[1]
        assert f'data-version="{version}"' in page
        assert get(address + "/version")[1] == version
        result = tmp_path / "runs" / "seed-0" / "result.json"
        result.write_text(json.dumps(json.loads(result.read_text()) | {"status": "failed", "reason": "out of luck"}))
        later = get(address + "/version")[1]
        assert later != version
        assert "out of luck" in get(address + "/")[1]


def test_a_folder_without_runs_waits_and_says_so(tmp_path):
    with served(tmp_path / "not-yet") as address:
        assert "not a folder" in get(address + "/")[1]


def test_a_port_that_is_taken_is_a_clear_error():
    with make_server([STORED]) as server, pytest.raises(UserError, match="free port"):
        make_server([STORED], server.server_port)


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    made = report(STORED)
    path = write_html(made, tmp_path / "deep" / "report.html")
    before = path.read_text(encoding="utf-8")
    assert before.startswith("<!doctype html>") and "http" not in before.replace("http-equiv", "").split("<main")[0]

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(UserError, match="No space left"):
        write_html(made, path)
    assert path.read_text(encoding="utf-8") == before
    assert [item.name for item in path.parent.iterdir()] == ["report.html"]


def test_json_holds_tables_and_series():
    told = json.loads(to_json(report(STORED)))
    assert {table["key"] for table in told["tables"]} >= {"results", "runs", "commands"}
    assert told["figures"] and all(figure["title"] for figure in told["figures"])
