"""fcfl nvflare: train where rows stay with their owner, over NVIDIA FLARE."""

import shlex
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter, validators
from rich.table import Table

from fcfl.engines.nvflare.kit_names import AUTHORITY, KITS, LEAD, check_path, check_sites
from fcfl.engines.nvflare.project_folder import read_settings, write_project
from fcfl.engines.rehearsal_files import (
    REHEARSAL,
    check_installed,
    default_out,
    named_files,
    node_configs,
)
from fcfl.errors import FCFLError, Interrupted
from fcfl.runs import Experiment
from fcfl.runs.site_config import (
    SitesConfig,
    config_text,
    parse_settings,
    run_config,
)
from fcfl.runs.site_values import site_names

from .commands import COMMANDS
from .console import flag, out_console, say, usage
from .over_sites import (
    Folder,
    Setting,
    SiteFiles,
    SitePolicy,
    Sites,
    command_to_go_on,
    show_run,
)
from .settings import NOTHING, AtLeastOne, Given, Overwrite, Resume, takes
from .train import check_resume

app = App(name="nvflare", help=COMMANDS["nvflare"])

_NOT_HERE = ("nodes",)  # names are bound to certificates, nothing is to be set
_SHOWN = 5  # jobs in a status

Host = Annotated[
    str,
    Parameter(
        metavar="HOST",
        help="The name under which sites reach the server; localhost stays on this machine.",
    ),
]
Port = Annotated[
    int,
    Parameter(
        validator=validators.Number(gte=1, lte=65535), help="The one port that is open there."
    ),
]
Tries = Annotated[AtLeastOne, Parameter(help="How often a run is submitted, faults included.")]
Wait = Annotated[float, Parameter(metavar="SECONDS", help="How long to wait for whoever is away.")]


@app.command(
    help_epilogue="Example:\n\n  fcfl nvflare new app --sites north,south,west --label died "
    "--sensitive race --budget 0.05",
)
@takes(Experiment, "label", "sensitive", "budget")
def new(
    folder: Folder,
    /,
    *,
    given: Given = NOTHING,
    sites: Sites = "",
    overwrite: Annotated[bool, flag("Replace the files of an existing project.")] = False,
) -> None:
    """Write the folder of a project: settings with comments, and a README.

    What is not given here can be filled in later, in settings.toml.
    """
    with usage():
        names = site_names("sites", sites) if sites else ()
    config = {"out": default_out(folder)} | run_config({**given, "sites": names})
    check_sites(names)
    text = config_text(config, without=_NOT_HERE)
    for path in write_project(folder, text, overwrite=overwrite):
        say(f"wrote {path}")
    named = shlex.quote(",".join(names) or "north,south")
    where = shlex.quote(str(folder))
    say(f"Next: fcfl nvflare provision {where} --sites {named} --host server.example.org")


@app.command(
    help_epilogue="Example:\n\n  fcfl nvflare provision app --sites north,south,west "
    "--host server.example.org",
)
def provision(folder: Folder, /, *, sites: Sites, host: Host, port: Port = 8002) -> None:
    """Make a kit for the server, for each site and for the lead, in FOLDER/kits.

    Kits that are there are kept, so that a site can be added later. A kit has its own key
    and closed policies: no code comes with a job, only fcfl's own classes run, logs stay.
    Give each site its kit and nothing else; FOLDER/authority has the CA's key and stays.
    """
    _check_engine()
    from fcfl.engines.nvflare.kits import make_kits

    check_path(folder)
    with usage():
        names = site_names("sites", sites)
    made = make_kits(folder, names, host, port)
    for name, path in made.items():
        say(f"wrote {path}  (private, for {name} only)")
    if not made:
        say(f"Everything is in {folder / KITS} already.")
    say(f"The CA's key is in {folder / AUTHORITY}; keep it to yourself.")


