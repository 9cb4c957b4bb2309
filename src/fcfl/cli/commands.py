"""All commands by name, in the order in which a person meets them.

``fcfl --help`` shows these lines without importing a command: pandas, SciPy and scikit-learn take
seconds that nobody who asks for help should wait.
"""

from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click
import typer
from typer.core import TyperGroup

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
    "negotiate": "Which budgets could all clients live with? Try combinations, and vote.",
    "flower": "Train where rows never leave their owner, over Flower.",
    "nvflare": "Train where rows never leave their owner, over NVIDIA FLARE.",
    "site": "A site's own side: its limits, and the ledger of what it has answered.",
    "data": "List the built-in data sets, or describe one: rows, groups, label rates.",
    "reproduce": "Reproduce tables and figures of the paper, theirs and ours side by side.",
}


class CommandGroup(TyperGroup):
    """Lists commands in the order of use, and imports one when it is called."""

    is_listing = False

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of use."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command; while help is written, only its line."""
        if cmd_name not in COMMANDS:
            return None
        if self.is_listing:
            return click.Command(cmd_name, help=COMMANDS[cmd_name])
        if cmd_name not in self.commands:
            self.commands[cmd_name] = load_command(cmd_name)
        return self.commands[cmd_name]

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The help of all commands, without importing them."""
        self.is_listing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self.is_listing = False

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Name what was probably meant, once: click and typer would both do it."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            close = get_close_matches(name, COMMANDS)
            meant = f" Did you mean {close[0]!r}?" if close else ""
            raise click.UsageError(f"No such command {name!r}.{meant}", ctx)
        return super().resolve_command(ctx, args)


def load_command(name: str) -> click.Command:
    """Import the module of a command, and make the command of what it registered."""
    from .console import app

    module: Any = import_module(f"fcfl.cli.{name}")
    made = getattr(module, name)
    if isinstance(made, typer.Typer):
        return typer.main.get_group(made)
    alone = typer.Typer(add_completion=False, rich_markup_mode="rich")
    alone.registered_commands = [
        info for info in app.registered_commands if getattr(info.callback, "__name__", "") == name
    ]
    return typer.main.get_command(alone)
