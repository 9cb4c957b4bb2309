"""The command line: it reads options, calls the package, and turns errors into one line.

Commands are imported when they are called (`fcfl.cli.commands`).
"""

import signal
import sys
from collections.abc import Sequence
from typing import Annotated

from cyclopts import Parameter

from fcfl.errors import ManyClients

from .commands import make_app
from .console import confirm, flag, one_line_errors

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; a termination signal leaves a checkpoint, as Ctrl-C does."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    words = list(sys.argv[1:] if arguments is None else arguments)
    app = make_app(next((word for word in words if not word.startswith("-")), ""))

    app.meta.suppress_keyboard_interrupt = False  # which `App.meta` does not take from the app

    @app.meta.default
    def run(
        *words: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
        debug: Annotated[bool, flag("Show the traceback of an error.")] = False,
    ) -> None:
        app(words)

    with one_line_errors(words, "--debug" in words):  # also while a command is imported
        try:
            app.meta(words)
        except ManyClients as many:
            confirm(many)
            app.meta([*words, f"--max-clients={many.count}"])
