"""The command line: it reads options, calls the package, and turns errors into one line.

`COMMANDS` are in the order in which a person meets them. ``fcfl --help`` shows these lines without
importing a command: pandas, SciPy and scikit-learn take seconds to import. Another distribution
adds a command as an entry point of the group ``fcfl.commands``, or a command of ``fcfl data`` under
a name that begins with ``data.``; its line is the summary of the distribution.
"""

import signal
import sys
from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Annotated

from cyclopts import App, Parameter

from fcfl import __version__
from fcfl.errors import ManyClients

from .console import confirm, err_console, flag, one_line_errors, out_console, remember_arguments

__all__ = ["main"]

COMMANDS = {
    "demo": "Train on Adult with a budget of .05 per client for race, beside plain FedAvg.",
    "train": "Train one model for all clients of a table, each within its disparity budget.",
    "predict": "Predict new rows: the table with two more columns, score and prediction.",
    "audit": "Audit any model's predictions: each client's disparity against its budget.",
    "report": "Write report.html again from a folder's files, or compare several folders.",
    "export": "Write a trained model for other programs.",
    "card": "Write what must be handed in about a model: tables, metrics, verdicts, in a given "
    "form.",
    "sweep": "Train under one budget after another: what each tightening costs.",
    "compare": "Run several methods on the same rows, from the same start, with the same model.",
    "negotiate": "Find budgets that all clients could accept: try combinations, and vote.",
    "nvflare": "Train where rows never leave their owner, over NVIDIA FLARE.",
    "flower": "Write the app with which a Flower SuperLink trains over its sites.",
    "site": "A site's own side: what it was asked, and what that has cost of its privacy.",
    "data": "List the built-in data sets, or describe one: rows, groups, label rates.",
}
_MODULES = {
    "train": ("demo", "train", "data"),
    "many_runs": ("sweep", "compare", "negotiate"),
    "results": ("predict", "audit", "report", "export", "card"),
}
PLACES = {name: f"fcfl.cli.{name}:app" for name in ("nvflare", "flower", "site")}
PLACES |= {
    name: f"fcfl.cli.{module}:{name}_app" for module, names in _MODULES.items() for name in names
}
"""Where each command is, as an import path."""


def make_app(asked: str = "") -> App:
    """Return all commands, each imported when it is called.

    The command ``asked`` has the help of its module, the others the line above.
    """
    app = App(
        name="fcfl",
        help="Federated learning with a disparity budget for each client.",
        version=f"fcfl {__version__}",
        default_parameter=Parameter(negative=(), allow_repeating=True),
        group_parameters="Options",
        console=out_console,
        error_console=err_console,
        config=remember_arguments,
        suppress_keyboard_interrupt=False,
        result_action="return_value",
        exit_on_error=False,
        print_error=False,
    )
    app.register_install_completion_command(help="Install completion for this shell.")
    for place, (name, line) in enumerate(COMMANDS.items()):
        app.command(PLACES[name], name=name, help=None if name == asked else line, sort_key=place)
    for entry in entry_points(group="fcfl.commands"):
        if "." not in entry.name:
            help = entry.dist.metadata["Summary"] if entry.dist and entry.name != asked else None
            app.command(entry.value, name=entry.name, help=help, sort_key=len(COMMANDS))
    return app


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
