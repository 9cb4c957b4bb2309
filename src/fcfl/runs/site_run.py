"""A run over sites that keep their rows: agree, train, evaluate, write the same folder."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from fcfl import __version__
from fcfl._types import ClientId
from fcfl.client.questions import Introduction
from fcfl.data.lint import label_note, without_advice
from fcfl.models.linear import Linear
from fcfl.models.loss import as_loss, loss_notes
from fcfl.models.model_file import Inputs
from fcfl.results.result import Deployment, SiteDeployment
from fcfl.runs.expected_cost import cost_sentence
from fcfl.runs.folder import SETTINGS, is_same_run
from fcfl.runs.opening import Opened, rules_of
from fcfl.runs.run import Finished, run_session
from fcfl.runs.settings import Experiment
from fcfl.runs.site_config import SitesConfig
from fcfl.sites.exchange import Traffic
from fcfl.sites.named_module import NamedModule
from fcfl.sites.remote import RemoteFederation
from fcfl.sites.settings import Config
from fcfl.sites.transport import Transport
from fcfl.training.session import OnRound, Session


@dataclass
class Sites:
    """Sites that keep their rows: met once, when something is first opened."""

    transport: Transport
    run: SitesConfig
    on_message: Callable[[str], None]

    @cached_property
    def federation(self) -> RemoteFederation:
        """All sites, which have agreed on columns and encoding."""
        run = self.run
        self.on_message(f"Waiting for {len(run.sites)} sites: {', '.join(run.sites)}.")
        if run.nodes is None:
            self.on_message("Names of sites are only claimed: `nodes` binds them to their keys.")
        sites = RemoteFederation(
            self.transport,
            run.sites,
            run.terms,
            timeout=run.site_timeout,
            nodes=run.nodes,
            on_message=self.on_message,
        )
        return sites.masked(needs_all=run.max_age == 0) if run.experiment.masked else sites

    def open(self, experiment: Experiment) -> Opened:
        """What one run trains; its costs are counted from here."""
        opened = open_sites(experiment, self.federation, self.run.module)
        before = traffic_before(self.federation)
        method = self.run.make_method(experiment)
        if self.run.command == "train" and not self.run.resume:
            slowest = max(one.slowest_seconds for one in self.federation.traffic.values())
            expected = cost_sentence(experiment, method, opened.model, slowest)
            if expected is not None:
                self.on_message(expected)
        return replace(
            opened,
            deployment=lambda met: deployment_section(self.federation, met, before),
            method=method,
        )


def run_sites(
    transport: Transport,
    config: Config,
    *,
    on_round: OnRound | None = None,
    on_message: Callable[[str], None],
) -> Finished:
    """Train over whatever the transport reaches and write the folder the config names."""
    run = SitesConfig.from_run_config(config)
    session = Session(run.folder, run.resume, on_round, on_message, run.max_age)
    sites = Sites(transport, run, on_message)
    return run_session(run.experiment, session, opener=sites.open, overwrite=run.overwrite)


def has_begun(run: SitesConfig) -> bool:
    """Whether the folder has a run of these settings, which could go on."""
    if run.command != "train":  # a folder for each run, with settings of its own
        return any(run.folder.glob(f"*/{SETTINGS}"))
    settings = run.folder / SETTINGS
    return settings.exists() and is_same_run(Experiment.from_toml(settings), run.experiment)


def open_sites(
    experiment: Experiment, sites: RemoteFederation, module: str | None = None
) -> Opened:
    """Sites that have agreed on columns, as what is trained: a linear model, or a module."""
    agreement = sites.agreement
    loss = as_loss("loss", experiment.loss)
    model: Linear | NamedModule = Linear(
        agreement.schema.n_features, loss=loss, threshold=experiment.threshold
    )
    if module is not None:
        model = NamedModule(
            module,
            agreement.schema.n_features,
            seed=experiment.seed,
            threshold=experiment.threshold,
        )
    checksums = repr(sorted(agreement.checksums.items()))
    return Opened(
        federation=sites,
        model=model,
        checksum=hashlib.sha256(checksums.encode()).hexdigest(),
        inputs=Inputs(agreement.schema, agreement.labels, agreement.terms.label),
        notes=(
            label_note(agreement.labels, agreement.terms.columns),
            *map(without_advice, agreement.schema.notes),
            *loss_notes(loss),
            *_about_versions(sites.introductions),
        ),
        **rules_of(experiment, agreement.terms.sensitive, sites.names, agreement.levels),
    )


def traffic_before(sites: RemoteFederation) -> dict[ClientId, Traffic]:
    """Return the traffic of earlier runs: the first run includes the introductions."""
    if sites.exchanges.by_phase == {"meet": 1}:
        return {name: Traffic() for name in sites.traffic}
    sites.exchanges.take()
    return {name: replace(one) for name, one in sites.traffic.items()}


def deployment_section(
    sites: RemoteFederation, budgets_met: bool, before: Mapping[ClientId, Traffic]
) -> Deployment:
    """What a run cost on the wire, and what each site insisted on."""
    traffic = {name: _since(before[name], one) for name, one in sites.traffic.items()}
    return Deployment(
        budgets_met,
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


def _since(before: Traffic, now: Traffic) -> Traffic:
    """What a site has cost since then; the slowest answer is that of all."""
    return replace(
        now,
        messages=now.messages - before.messages,
        bytes_to=now.bytes_to - before.bytes_to,
        bytes_from=now.bytes_from - before.bytes_from,
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
