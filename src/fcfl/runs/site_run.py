"""A run over sites that keep their rows: agree, train, evaluate, write the same folder."""

import hashlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from fcfl import __version__
from fcfl._types import ClientId
from fcfl.client.client import Introduction
from fcfl.data.lint import label_note, without_advice
from fcfl.methods.method import RoundInfo, traits_of
from fcfl.models.linear import Linear
from fcfl.models.loss import as_loss, loss_notes
from fcfl.models.model import Inputs, Model
from fcfl.report.negotiation import headline
from fcfl.report.page import write_comparison_page, write_page
from fcfl.results.findings import findings_of
from fcfl.results.negotiation import Negotiation
from fcfl.results.result import Deployment, SiteDeployment
from fcfl.runs.many_runs import run_comparison, run_sweep
from fcfl.runs.negotiation_run import AGREED, run_negotiation
from fcfl.runs.opening import Opened, rules_of
from fcfl.runs.run import SETTINGS, Finished, is_same_run, run_session
from fcfl.runs.settings import Experiment
from fcfl.runs.site_config import SitesConfig
from fcfl.sites.exchange import Traffic
from fcfl.sites.named_module import NamedModule
from fcfl.sites.remote import RemoteFederation
from fcfl.sites.settings import Config
from fcfl.sites.transport import Transport
from fcfl.training.run import OnRound, Session

log = logging.getLogger("fcfl")


@dataclass
class Sites:
    """Sites that keep their rows; they are introduced once, when a run is first opened."""

    transport: Transport
    run: SitesConfig
    on_message: Callable[[str], None]

    @cached_property
    def federation(self) -> RemoteFederation:
        """All sites, agreed on columns and encoding."""
        run = self.run
        self.on_message(f"Waiting for {len(run.sites)} sites: {', '.join(run.sites)}.")
        if run.nodes is None:
            self.on_message("Names of sites are only claimed: `nodes` binds them to their keys.")
        return RemoteFederation(
            self.transport,
            run.sites,
            run.terms,
            timeout=run.site_timeout,
            nodes=run.nodes,
            on_message=self.on_message,
        )

    def open(self, experiment: Experiment) -> Opened:
        """Return what a run trains; its traffic is counted from here."""
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
    """Train over the sites of a transport and write the folder in the config."""
    run = SitesConfig.from_run_config(config)
    session = Session(run.folder, run.resume, on_round, on_message, run.max_age)
    sites = Sites(transport, run, on_message)
    return run_session(run.experiment, session, opener=sites.open, overwrite=run.overwrite)


def has_begun(run: SitesConfig) -> bool:
    """Whether the folder has a run of these settings, which can be resumed."""
    if run.command != "train":  # a folder for each run, with settings of its own
        return any(run.folder.glob(f"*/{SETTINGS}"))
    settings = run.folder / SETTINGS
    return settings.exists() and is_same_run(Experiment.from_toml(settings), run.experiment)


def open_sites(
    experiment: Experiment, sites: RemoteFederation, module: str | None = None
) -> Opened:
    """Return what sites that have agreed on columns train: a linear model, or a module."""
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
    """Return the traffic of a run since ``before``, and the policy of each site."""
    found: dict[ClientId, SiteDeployment] = {}
    for name, site in sites.introductions.items():
        was, now = before[name], sites.traffic[name]
        found[name] = SiteDeployment(
            policy_sha256=site.policy_sha256,
            min_group_rows=site.min_group_rows,
            withhold_below=site.withhold_below,
            fcfl_version=site.version,
            messages=now.messages - was.messages,
            bytes_to=now.bytes_to - was.bytes_to,
            bytes_from=now.bytes_from - was.bytes_from,
            slowest_seconds=now.slowest_seconds,  # of all runs
        )
    return Deployment(
        budgets_met,
        bytes_to_sites=sum(one.bytes_to for one in found.values()),
        bytes_from_sites=sum(one.bytes_from for one in found.values()),
        sites=found,
    )


def _about_versions(introductions: Mapping[ClientId, Introduction]) -> tuple[str, ...]:
    versions = {name: one.version for name, one in introductions.items()}
    other = [f"{name!r} {version}" for name, version in versions.items() if version != __version__]
    if not other:
        return ()
    return (f"The server has fcfl {__version__}, these sites have not: {', '.join(other)}.",)


# --- the server app: a command over the sites, and its page ---------------------------------------


def serve(transport: Transport, config: Config) -> None:
    """Run the command of the config; log a line for every round.

    `resume` continues a run that has begun and begins it otherwise: who submits a run again after
    a fault need not see the server's disk.
    """
    run = SitesConfig.from_run_config(config)
    if run.resume and not has_begun(run):
        log.info("There is nothing to resume in %s: the run begins.", run.folder)
        run = replace(run, resume=False)
    sites = Sites(transport, run, log.info)
    session = Session(run.folder, run.resume, _log_round, log.info, run.max_age)
    if run.command == "train":
        _train(run, sites, session)
    elif run.command == "compare":
        _compare(run, sites, session)
    elif run.command == "sweep":
        _sweep(run, sites, session)
    else:
        _negotiate(run, sites, session)
    log.info("Written to %s", run.folder)


def _train(run: SitesConfig, sites: Sites, session: Session) -> None:
    finished = run_session(run.experiment, session, opener=sites.open, overwrite=run.overwrite)
    write_page(finished.folder)
    log.info("%s: %s", finished.result.status, finished.result.message)
    for finding in findings_of(finished.result):
        log.warning("%s", finding.sentence)
    outcome = "met" if finished.budgets_met else "exceeded"
    log.info("Budgets are %s on the training rows.", outcome)


