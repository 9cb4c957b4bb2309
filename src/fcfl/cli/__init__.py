"""The command line: it reads options, calls the package, and turns errors into one line.

Each command is a module of its name, imported when it is called (`fcfl.cli.commands`).
"""

import signal
from typing import Annotated

import typer

from fcfl import __version__

from .console import app, out_console

__all__ = ["app", "main"]


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        out_console.print(f"fcfl {__version__}", highlight=False)
        raise typer.Exit


def main() -> None:
    """Entry point; a termination signal leaves a checkpoint, as Ctrl-C does."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    app()
