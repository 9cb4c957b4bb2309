"""Commands for sites that keep their rows: an app folder, certificates, a rehearsal."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from fcfl.errors import FCFLError, Interrupted
from fcfl.federation.flower.key_names import check_key_names
from fcfl.federation.flower.local_cluster import Machines
from fcfl.report.terminal import print_result
from fcfl.results import read_result
from fcfl.runs import Experiment
from fcfl.runs.folder import SETTINGS
from fcfl.runs.settings import parse_budget
from fcfl.runs.site_config import SitesConfig, site_names

from .console import (
    INFEASIBLE,
    Budget,
    Debug,
    Drop,
    Label,
    Positive,
    Sensitive,
    app,
    one_line_errors,
    out_console,
    say,
    usage,
    words,
)
from .flower_files import write_app
from .flower_options import (
    CERTIFICATES,
    REHEARSAL,
    app_config,
    certificates_of,
    check_installed,
    named_files,
    node_configs,
    settings_of,
)

flower = typer.Typer(
    help="Train where rows never leave their owner, over Flower.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(flower, name="flower")

Folder = Annotated[Path, typer.Argument(help="Folder of the app.", show_default=False)]


@flower.command(
    epilog="Example:\n\n  fcfl flower new app --sites north,south,west --label died "
    "--sensitive race --budget 0.05",
)
def new(
    folder: Folder,
    sites: Annotated[
        str | None, typer.Option(metavar="NAME,…", help="Names of all sites, with commas.")
    ] = None,
    label: Label = None,
    sensitive: Sensitive = None,
    budget: Budget = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the files of an app that is there.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Write the folder of a Flower app: settings with comments, the two apps, a README.

    What is not given here can be filled in later, in pyproject.toml.
    """
    with one_line_errors(debug):
        with usage():
            if sites is not None:
                check_key_names(site_names("sites", sites))
            if budget is not None:
                parse_budget(budget)
        given = {"sites": sites, "label": label, "sensitive": sensitive, "budget": budget}
        known = {key: value for key, value in given.items() if value is not None}
        for path in write_app(folder, known, overwrite=overwrite):
            say(f"wrote {path}")
        named = shlex.quote(sites or "north,south")
        say(f"Next: fcfl flower certs {shlex.quote(str(folder))} --sites {named}")


@flower.command(
    epilog="Example:\n\n  fcfl flower certs app --sites north,south,west "
    "--host superlink.example.org",
)
def certs(
    folder: Folder,
    sites: Annotated[str, typer.Option(metavar="NAME,…", help="Names of all sites, with commas.")],
    host: Annotated[
        str | None,
        typer.Option(
            metavar="HOST,…",
            help="Names or addresses under which sites reach the server. Loopback is added.",
        ),
    ] = None,
    debug: Debug = False,
) -> None:
    """Make a CA, a server certificate and a key for each site, in FOLDER/certs.

    What is there already is kept, so that a site can be added later. Private keys are
    readable by this account only. Give each site ca.crt and its own key, nothing else.
    """
    with one_line_errors(debug):
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


