"""Reports from stored run folders: golden text, damage, hostile names."""

import json
import shutil
from pathlib import Path

from ns3l.report import report, to_csv, to_html, to_latex, to_markdown

HERE = Path(__file__).parent
SEED = Path("methods/ns3l/default/seed-2")


def test_golden(monkeypatch):
    monkeypatch.setattr("ns3l.report.command._default", lambda *_: None)  # whatever the library's recipes become
    made = report(HERE / "stored")
    golden = HERE / "golden"
    assert to_markdown(made) == (golden / "report.md").read_text(encoding="utf-8")
    assert to_csv(made) == (golden / "results.csv").read_text(encoding="utf-8")
    assert to_latex(made) == (golden / "report.tex").read_text(encoding="utf-8")


def test_failed_run_and_damaged_line_are_told_and_left_out(tmp_path):
    shutil.copytree(HERE / "stored", tmp_path / "runs")
    folder = tmp_path / "runs" / SEED
    result = json.loads((folder / "result.json").read_text())
    (folder / "result.json").write_text(json.dumps(result | {"status": "failed", "reason": "not finite"}))
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 5')
    made = report(tmp_path)
    row = next(row for row in made.table("results").rows if "0.04" in row[3].text)
    assert (row[5].text, row[-1].text) == ("2", "2")
    assert any("not finite" in row[9].text and "metrics.jsonl" in row[9].text for row in made.table("runs").rows)


def test_hostile_names_are_escaped(tmp_path):
    shutil.copytree(HERE / "stored" / SEED, tmp_path / "seed-0")
    result = json.loads((tmp_path / "seed-0" / "result.json").read_text())
    hostile = "=1+1</title><script>alert(1)</script>"
    (tmp_path / "seed-0" / "result.json").write_text(json.dumps(result | {"method": hostile, "data": hostile}))
    (tmp_path / "seed-0" / "model.json").write_text(json.dumps({"classes": [hostile, "$x^{", "b"]}))
    made = report(tmp_path)
    assert "<script>alert" not in to_html(made)
    assert to_csv(made).splitlines()[1].startswith("'=")
