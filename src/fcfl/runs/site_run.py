"""Run commands over sites that keep their rows, with the same result folder as in-process."""

import hashlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property

from fcfl import __version__
from fcfl._types import ClientId
from fcfl.client.client import Introduction
from fcfl.data.columns import label_note, without_advice
from fcfl.federation.session import OnRound, Session
from fcfl.methods.method import RoundInfo, traits_of
from fcfl.models.linear import Linear
from fcfl.models.loss import as_loss, loss_notes
from fcfl.models.model import Inputs
from fcfl.report.negotiation import headline, write_negotiation_page
from fcfl.report.page import PAGE, write_comparison_page, write_page
from fcfl.results.findings import findings_of
from fcfl.results.negotiation import Negotiation
from fcfl.results.result import Deployment, SiteDeployment
from fcfl.runs.many_runs import AGREED, run_comparison, run_negotiation, run_sweep
from fcfl.runs.opening import Opened, rules_of
from fcfl.runs.run import SETTINGS, Finished, is_same_run, run_session
from fcfl.runs.settings import Experiment
from fcfl.runs.site_config import SitesConfig
from fcfl.sites.exchange import Traffic
from fcfl.sites.named_module import NamedModule
from fcfl.sites.remote import RemoteFederation
from fcfl.sites.settings import Config
from fcfl.sites.transport import Transport

log = logging.getLogger("fcfl")
EXCHANGES = (7, 60)  # nine in ten linear runs of sqp: `python -m benchmarks.exchanges`


@dataclass
class Sites:
    """Sites that keep their rows. They introduce themselves when the first run is opened."""

    transport: Transport
    run: SitesConfig
    on_message: Callable[[str], None]

    @cached_property
    def federation(self) -> RemoteFederation:
        """Return the federation of all sites, after the agreement on columns and encoding."""
        run = self.run
        self.on_message(f"Waiting for {len(run.sites)} sites: {', '.join(run.sites)}.")
        if run.nodes is None:
            self.on_message("Names of sites are not verified. `nodes` binds names to nodes' keys.")
        return RemoteFederation(
            self.transport,
            run.sites,
            run.terms,
            timeout=run.site_timeout,
            nodes=run.nodes,
            on_message=self.on_message,
        )

    def open(self, experiment: Experiment) -> Opened:
        """Open a run of a linear model or a module over the sites; its traffic counts from now."""
        sites, module = self.federation, self.run.module
        agreement, loss = sites.agreement, as_loss("loss", experiment.loss)
        n_features, threshold = agreement.schema.n_features, experiment.threshold
        before = {name: Traffic() for name in sites.traffic}
        if sites.exchanges.by_phase != {"meet": 1}:  # the first run includes the introductions
            sites.exchanges.take()
            before = {name: replace(one) for name, one in sites.traffic.items()}
        method = self.run.make_method(experiment)
        is_usual = traits_of(method).is_cross_validated and module is None
        if is_usual and self.run.command == "train" and not self.run.resume:
            self.on_message(_expected_cost(sites.traffic))
        checksums = repr(sorted(agreement.checksums.items()))
        return Opened(
            federation=sites,
            model=Linear(n_features, loss=loss, threshold=threshold)
            if module is None
            else NamedModule(module, n_features, seed=experiment.seed, threshold=threshold),
            checksum=hashlib.sha256(checksums.encode()).hexdigest(),
            inputs=Inputs(agreement.schema, agreement.labels, agreement.terms.label),
            notes=(
                label_note(agreement.labels, agreement.terms.columns),
                *map(without_advice, agreement.schema.notes),
                *loss_notes(loss),
                *_about_versions(sites.introductions),
            ),
            method=method,
            deployment=lambda met: _deployment(sites, met, before),
            **rules_of(experiment, agreement.terms.sensitive, sites.names, agreement.levels),
        )


def _expected_cost(traffic: Mapping[ClientId, Traffic]) -> str:
    """Return a message with the expected number of exchanges and their duration."""
    seconds = max(one.slowest_seconds for one in traffic.values())
    low, high = EXCHANGES
    longest = timedelta(seconds=round(high * seconds))
    return (
        f"Expect {low} to {high} exchanges with all sites: at most about {longest} at "
        f"{seconds:.2g} s each, the time of the slowest introduction."
    )


