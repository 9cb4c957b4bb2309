"""The command line: options, calls of the package, and errors as one line.

`COMMANDS` are in the order in which users need them. ``fcfl --help`` shows these lines without
importing the commands, because pandas, SciPy and scikit-learn take seconds to import.

Another distribution can add commands as entry points in the group ``fcfl.commands``. The entry
point ``NAME`` adds ``fcfl NAME``, and ``data.NAME`` adds ``fcfl data NAME``. The line of ``fcfl
NAME`` in ``fcfl --help`` is the summary of its distribution.
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
    "demo": "Train on Adult with a budget of .05 per client for race, and compare with FedAvg.",
    "train": "Train one model for all clients of a table, each within its disparity budget.",
    "predict": "Predict the rows of a table; adds the columns score and prediction.",
    "audit": "Audit any model's predictions: compare each client's disparity with its budget.",
    "report": "Write report.html again from a folder's files, or compare several folders.",
    "export": "Write a trained model for other programs.",
    "card": "Write a model card in a required form, with tables, metrics and verdicts.",
    "sweep": "Train with several budgets and report the cost of each.",
    "compare": "Compare several methods with the same rows, the same start and the same model.",
    "negotiate": "Find budgets that all clients accept: train combinations and count votes.",
    "nvflare": "Train over sites that keep their rows, with NVIDIA FLARE.",
    "flower": "Write the app with which a Flower SuperLink trains over its sites.",
    "site": "Show the requests that a site has answered and its spent privacy budget.",
    "data": "List the built-in data sets, or describe a data set: rows, groups, label rates.",
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
"""Import path of each command."""


def make_app(called: str = "") -> App:
    """Return an app with all commands, which are imported when they are called.

    The help of the command ``called`` is read from its module, that of the others from `COMMANDS`.
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
        app.command(PLACES[name], name=name, help=None if name == called else line, sort_key=place)
    for entry in entry_points(group="fcfl.commands"):
        if "." not in entry.name:
            help = entry.dist.metadata["Summary"] if entry.dist and entry.name != called else None
            app.command(entry.value, name=entry.name, help=help, sort_key=len(COMMANDS))
    return app


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; on a termination signal write a checkpoint, as on Ctrl-C."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    words = list(sys.argv[1:] if arguments is None else arguments)
    app = make_app(next((word for word in words if not word.startswith("-")), ""))

    app.meta.suppress_keyboard_interrupt = False  # `App.meta` does not inherit this setting

    @app.meta.default
    def run(
        *words: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
        debug: Annotated[bool, flag("Show the traceback of errors.")] = False,
    ) -> None:
        app(words)

    with one_line_errors(words, "--debug" in words):  # includes errors when importing a command
        try:
            app.meta(words)
        except ManyClients as many:
            confirm(many)
            app.meta([*words, f"--max-clients={many.count}"])
