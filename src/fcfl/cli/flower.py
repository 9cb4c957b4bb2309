"""fcfl flower: train where rows stay with their owner, over Flower."""

import shlex
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from fcfl.engines.flower.app_folder import read_app_config, write_app, write_app_config
from fcfl.engines.flower.key_names import check_key_names
from fcfl.engines.flower.registration import register_key
from fcfl.engines.flower.rehearsal import CERTIFICATES, certificates_of, rehearse
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
from fcfl.runs.site_values import site_names, site_nodes

from .commands import COMMANDS
from .console import flag, say, usage, words
from .over_sites import (
    Folder,
    Setting,
    SiteFiles,
    SitePolicy,
    Sites,
    command_to_go_on,
    show_run,
)
from .settings import NOTHING, Given, Overwrite, Resume, takes
from .train import check_resume

app = App(name="flower", help=COMMANDS["flower"])

Insecure = Annotated[bool, flag("Without TLS and keys, even if FOLDER/certs exists.")]


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
    overwrite: Annotated[bool, flag("Replace the files of an existing app.")] = False,
) -> None:
    """Write the folder of a Flower app: settings with comments, the two apps, a README.

    What is not given here can be filled in later, in pyproject.toml.
    """
    with usage():
        names = site_names("sites", sites) if sites else ()
    config = {"out": default_out(folder)} | run_config({**given, "sites": names})
    check_key_names(names)
    for path in write_app(folder, config_text(config), overwrite=overwrite):
        say(f"wrote {path}")
    named = shlex.quote(",".join(names) or "north,south")
    say(f"Next: fcfl flower certs {shlex.quote(str(folder))} --sites {named}")


@app.command(
    help_epilogue="Example:\n\n  fcfl flower certs app --sites north,south,west "
    "--host superlink.example.org",
)
def certs(
    folder: Folder,
    /,
    *,
    sites: Sites,
    host: Annotated[
        str | None,
        Parameter(
            metavar="HOST,…",
            help="Names or addresses under which sites reach the server. Loopback is added.",
        ),
    ] = None,
) -> None:
    """Make a CA, a server certificate and a key for each site, in FOLDER/certs.

    Existing keys are kept, so that a site or a host can be added later. Private keys are
    readable by this account only. Give each site ca.crt and its own key, nothing else.
    """
    check_installed("cryptography")
    from fcfl.engines.flower.certificates import make_certificates

    place = folder / CERTIFICATES
    with usage():
        names = site_names("sites", sites)
    made = make_certificates(place, names, words(host))
    for name, path in made.items():
        who = "public" if path.stat().st_mode & 0o044 else "private, keep it so"
        say(f"wrote {place / name}  ({who})")
    if not made:
        say(f"Everything is in {place} already.")


@app.command(
    help_epilogue="Example:\n\n  fcfl flower register app hospitals --sites north,south,west",
)
def register(
    folder: Folder,
    connection: Annotated[str, Parameter(help="The SuperLink's name in Flower's config.toml.")],
    /,
    *,
    sites: Sites,
) -> None:
    """Register the sites' public keys at the SuperLink, and bind their names to them.

    Reads FOLDER/certs/NAME.pub and writes each node's id under `nodes` in
    FOLDER/pyproject.toml: a run then refuses any other key under a site's name.
    """
    check_installed("flwr")
    _check_app(folder)
    with usage():
        names = site_names("sites", sites)
        known = dict(site_nodes("nodes", str(read_app_config(folder).get("nodes", ""))))
    for name in names:
        known[name] = register_key(folder / CERTIFICATES / f"{name}.pub", name, connection)
        text = ",".join(f"{site}={node}" for site, node in known.items())
        write_app_config(folder, "nodes", text)
        say(f"{name} is node {known[name]}")


@app.command(
    help_epilogue="Examples:\n\n  fcfl flower up app --sites north=north.csv,south=south.csv "
    "--label died --sensitive race --budget 0.05\n\n"
    "  fcfl flower up app --sites north=north.csv,south=south.csv --site-policy "
    "north=north-policy.toml --set max-age=2\n\n"
    "  fcfl flower up app --sites north=north.csv,south=south.csv --resume",
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
    insecure: Insecure = False,
) -> None:
    """Rehearse on this machine: a server and a node for each site, with your own files.

    Starts them on 127.0.0.1, trains, and stops them, also on Ctrl-C. With FOLDER/certs
    (from fcfl flower certs) TLS and node keys are on, as in a real deployment.
    A round takes several seconds, whatever the model.

    Exit codes: 0 budgets met on the training rows, 1 an error, 2 wrong usage,
    3 done, but a budget is exceeded on the training rows, or the model selects
    nearly nobody, nearly everybody, or fewer than half as many as without budgets.
    """
    check_installed("flwr")
    check_resume(resume, overwrite)
    _check_app(folder)
    with usage():
        files = named_files("sites", sites)
        own = {
            "sites": tuple(files),
            "out": (out or folder / "runs" / REHEARSAL).absolute(),
            "resume": resume,
            "overwrite": overwrite,
        }
        config = parse_settings(setting) | run_config({**given, **timing, **own})
        run = SitesConfig.from_run_config(read_app_config(folder) | config)
        nodes = node_configs(files, named_files("site-policy", site_policy or ""), folder)
    certificates = certificates_of(folder, list(files), insecure)
    try:
        rehearse(folder, certificates, nodes, config, run.written, say)
    except KeyboardInterrupt:
        how = command_to_go_on(run)
        raise Interrupted(f"Stopped. Continue with: {how}") from None
    show_run(run)


def _check_app(folder: Path) -> None:
    if not (folder / "pyproject.toml").exists():
        how = f"fcfl flower new {shlex.quote(str(folder))}"
        raise FCFLError(f"There is no app in {str(folder)!r}. Make it: {how}")