@flower.command(
    epilog="Examples:\n\n  fcfl flower up app --sites north=north.csv,south=south.csv "
    "--label died --sensitive race --budget 0.05\n\n"
    "  fcfl flower up app --sites north=north.csv,south=south.csv --site-policy "
    "north=north-policy.toml --set max-age=2\n\n"
    "  fcfl flower up app --sites north=north.csv,south=south.csv --resume",
)
def up(
    context: typer.Context,
    folder: Folder,
    sites: Annotated[
        str,
        typer.Option(metavar="NAME=FILE,…", help="Every site with its CSV or Parquet file."),
    ],
    label: Label = None,
    sensitive: Sensitive = None,
    positive: Positive = None,
    drop: Drop = None,
    budget: Budget = None,
    site_policy: Annotated[
        str | None,
        typer.Option(metavar="NAME=FILE,…", help="Policy files of sites that have one."),
    ] = None,
    site_timeout: Annotated[
        float | None, typer.Option(help="Seconds to wait for a site in a round.")
    ] = None,
    max_age: Annotated[
        int | None,
        typer.Option(help="Rounds for which the last report of an absent site stays in force."),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Any other key of pyproject.toml; may be repeated."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder to write. Default: FOLDER/runs/rehearsal.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the last checkpoint in --out.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a run with other settings in --out.")
    ] = False,
    insecure: Annotated[
        bool,
        typer.Option("--insecure", help="Without TLS and keys, even if FOLDER/certs is there."),
    ] = False,
    debug: Debug = False,
) -> None:
    """Rehearse on this machine: a server and a node for each site, with your own files.

    Starts them on 127.0.0.1, trains, and stops them, also on Ctrl-C. With FOLDER/certs
    (from fcfl flower certs) TLS and node keys are on, as in the real thing.
    A round takes several seconds, whatever the model.

    Exit codes: 0 budgets met on the training rows, 1 an error, 2 wrong usage,
    3 done, but a budget is exceeded on the training rows.
    """
    with one_line_errors(debug):
        check_installed("flwr")
        if not (folder / "pyproject.toml").exists():
            command = f"fcfl flower new {shlex.quote(str(folder))}"
            raise FCFLError(f"There is no app in {str(folder)!r}. Make it: {command}")
        with usage():
            files = named_files("sites", sites)
            policies = named_files("site-policy", site_policy or "")
            given = {
                "label": label,
                "sensitive": sensitive,
                "positive": positive,
                "drop": drop,
                "budget": budget,
                "site-timeout": site_timeout,
                "max-age": max_age,
            }
            config = {
                **settings_of(setting or []),
                **{key: value for key, value in given.items() if value is not None},
                "sites": ",".join(files),
                "out": str((out or folder / "runs" / REHEARSAL).absolute()),
                "resume": resume,
                "overwrite": overwrite,
            }
            run = SitesConfig.from_run_config(app_config(folder) | config)
            nodes = node_configs(files, policies, folder)
        certificates = certificates_of(folder, list(files), insecure)
        try:
            _rehearse(folder, certificates, nodes, config)
        except KeyboardInterrupt:
            raise Interrupted(f"Stopped. Go on with: {_command_to_go_on(context, run)}") from None
        result = read_result(run.folder / "result.json")
        print_result(out_console, result)
        say(f"Written to {run.folder}")
        if result.deployment is None or not result.deployment.budgets_met:
            raise typer.Exit(INFEASIBLE)


def _command_to_go_on(context: typer.Context, run: SitesConfig) -> str:
    """The command as it was given, with --resume where the run has begun to write its folder."""
    settings = run.folder / SETTINGS
    begun = settings.exists() and Experiment.from_toml(settings) == run.experiment
    parts = ["fcfl", "flower", "up"]
    for parameter in context.command.params:
        name = str(parameter.name)
        source = context.get_parameter_source(name)
        if source is None or source.name != "COMMANDLINE":
            continue
        if begun and name in ("resume", "overwrite"):
            continue
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


def _rehearse(
    folder: Path,
    certificates: Path | None,
    nodes: Mapping[str, Mapping[str, str]],
    config: Mapping[str, Any],
) -> None:
    """Start everything, show the run's own lines, stop everything."""
    result = Path(config["out"]) / "result.json"
    before = result.stat().st_mtime_ns if result.exists() else None
    error = "It ended without a result."
    place = folder / REHEARSAL
    with Machines(place, certificates) as machines:
        secure = "without TLS" if certificates is None else "with TLS and node keys"
        say(f"Starting a server and {len(nodes)} sites on 127.0.0.1, {secure}; logs in {place}")
        machines.start_superlink()
        for name, node in nodes.items():
            if certificates is not None:
                machines.register(name)
            machines.start_site(name, node)
        for line in machines.run(folder, config):
            _, marker, sentence = line.partition("fcfl: ")
            if marker and sentence.startswith("error: "):
                error = sentence.removeprefix("error: ")
            elif marker:
                say(sentence)
    if not result.exists() or result.stat().st_mtime_ns == before:
        raise FCFLError(f"{error} See {str(place / 'run.log')!r}, and the other logs beside it.")