def _deployment(
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
            slowest_seconds=now.slowest_seconds,  # over all runs
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
    return (f"The server has fcfl {__version__}; sites with other versions: {', '.join(other)}.",)


# --- commands over sites and their pages ----------------------------------------------------------


def run_sites(
    transport: Transport,
    config: Config,
    *,
    on_round: OnRound | None = None,
    on_message: Callable[[str], None],
) -> Finished:
    """Train over the sites of a transport and write the folder ``out`` of the config."""
    run = SitesConfig.from_run_config(config)
    session = Session(run.out, run.resume, on_round, on_message, run.max_age)
    return _run(run, Sites(transport, run, on_message), session)


def _run(run: SitesConfig, sites: Sites, session: Session) -> Finished:
    return run_session(run.experiment, session, opener=sites.open, overwrite=run.overwrite)


def has_begun(run: SitesConfig) -> bool:
    """Return whether the folder has a run that can be resumed with these settings."""
    if run.command != "train":  # each run has its own subfolder with settings
        return any(run.out.glob(f"*/{SETTINGS}"))
    settings = run.out / SETTINGS
    return settings.exists() and is_same_run(Experiment.from_toml(settings), run.experiment)


def serve(transport: Transport, config: Config) -> None:
    """Run the command of the config and log a line for every round.

    `resume` continues a run if there is one to resume, and starts it otherwise. A run can thus be
    submitted again after a fault without access to the server's disk.
    """
    run = SitesConfig.from_run_config(config)
    if run.resume and not has_begun(run):
        log.info("Starting a new run, because %s has no run to resume.", run.out)
        run = replace(run, resume=False)
    sites = Sites(transport, run, log.info)
    session = Session(run.out, run.resume, _log_round, log.info, run.max_age)
    commands = {
        "train": _train,
        "compare": _compare,
        "sweep": _sweep,
        "negotiate": _negotiate,
    }
    commands[run.command](run, sites, session)
    log.info("Written to %s", run.out)


def _train(run: SitesConfig, sites: Sites, session: Session) -> None:
    finished = _run(run, sites, session)
    write_page(finished.folder)
    log.info("%s: %s", finished.result.status, finished.result.message)
    for finding in findings_of(finished.result):
        log.warning("%s", finding.sentence)
    outcome = "met" if finished.budgets_met else "exceeded"
    log.info("Budgets are %s on the training rows.", outcome)


def _compare(run: SitesConfig, sites: Sites, session: Session) -> None:
    """Compare methods over the sites, as `fcfl compare` does for one table."""
    seeds = [run.experiment.seed]  # other seeds would split the sites' rows differently
    comparison = run_comparison(
        run.experiment, run.methods, seeds, session, overwrite=run.overwrite, opener=sites.open
    )
    finished = [one.folder for one in comparison.runs if one.part is not None]
    for name in finished:
        write_page(run.out / name)
    if finished:
        write_comparison_page(run.out)
    log.info("%d of %d methods are compared.", len(finished), len(comparison.runs))


def _sweep(run: SitesConfig, sites: Sites, session: Session) -> None:
    """Train with each budget over the sites, as `fcfl sweep` does for one table."""
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
        write_page(run.out / name)
    outcome = "met" if all(point.budgets_met for point in curve.points) else "exceeded"
    log.info("Budgets are %s on the training rows of all points.", outcome)


def _negotiate(run: SitesConfig, sites: Sites, session: Session) -> None:
    """Negotiate budgets over the sites; sites send ballots but not preferences."""

    def command(_: Experiment, found: Negotiation) -> str:
        """Return the run config that trains the agreement, for any engine."""
        objective = f'"{found.objective}"' if isinstance(found.objective, str) else found.objective
        policy = f'policy="{run.out / AGREED}" l2={found.l2:g} objective={objective}'
        return f'run config command="train" budgets="" {policy} confidence="0"'

    found = run_negotiation(
        run.experiment,
        run.procedure,
        session,
        sites.open,
        command=command,
        overwrite=run.overwrite,
    )
    write_negotiation_page(found, run.out / PAGE)
    log.info("%s", headline(found))


def _log_round(info: RoundInfo, share: float) -> None:
    if not info.worst_client:  # the round compares settings or initial parameters
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
