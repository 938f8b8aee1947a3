"""`ns3l study`, `reproduce` and `search`: many runs and what they show."""

import typer


def add_to(app: typer.Typer) -> None:
    """Register the commands of this file."""
