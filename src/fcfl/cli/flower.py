"""Command fcfl flower: write the app that a SuperLink runs."""

import shlex
from importlib import resources
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from fcfl import __version__
from fcfl.cli import COMMANDS
from fcfl.runs import Experiment
from fcfl.runs.options import read_sites
from fcfl.runs.site_config import config_text, run_config, write_app
from fcfl.sites.settings import ConfigValue

from .console import flag, say, usage
from .settings import NOTHING, Given, takes

app = App(name="flower", help=COMMANDS["flower"])

Folder = Annotated[Path, Parameter(help="Folder of the app.")]
Sites = Annotated[str, Parameter(metavar="NAME,…", help="Names of all sites, separated by commas.")]
Replace = Annotated[bool, flag("Replace the files of an existing app.")]


@app.command(
    help_epilogue="Example:\n\n  fcfl flower new app --sites north,south,west --label died "
    "--sensitive race --budget 0.05",
)
@takes(Experiment, "label", "sensitive", "budget")
def new(
    folder: Folder,
    /,
    *,
    given: Given = NOTHING,
    sites: Sites = "",
    overwrite: Replace = False,
) -> None:
    """Write the folder of a Flower app: settings with comments. The app's code is part of fcfl.

    Settings that are not given as options can be added to pyproject.toml later.
    """
    template = resources.files("fcfl.engines.flower").joinpath("app.toml")
    text = template.read_text(encoding="utf-8").replace("{version}", __version__)
    text = text.replace("{config}", config_text(new_config(folder, given, sites)))
    write_app(folder, {"pyproject.toml": text}, overwrite=overwrite)
    say(f"wrote {folder / 'pyproject.toml'}")
    say(f"Next: flwr run {shlex.quote(str(folder))} CONNECTION --stream")


def new_config(folder: Path, given: Given, sites: str) -> dict[str, ConfigValue]:
    """Return the run config of a new app."""
    with usage():
        names = read_sites("sites", sites) if sites else ()
        return run_config({**given, "sites": names, "out": (folder / "runs" / "run").absolute()})
