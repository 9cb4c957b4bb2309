"""What commands of both engines have in common: options, the result, how to go on."""

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from fcfl.report.method_tables import methods_table
from fcfl.report.terminal import print_result
from fcfl.results import read_comparison, read_result
from fcfl.results.findings import findings_of
from fcfl.results.result_file import read_negotiation
from fcfl.runs.site_config import SitesConfig
from fcfl.runs.site_run import has_begun

from .console import FAILED, INFEASIBLE, out_console, say
from .negotiate import show_negotiation
from .options import was_given
from .sweep import curve_table

Folder = Annotated[Path, typer.Argument(help="Folder of the app.", show_default=False)]
Given = dict[str, object]
Sites = Annotated[
    str, typer.Option(metavar="NAME,…", help="Names of all sites, separated by commas.")
]
SiteFiles = Annotated[
    str, typer.Option(metavar="NAME=FILE,…", help="Every site with its CSV, Parquet or xlsx file.")
]
SitePolicy = Annotated[
    str | None, typer.Option(metavar="NAME=FILE,…", help="Policy files of sites that have one.")
]
Setting = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Any other key of the settings; may be repeated."
    ),
]


def show_run(run: SitesConfig) -> None:
    """What the command of the same name shows; its exit code, too."""
    say(f"Written to {run.folder}")
    if run.command == "compare":
        comparison = read_comparison(run.written)
        out_console.print(methods_table(comparison), "")
        if any(one.part is None for one in comparison.runs):
            raise typer.Exit(FAILED)
        return
    if run.command == "negotiate":
        show_negotiation(read_negotiation(run.written))
        return
    result = read_result(run.written)
    if result.sweep:
        out_console.print(curve_table(result.sweep))
        met = all(point.budgets_met for point in result.sweep)
    else:
        print_result(out_console, result)
        met = not findings_of(result)
    if not met:
        raise typer.Exit(INFEASIBLE)


def command_to_go_on(context: typer.Context, run: SitesConfig, *names: str) -> str:
    """The command as it was given, with --resume where the run has begun to write its folder."""
    begun = has_begun(run)
    parts = ["fcfl", *names]
    for parameter in context.command.params:
        name = str(parameter.name)
        if was_given(name) and not (begun and name in ("resume", "overwrite")):
            parts += _as_given(parameter, context.params[name])
    return shlex.join([*parts, "--resume"] if begun else parts)


def _as_given(parameter: Any, value: Any) -> list[str]:
    """A parameter of a command as words of its line."""
    if parameter.param_type_name == "argument":
        return [str(value)]
    option = parameter.opts[0]
    if parameter.is_flag:
        return [option] if value else []
    values = value if isinstance(value, (list, tuple)) else [value]
    return [word for one in values for word in (option, str(one))]