def _compare(run: SitesConfig, sites: Sites, session: Session) -> None:
    """Compare methods over the same sites, as `fcfl compare` does with one table."""
    seeds = [run.experiment.seed]  # another seed would split the sites' rows differently
    comparison = run_comparison(
        run.experiment, run.methods, seeds, session, overwrite=run.overwrite, opener=sites.open
    )
    finished = [one.folder for one in comparison.runs if one.part is not None]
    for name in finished:
        write_page(run.folder / name)
    if finished:
        write_comparison_page(run.folder)
    log.info("%d of %d methods are compared.", len(finished), len(comparison.runs))


def _sweep(run: SitesConfig, sites: Sites, session: Session) -> None:
    """Train under one budget after another, as `fcfl sweep` does with one table."""
    values, relative = run.swept
    curve = run_sweep(
        run.experiment,
        values,
        session,
        relative=relative,
        overwrite=run.overwrite,
        opener=sites.open,
    )
    for name in ("", *(point.folder for point in curve.points)):
        write_page(run.folder / name)
    outcome = "met" if all(point.budgets_met for point in curve.points) else "exceeded"
    log.info("Budgets are %s on the training rows of all points.", outcome)


def _negotiate(run: SitesConfig, sites: Sites, session: Session) -> None:
    """Find budgets that all sites accept; only ballots leave the sites, no preferences."""

    def command(_: Experiment, found: Negotiation) -> str:
        """Return the run config that trains the agreement, whatever the engine."""
        objective = f'"{found.objective}"' if isinstance(found.objective, str) else found.objective
        policy = f'policy="{run.folder / AGREED}" l2={found.l2:g} objective={objective}'
        return f'run config command="train" budgets="" {policy} confidence="0"'

    found = run_negotiation(
        run.experiment,
        run.procedure,
        session,
        sites.open,
        command=command,
        overwrite=run.overwrite,
    )
    log.info("%s", headline(found))


def _log_round(info: RoundInfo, share: float) -> None:
    if not info.worst_client:  # not of the training itself: settings or starts are compared
        log.info("%s, exchange %d, %.0f %% done", info.note, info.round, 100 * share)
        return
    log.info(
        "round %d: worst loss %.4f (%s), largest violation %+.4f, %.0f %% done",
        info.round,
        info.worst_loss,
        info.worst_client,
        info.largest_violation,
        100 * share,
    )


# --- what a run is going to cost ------------------------------------------------------------------

# Ranges for a linear model trained by sqp are the .05 and .95 quantiles of 30 runs each,
# `python -m benchmarks.exchanges`. A run of another method is bounded by its rounds.
# By whether settings are chosen, whether the objective is "max", and what is enforced.
EXCHANGES = {
    (True, False, "margins"): (21, 60),
    (True, False, "budgets"): (18, 30),
    (True, False, "nothing"): (12, 14),
    (False, False, "margins"): (16, 56),
    (False, False, "budgets"): (12, 32),
    (False, False, "nothing"): (7, 8),
    (False, True, "margins"): (24, 72),
    (False, True, "budgets"): (17, 37),
    (False, True, "nothing"): (9, 10),
}
AROUND = 3  # of other methods: introductions, counts of groups, counts of decisions


def cost_sentence(experiment: Experiment, method: Any, model: Model, seconds: float) -> str | None:
    """Return what to expect if an exchange takes ``seconds``; None if it was not measured."""
    if traits_of(method).is_cross_validated:
        exchanges = typical_exchanges(experiment, method, model)
        basis = "the range of nine in ten measured runs with such settings"
    else:
        exchanges, basis = most_exchanges(experiment, method), "if all rounds are taken"
    if exchanges is None:
        return None
    low, high = exchanges
    times = [_duration(count * seconds) for count in dict.fromkeys(exchanges)]
    count = f"{low:,} to {high:,}" if low < high else f"about {high:,}"
    return (
        f"Expect {count} exchanges with all sites, {basis}: {' to '.join(times)} at "
        f"{_duration(seconds)} each, the time of the slowest introduction."
    )


def typical_exchanges(experiment: Experiment, method: Any, model: Model) -> tuple[int, int] | None:
    """Return the range of nine in ten runs by sqp; None for settings that were not measured."""
    is_linear = isinstance(model, Linear) and method.is_exact(model.n_params)
    if not is_linear or experiment.starts not in (None, 1):
        return None
    confidence = experiment.confidence
    enforced = "margins" if confidence or confidence is None else "budgets"
    if not (experiment.is_constrained or experiment.policy):
        enforced = "nothing"
    settings = experiment.open_settings
    return EXCHANGES.get((settings.is_open, settings.objective == "max", enforced))


def most_exchanges(experiment: Experiment, method: Any) -> tuple[int, int] | None:
    """Return about how many exchanges all rounds take; None if a round is not one exchange."""
    rounds = getattr(method, "rounds", None)
    if not isinstance(rounds, int):  # two-stage counts accepted steps
        return None
    most = AROUND + rounds * (1 if experiment.relative_budget is None else 2)
    return most, most


def _duration(seconds: float) -> str:
    """Return seconds, minutes or hours, whichever is short."""
    if seconds < 90:
        return f"{seconds:.2g} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
