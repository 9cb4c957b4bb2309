"""fcfl flower: write the app that a SuperLink runs."""

import shlex
from importlib import resources

from cyclopts import App

from fcfl import __version__
from fcfl.runs import Experiment

from .commands import COMMANDS
from .console import say
from .over_sites import Folder, Replace, Sites, write_app
from .settings import NOTHING, Given, takes

app = App(name="flower", help=COMMANDS["flower"])


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
    """Write the folder of a Flower app: settings with comments. The code comes with fcfl.

    Settings that are not given here can be filled in later, in pyproject.toml.
    """
    template = resources.files("fcfl.engines.flower").joinpath("app.toml")
    text = template.read_text(encoding="utf-8").replace("{version}", __version__)
    write_app(folder, {"pyproject.toml": text}, given, sites, overwrite=overwrite)
    say(f"Next: flwr run {shlex.quote(str(folder))} CONNECTION --stream")
