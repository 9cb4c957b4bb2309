"""fcfl flower: train where rows stay with their owner, over Flower."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from fcfl.errors import FCFLError, Interrupted
from fcfl.federation.flower.app_folder import read_app_config, write_app, write_app_config
from fcfl.federation.flower.key_names import check_key_names
from fcfl.federation.flower.registration import register_key
from fcfl.federation.flower.rehearsal import CERTIFICATES, certificates_of, rehearse
from fcfl.federation.rehearsal_files import (
    REHEARSAL,
    check_installed,
    default_out,
    named_files,
    node_configs,
)
from fcfl.runs import Experiment
from fcfl.runs.site_config import (
    SitesConfig,
    config_text,
    parse_settings,
    run_config,
)
from fcfl.runs.site_values import site_names, site_nodes

from .console import app, say, usage, words
from .options import Options, Overwrite, Resume, command
from .over_sites import (
    Folder,
    Given,
    Setting,
    SiteFiles,
    SitePolicy,
    Sites,
    command_to_go_on,
    show_run,
)
from .train import check_resume

flower = typer.Typer(
    help="Train where rows never leave their owner, over Flower.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(flower, name="flower")

Insecure = Annotated[
    bool, typer.Option("--insecure", help="Without TLS and keys, even if FOLDER/certs exists.")
]


@command(
    flower,
    epilog="Example:\n\n  fcfl flower new app --sites north,south,west --label died "
    "--sensitive race --budget 0.05",
)
def new(
    folder: Folder,
    given: Annotated[Given, Options(Experiment, "label", "sensitive", "budget", as_given=True)],
    sites: Annotated[Given, Options(SitesConfig, "sites", as_given=True)],
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the files of an existing app.")
    ] = False,
) -> None:
    """Write the folder of a Flower app: settings with comments, the two apps, a README.

    What is not given here can be filled in later, in pyproject.toml.
    """
    config = {"out": default_out(folder)} | run_config(given | sites)
    names = words(str(config.get("sites", "")))
    check_key_names(names)
    for path in write_app(folder, config_text(config), overwrite=overwrite):
        say(f"wrote {path}")
    named = shlex.quote(",".join(names) or "north,south")
    say(f"Next: fcfl flower certs {shlex.quote(str(folder))} --sites {named}")


@command(
    flower,
    epilog="Example:\n\n  fcfl flower certs app --sites north,south,west "
    "--host superlink.example.org",
)
def certs(
    folder: Folder,
    sites: Sites,
    host: Annotated[
        str | None,
        typer.Option(
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
    from fcfl.federation.flower.certificates import make_certificates

    place = folder / CERTIFICATES
    with usage():
        names = site_names("sites", sites)
    made = make_certificates(place, names, words(host))
    for name, path in made.items():
        who = "public" if path.stat().st_mode & 0o044 else "private, keep it so"
        say(f"wrote {place / name}  ({who})")
    if not made:
        say(f"Everything is in {place} already.")


@command(
    flower,
    epilog="Example:\n\n  fcfl flower register app hospitals --sites north,south,west",
)
def register(
    folder: Folder,
    connection: Annotated[
        str, typer.Argument(help="The SuperLink's name in Flower's config.toml.")
    ],
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


@command(
    flower,
    epilog="Examples:\n\n  fcfl flower up app --sites north=north.csv,south=south.csv "
    "--label died --sensitive race --budget 0.05\n\n"
    "  fcfl flower up app --sites north=north.csv,south=south.csv --site-policy "
    "north=north-policy.toml --set max-age=2\n\n"
    "  fcfl flower up app --sites north=north.csv,south=south.csv --resume",
)
def up(
    context: typer.Context,
    folder: Folder,
    sites: SiteFiles,
    given: Annotated[
        Given,
        Options(Experiment, "label", "sensitive", "positive", "drop", "budget", as_given=True),
    ],
    timing: Annotated[Given, Options(SitesConfig, "site_timeout", "max_age", as_given=True)],
    site_policy: SitePolicy = None,
    setting: Setting = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder to write. Default: FOLDER/runs/rehearsal.")
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
    3 done, but a budget is exceeded on the training rows.
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
        config = parse_settings(setting or []) | run_config(given | timing | own)
        run = SitesConfig.from_run_config(read_app_config(folder) | config)
        nodes = node_configs(files, named_files("site-policy", site_policy or ""), folder)
    certificates = certificates_of(folder, list(files), insecure)
    try:
        rehearse(folder, certificates, nodes, config, run.written, say)
    except KeyboardInterrupt:
        how = command_to_go_on(context, run, "flower", "up")
        raise Interrupted(f"Stopped. Go on with: {how}") from None
    show_run(run)


def _check_app(folder: Path) -> None:
    if not (folder / "pyproject.toml").exists():
        how = f"fcfl flower new {shlex.quote(str(folder))}"
        raise FCFLError(f"There is no app in {str(folder)!r}. Make it: {how}")
