"""A run over sites that keep their rows: agree, train, evaluate, write the same folder."""

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from fcfl import __version__
from fcfl._types import ClientId
from fcfl.client.questions import Introduction
from fcfl.federation.named_module import NamedModule
from fcfl.federation.remote import RemoteFederation
from fcfl.federation.site_settings import Config
from fcfl.federation.transport import Transport
from fcfl.models.linear import Linear
from fcfl.models.loss import as_loss, loss_notes
from fcfl.models.model_file import Inputs
from fcfl.results import Deployment, Result, SiteDeployment
from fcfl.runs.folder import check_folder
from fcfl.runs.opening import Opened, rules_of
from fcfl.runs.run import Finished, run_opened
from fcfl.runs.settings import Experiment
from fcfl.runs.site_config import SitesConfig
from fcfl.training.progress_share import OnRound
from fcfl.training.rounds import Session


def run_sites(
    transport: Transport,
    config: Config,
    *,
    on_round: OnRound | None = None,
    on_message: Callable[[str], None],
) -> Finished:
    """Train over whatever the transport reaches and write the folder the config names."""
    began = time.monotonic()
    run = SitesConfig.from_run_config(config)
    experiment = run.experiment
    check_folder(experiment, run.folder, resume=run.resume, overwrite=run.overwrite)
    on_message(f"Waiting for {len(run.sites)} sites: {', '.join(run.sites)}.")
    if run.nodes is None:
        on_message("Names of sites are only claimed: `nodes` binds them to their keys.")
    sites = RemoteFederation(
        transport,
        run.sites,
        run.terms,
        timeout=run.site_timeout,
        nodes=run.nodes,
        on_message=on_message,
    )

    def complete(result: Result, met: bool) -> Result:
        return replace(result, deployment=deployment_section(sites, met))

    return run_opened(
        experiment,
        open_sites(experiment, sites, run.module),
        Session(run.folder, run.resume, on_round, on_message, run.max_age),
        began=began,
        method=run.make_method(),
        check_first=False,
        complete=complete,
    )


def open_sites(
    experiment: Experiment, sites: RemoteFederation, module: str | None = None
) -> Opened:
    """Sites that have agreed on columns, as what is trained: a linear model, or a module."""
    agreement = sites.agreement
    asked = rules_of(experiment, agreement.terms.sensitive, sites.names, agreement.levels)
    negative, positive = agreement.labels
    column = agreement.terms.label
    loss = as_loss("loss", experiment.loss)
    label = f"Label {column!r}: {positive!r} is the positive value, {negative!r} the other."

    model: Linear | NamedModule = Linear(agreement.schema.n_features, loss=loss)
    if module is not None:
        model = NamedModule(module, agreement.schema.n_features, seed=experiment.seed)
    checksums = repr(sorted(agreement.checksums.items()))
    return Opened(
        federation=sites,
        model=model,
        rules=asked.rules,
        checksum=hashlib.sha256(checksums.encode()).hexdigest(),
        inputs=Inputs(agreement.schema, agreement.labels, agreement.terms.label),
        notes=(
            label,
            *agreement.schema.notes,
            *loss_notes(loss),
            *_about_versions(sites.introductions),
        ),
        groups=asked.groups,
        min_group_rows=asked.min_group_rows,
        policy_sha256=asked.policy_sha256,
    )


def deployment_section(sites: RemoteFederation, budgets_met: bool) -> Deployment:
    """What the run cost on the wire, and what each site insisted on."""
    traffic = sites.traffic
    return Deployment(
        budgets_met,
        sites.exchanges,
        bytes_to_sites=sum(site.bytes_to for site in traffic.values()),
        bytes_from_sites=sum(site.bytes_from for site in traffic.values()),
        sites={
            name: SiteDeployment(
                policy_sha256=said.policy_sha256,
                min_group_rows=said.min_group_rows,
                withhold_below=said.withhold_below,
                fcfl_version=said.version,
                messages=traffic[name].messages,
                bytes_to=traffic[name].bytes_to,
                bytes_from=traffic[name].bytes_from,
                slowest_seconds=traffic[name].slowest_seconds,
            )
            for name, said in sites.introductions.items()
        },
    )


def _about_versions(introductions: Mapping[ClientId, Introduction]) -> tuple[str, ...]:
    other = [
        f"{name!r} {said.version}"
        for name, said in introductions.items()
        if said.version != __version__
    ]
    if not other:
        return ()
    return (f"The server has fcfl {__version__}, these sites do not: {', '.join(other)}.",)
