"""The command line: `ns3l …`. One file for each group of commands; what is heavy is imported when a command runs."""

from ns3l.cli.app import app, main

__all__ = ["app", "main"]
