"""Every command has a help page with an example, and the program names them all."""

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from ns3l.cli import app


def commands(command=None, path=()):
    """The words of every command and group."""
    command = command or get_command(app)
    yield path
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*path, name))


@pytest.mark.parametrize("path", list(commands()), ids=" ".join)
def test_help_has_an_example(path):
    shown = CliRunner().invoke(app, [*path, "--help"], prog_name="ns3l", env={"COLUMNS": "120", "TERM": "dumb"})
    assert shown.exit_code == 0
    words = " ".join(("ns3l", *path))
    assert "Examples:" in shown.output
    assert f"$ {words}" in shown.output, "an example of this very command"


def test_help_names_every_command_of_the_contract():
    names = get_command(app).commands
    wanted = "train study reproduce search report list show data predict evaluate export label demo"
    assert not set(wanted.split()) - set(names)


def test_completion_knows_data_and_sums_of_methods(tmp_path, monkeypatch):
    from ns3l.cli.options import complete_data, complete_method

    monkeypatch.chdir(tmp_path)
    (tmp_path / "digital.csv").touch()
    assert complete_data("dig") == ["digits", "digital.csv"]
    assert "vat+ns3l" in complete_method("vat+ns")
    assert "supervised" in complete_method("sup")
