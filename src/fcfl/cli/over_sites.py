"""What commands of both engines have in common: options, the result, how to go on."""

import shlex
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from fcfl._files import read_json
from fcfl.report.method_tables import methods_table
from fcfl.report.terminal import print_result
from fcfl.results import read_comparison, read_result
from fcfl.results.findings import findings_of
from fcfl.results.negotiation import Negotiation
from fcfl.runs.site_config import SitesConfig
from fcfl.runs.site_run import has_begun

from .console import FAILED, INFEASIBLE, command_line, out_console, say
from .negotiate import show_negotiation
from .sweep import curve_table

Folder = Annotated[Path, Parameter(help="Folder of the app.")]
Sites = Annotated[str, Parameter(metavar="NAME,…", help="Names of all sites, separated by commas.")]
SiteFiles = Annotated[
    str, Parameter(metavar="NAME=FILE,…", help="Every site with its CSV, Parquet or xlsx file.")
]
SitePolicy = Annotated[
    str | None, Parameter(metavar="NAME=FILE,…", help="Policy files of sites that have one.")
]
Setting = Annotated[
    tuple[str, ...],
    Parameter(
        "--set",
        metavar="KEY=VALUE",
        help="Any other key of the settings; may be repeated.",
        show_default=False,
    ),
]


def show_run(run: SitesConfig) -> None:
    """What the command of the same name shows; its exit code, too."""
    say(f"Written to {run.folder}")
    if run.command == "compare":
        comparison = read_comparison(run.written)
        out_console.print(methods_table(comparison, out_console.width), "")
        if any(one.part is None for one in comparison.runs):
            raise SystemExit(FAILED)
        return
    if run.command == "negotiate":
        show_negotiation(read_json(run.written, Negotiation))
        return
    result = read_result(run.written)
    if result.sweep:
        out_console.print(curve_table(result.sweep))
        met = all(point.is_success for point in result.sweep)
    else:
        print_result(out_console, result)
        met = not findings_of(result)
    if not met:
        raise SystemExit(INFEASIBLE)


def command_to_go_on(run: SitesConfig) -> str:
    """The command as it was given, with --resume where the run has begun to write its folder."""
    if not has_begun(run):
        return shlex.join(["fcfl", *command_line])
    kept = (word for word in command_line if word not in ("--resume", "--overwrite"))
    return shlex.join(["fcfl", *kept, "--resume"])
