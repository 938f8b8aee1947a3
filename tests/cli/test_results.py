"""`ns3l report`, `list` and `show`."""

import csv
import io
import json

import pytest
from tests.cli.terminal import ns3l

from ns3l.methods import METHODS
from ns3l.recipes import ITEMS, PUBLISHED


def test_report_in_every_form(run, tmp_path):
    assert "supervised" in ns3l("report", run).out
    assert ns3l("report", run, "--format", "markdown").out.startswith("# Report on digits")
    assert "tabular" in ns3l("report", run, "--format", "latex").out
    assert list(csv.reader(io.StringIO(ns3l("report", run, "--format", "csv").out)))
    assert json.loads(ns3l("report", run, "--json").out)["title"] == "Report on digits"
    ended = ns3l("report", run, "--html", tmp_path / "r.html", "--format", "text", "--out", tmp_path / "r.txt")
    assert ended.code == 0
    assert not ended.out
    assert (tmp_path / "r.html").read_text().startswith("<!")
    assert "supervised" in (tmp_path / "r.txt").read_text()


@pytest.mark.parametrize(
    "words", [("none",), ("RUN", "--format", "pdf"), ("RUN", "--rule", "best"), ("RUN", "--out", "none/r.txt")]
)
def test_report_wrongly(run, words):
    ended = ns3l("report", *(run if word == "RUN" else word for word in words))
    assert ended.code == 2
    assert "Traceback" not in ended.err


def test_list(run):
    told = {what: json.loads(ns3l("list", what, "--json").out) for what in ("methods", "data", "recipes", "items")}
    assert [row["method"] for row in told["methods"]] == list(METHODS)
    assert "digits" in [row["data"] for row in told["data"]]
    assert [row["recipe"] for row in told["recipes"]] == list(PUBLISHED)
    assert [row["item"] for row in told["items"]] == list(ITEMS)
    (found,) = json.loads(ns3l("list", "runs", run, "--json").out)
    assert (found["status"], found["step"]) == ("complete", 3)
    assert "vat" in ns3l("list").out
    assert "did you mean items" in ns3l("list", "itmes").err


def test_show(run):
    shown = ns3l("show", "vat+ns3l", "--data", "svhn", "--set", "ns3l.weight=0.7").out
    assert "ns3l.weight" in shown
    assert "set by the user" in shown
    assert json.loads(ns3l("show", "table1/cifar10/vat", "--json").out) == PUBLISHED["table1/cifar10/vat"]().to_dict()
    assert json.loads(ns3l("show", run, "--json").out)["steps"] == 3
    assert "did you mean table1/cifar10/vat" in ns3l("show", "table1/cifar10/vatt").err
    assert "for methods" in ns3l("show", "table1/cifar10/vat", "--data", "svhn").err
    assert ns3l("show", "nsl").code == 2