@app.command(
    help_epilogue="Examples:\n\n  fcfl nvflare up app --sites north=north.csv,south=south.csv "
    "--label died --sensitive race --budget 0.05\n\n"
    "  fcfl nvflare up app --sites north=north.csv,south=south.csv --resume",
)
@takes(Experiment, "label", "sensitive", "positive", "drop", "budget")
@takes(SitesConfig, "site_timeout", "max_age", into="timing")
def up(
    folder: Folder,
    /,
    *,
    sites: SiteFiles,
    given: Given = NOTHING,
    timing: Given = NOTHING,
    site_policy: SitePolicy = None,
    setting: Setting = (),
    out: Annotated[
        Path | None, Parameter(help="Folder to write. Default: FOLDER/runs/rehearsal.")
    ] = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
) -> None:
    """Rehearse on this machine: a server and a node for each site, with your own files.

    Makes kits for 127.0.0.1, starts them, trains, and stops everything, also on Ctrl-C.

    Exit codes: 0 budgets met on the training rows, 1 an error, 2 wrong usage,
    3 done, but a budget is exceeded on the training rows, or the model selects
    nearly nobody, nearly everybody, or fewer than half as many as without budgets.
    """
    _check_engine()
    check_resume(resume, overwrite)
    from fcfl.engines.nvflare.flare_rehearsal import rehearse_flare

    with usage():
        files = named_files("sites", sites)
        own = {
            "sites": tuple(files),
            "out": (out or folder / "runs" / REHEARSAL).absolute(),
            "resume": resume,
            "overwrite": overwrite,
        }
        config = read_settings(folder) | parse_settings(setting)
        config |= run_config({**given, **timing, **own})
        run = SitesConfig.from_run_config(config)
        nodes = node_configs(files, named_files("site-policy", site_policy or ""), folder)
    check_sites(list(files))
    try:
        rehearse_flare(folder, nodes, config, say)
    except KeyboardInterrupt:
        how = command_to_go_on(run)
        raise Interrupted(f"Stopped. Continue with: {how}") from None
    show_run(run)


@app.command(
    help_epilogue="Examples:\n\n  fcfl nvflare run app\n\n  fcfl nvflare run app --resume\n\n"
    "  fcfl nvflare run app --set budget=0.02 --set out=/srv/fcfl/runs/second",
)
def run(
    folder: Folder,
    /,
    *,
    setting: Setting = (),
    tries: Tries = 5,
    wait: Wait = 600.0,
    resume: Resume = False,
    overwrite: Overwrite = False,
) -> None:
    """Train over the sites, with the lead's kit; after a fault, go on by itself.

    Waits for all sites, submits a job and shows what it says. Where a site, the job or the
    server was killed, it waits until they are back and submits again with resume: the model
    is the same. Ctrl-C stops the run.
    """
    _check_engine()
    check_resume(resume, overwrite)
    from fcfl.engines.nvflare.flare_session import Flare
    from fcfl.engines.nvflare.recovery import Patience, run_through_faults

    with usage():
        config = read_settings(folder) | parse_settings(setting)
        config |= {"resume": resume, "overwrite": overwrite}
        checked = SitesConfig.from_run_config(config)
    try:
        with Flare(folder / KITS / LEAD) as flare:
            run_through_faults(flare, checked.sites, config, Patience(tries, wait), say)
    except KeyboardInterrupt:
        how = command_to_go_on(checked)
        raise Interrupted(f"Stopped. Continue with: {how}") from None
    if checked.written.exists():
        show_run(checked)
    else:
        say(f"Done. The result is at the server, in {checked.folder}")


@app.command(help_epilogue="Example:\n\n  fcfl nvflare status app")
def status(folder: Folder, /) -> None:
    """Show which sites are connected, and the last runs."""
    _check_engine()
    from fcfl.engines.nvflare.flare_session import Flare

    with Flare(folder / KITS / LEAD) as flare:
        found = flare.status()
    say(f"Connected: {', '.join(found.sites) or 'no site'}")
    if not found.jobs:
        say("No run was submitted.")
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("run", "status", "submitted"):
        table.add_column(heading)
    for job in found.jobs[:_SHOWN]:
        table.add_row(job.job_id, job.status, job.submitted)
    out_console.print(table)


@app.command(help_epilogue="Example:\n\n  fcfl nvflare stop app")
def stop(folder: Folder, /) -> None:
    """Stop the run that is under way; its checkpoint stays, and `run --resume` goes on."""
    _check_engine()
    from fcfl.engines.nvflare.flare_session import Flare

    with Flare(folder / KITS / LEAD) as flare:
        at_work = [job for job in flare.status().jobs if not job.is_over]
        for job in at_work:
            flare.abort(job.job_id)
            say(f"stopped {job.job_id}")
    if not at_work:
        raise FCFLError("No run is under way.")


def _check_engine() -> None:
    check_installed("nvflare", "nvflare", "NVIDIA FLARE")
