"""Command fcfl nvflare: train over sites that keep their rows, with NVIDIA FLARE."""

import importlib.util
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter, validators
from rich.table import Table

from fcfl._files import parse_toml
from fcfl.cli import COMMANDS
from fcfl.errors import FCFLError, Interrupted
from fcfl.runs import Experiment, site_config
from fcfl.runs.options import read_pairs, read_sites
from fcfl.sites.settings import ConfigValue

from .console import how_to_continue, out_console, say, usage
from .flower import Folder, Replace, Sites, new_config
from .settings import NOTHING, AtLeastOne, Given, Overwrite, Resume, takes
from .show import finish

if TYPE_CHECKING:
    from fcfl.engines.nvflare.lead import Flare

app = App(name="nvflare", help=COMMANDS["nvflare"])

_SETTINGS = "settings.toml"
_HEAD = "# Every key can be set for one run: fcfl nvflare run FOLDER --set KEY=VALUE\n"
_IGNORED = "authority/\nkits/\nrehearsal/\nruns/\n"
_SHOWN = 5  # number of jobs that the status shows

SiteFiles = Annotated[
    str, Parameter(metavar="NAME=FILE,…", help="CSV, Parquet or xlsx file of each site.")
]
SitePolicy = Annotated[
    str, Parameter(metavar="NAME=FILE,…", help="Policy files of sites with a policy.")
]
SetKeys = Annotated[
    tuple[str, ...],
    Parameter(
        "--set",
        metavar="KEY=VALUE",
        help="Value of any other key of the settings. May be repeated.",
        show_default=False,
    ),
]
Host = Annotated[
    str, Parameter(metavar="HOST", help="Host name of the server, as sites resolve it.")
]
Port = Annotated[
    int, Parameter(validator=validators.Number(gte=1, lte=65535), help="Open port of the server.")
]
Tries = Annotated[AtLeastOne, Parameter(help="Maximum number of submissions, including the first.")]
Wait = Annotated[float, Parameter(metavar="SECONDS", help="Maximum time to wait for sites.")]


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
    overwrite: Replace = False,
) -> None:
    """Write the folder of an app: settings with comments.

    Settings that are not given as options can be added to settings.toml later.
    """
    config = new_config(folder, given, sites)
    text = _HEAD + site_config.config_text(
        config, without=("nodes",)
    )  # certificates name the sites
    site_config.write_app(folder, {_SETTINGS: text, ".gitignore": _IGNORED}, overwrite=overwrite)
    say(f"wrote {folder / _SETTINGS}")
    where, named = shlex.quote(str(folder)), config["sites"] or "north,south"
    say(f"Next: fcfl nvflare provision {where} --sites {named} --host server.example.org")


@app.command(
    help_epilogue="Example:\n\n  fcfl nvflare provision app --sites north,south,west "
    "--host server.example.org",
)
def provision(folder: Folder, /, *, sites: Sites, host: Host, port: Port = 8002) -> None:
    """Make startup kits for the server, each site and the lead, in FOLDER/kits.

    Existing kits are kept, so that sites can be added later. Each kit has its own
    key and strict policies: a job contains no code and can only use classes of fcfl,
    and logs stay at the site. Give each site only its own kit. FOLDER/authority has the
    private key of the certificate authority; keep it secret.
    """
    _check_engine()
    from fcfl.engines.nvflare.kits import make_kits

    with usage():
        names = read_sites("sites", sites)
    made = make_kits(folder, names, host, port)
    for name, path in made.items():
        say(f"wrote {path}  (private, for {name} only)")
    if not made:
        say(f"All kits exist in {folder / 'kits'}.")
    say(f"The CA's private key is in {folder / 'authority'}; keep it secret.")


@app.command(
    help_epilogue="Examples:\n\n  fcfl nvflare up app --sites north=north.csv,south=south.csv "
    "--label died --sensitive race --budget 0.05\n\n"
    "  fcfl nvflare up app --sites north=north.csv,south=south.csv --resume",
)
@takes(Experiment, "label", "sensitive", "positive", "drop", "budget")
@takes(site_config.SitesConfig, "site_timeout", "max_age", into="timing")
def up(
    folder: Folder,
    /,
    *,
    sites: SiteFiles,
    given: Given = NOTHING,
    timing: Given = NOTHING,
    site_policy: SitePolicy = "",
    setting: SetKeys = (),
    out: Annotated[
        Path | None, Parameter(help="Folder to write. Default: FOLDER/runs/rehearsal.")
    ] = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
) -> None:
    """Rehearse on this machine: a server and a node for each site, with your own files.

    Makes kits for 127.0.0.1, starts their processes, trains, and stops all
    processes at the end or on Ctrl-C.

    Exit codes: 0 budgets met on the training rows, 1 an error, 2 wrong usage,
    3 done, but a budget is exceeded on the training rows, or the model selects
    nearly nobody, nearly everybody, or fewer than half as many as without budgets.
    """
    _check_engine()
    from fcfl.engines.nvflare.rehearsal import rehearse

    with usage():
        files, policies = _files("sites", sites), _files("site-policy", site_policy)
        own = {
            "sites": tuple(files),
            "out": (out or folder / "runs" / "rehearsal").absolute(),
            "resume": resume,
            "overwrite": overwrite,
        }
        config = _read_settings(folder) | site_config.parse_settings(setting)
        config |= site_config.run_config({**given, **timing, **own})
        run = site_config.SitesConfig.from_run_config(config)
        for name in policies:
            if name not in files:
                raise ValueError(f"`site-policy` must name sites in `sites`, got {name!r}.")
    nodes = {name: {"name": name, "table": str(path)} for name, path in files.items()}
    for name, path in policies.items():
        nodes[name]["policy"] = str(path)
    try:
        rehearse(folder / "rehearsal", nodes, config, say)
    except KeyboardInterrupt:
        raise Interrupted(f"Stopped. {how_to_continue()}") from None
    finish(run.out)


@app.command(
    help_epilogue="Examples:\n\n  fcfl nvflare run app\n\n  fcfl nvflare run app --resume\n\n"
    "  fcfl nvflare run app --set budget=0.02 --set out=/srv/fcfl/runs/second",
)
def run(
    folder: Folder,
    /,
    *,
    setting: SetKeys = (),
    tries: Tries = 5,
    wait: Wait = 600.0,
    resume: Resume = False,
    overwrite: Overwrite = False,
) -> None:
    """Train over the sites, with the lead's kit; continue after faults.

    Waits for all sites, submits a job and shows its log. If a site, the job or the
    server is killed, waits until the server and all sites are available and submits
    the job again with resume. The resulting model is the same as without the fault.
    The run ends if a site rejects a request, and on Ctrl-C.
    """
    with usage():
        config = _read_settings(folder) | site_config.parse_settings(setting)
        config |= {"resume": resume, "overwrite": overwrite}
        checked = site_config.SitesConfig.from_run_config(config)
    try:
        with _server(folder) as flare:
            flare.train(checked.sites, config, tries=tries, seconds=wait, on_message=say)
    except KeyboardInterrupt:
        raise Interrupted(f"Stopped. {how_to_continue()}") from None
    if checked.written.exists():
        finish(checked.out)
    else:
        say(f"Done. The result is at the server, in {checked.out}")


@app.command(help_epilogue="Example:\n\n  fcfl nvflare status app")
def status(folder: Folder, /) -> None:
    """Show the connected sites and the last runs."""
    with _server(folder) as flare:
        sites, jobs = flare.sites(), flare.jobs()
    say(f"Connected: {', '.join(sites) or 'no site'}")
    if not jobs:
        say("Submitted runs: none")
        return
    table = Table("run", "status", "submitted", box=None, pad_edge=False)
    for job in jobs[:_SHOWN]:
        table.add_row(job.job_id, job.status, job.submitted)
    out_console.print(table)


@app.command(help_epilogue="Example:\n\n  fcfl nvflare stop app")
def stop(folder: Folder, /) -> None:
    """Stop the current run and keep its checkpoint; `run --resume` continues the run."""
    with _server(folder) as flare:
        running = [job.job_id for job in flare.jobs() if not job.is_over]
        for job_id in running:
            flare.abort(job_id)
            say(f"stopped {job_id}")
    if not running:
        raise FCFLError("There is no current run.")


def _check_engine() -> None:
    """Raise `FCFLError` if NVIDIA FLARE is not installed."""
    if importlib.util.find_spec("nvflare") is None:
        raise FCFLError("NVIDIA FLARE is not installed: pip install 'fcfl[nvflare]'")


def _server(folder: Path) -> "Flare":
    _check_engine()
    from fcfl.engines.nvflare.lead import Flare

    return Flare(folder)


def _read_settings(folder: Path) -> dict[str, ConfigValue]:
    path = folder / _SETTINGS
    if not path.exists():
        raise FCFLError(f"There is no app in {str(folder)!r}. Create one: fcfl nvflare new")
    return parse_toml(path.read_bytes(), repr(str(path)))


def _files(option: str, text: str) -> dict[str, Path]:
    """Return absolute paths by name from ``north=a.csv,south=b.csv``, if the files exist."""

    def read(path: str) -> Path:
        if not Path(path).is_file():
            raise ValueError(path)
        return Path(path).absolute()

    what = "NAME=FILE, separated by commas, with existing files"
    return read_pairs(option, text, read, what) if text else {}
