"""Run a command over sites: train, compare methods or budgets, negotiate; write the page."""

import logging
from collections.abc import Callable
from dataclasses import replace

from fcfl.methods.method import RoundInfo
from fcfl.report.negotiation import headline
from fcfl.report.page import write_comparison_page, write_page
from fcfl.results.findings import findings_of
from fcfl.results.negotiation import Negotiation
from fcfl.runs.many_runs import run_comparison, run_sweep
from fcfl.runs.negotiation_run import AGREED, run_negotiation
from fcfl.runs.run import run_session
from fcfl.runs.site_config import SitesConfig
from fcfl.runs.site_run import Sites, has_begun
from fcfl.sites.settings import Config
from fcfl.sites.transport import Transport
from fcfl.training.session import Session

log = logging.getLogger("fcfl")


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
    _COMMANDS[run.command](run, sites, session)


def _train(run: SitesConfig, sites: Sites, session: Session) -> None:
    finished = run_session(run.experiment, session, opener=sites.open, overwrite=run.overwrite)
    write_page(finished.folder)
    log.info("%s: %s", finished.result.status, finished.result.message)
    for finding in findings_of(finished.result):
        log.warning("%s", finding.sentence)
    _log_end("Budgets are", finished.budgets_met, run)


def _compare(run: SitesConfig, sites: Sites, session: Session) -> None:
    """Compare methods over the same sites, as `fcfl compare` does with one table."""
    seeds = [run.experiment.seed]  # another seed would split the sites' rows differently
    comparison = run_comparison(run.experiment, run.methods, seeds, session, sites.open)
    finished = [one.folder for one in comparison.runs if one.part is not None]
    for name in finished:
        write_page(run.folder / name)
    if finished:
        write_comparison_page(run.folder)
    log.info("%d of %d methods are compared.", len(finished), len(comparison.runs))
    log.info("Written to %s", run.folder)


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
    for point in curve.points:
        write_page(run.folder / point.folder)
    write_page(run.folder)
    _log_end("At every point budgets are", all(p.budgets_met for p in curve.points), run)


def _negotiate(run: SitesConfig, sites: Sites, session: Session) -> None:
    """Find budgets that all sites accept; only ballots leave the sites, no preferences."""
    found = run_negotiation(
        run.experiment,
        run.procedure,
        session,
        sites.open,
        command=lambda _, found: _agreed(run, found),
        overwrite=run.overwrite,
    )
    log.info("%s Written to %s", headline(found), run.folder)


def _agreed(run: SitesConfig, found: Negotiation) -> str:
    """Return the run config that trains the agreement, whatever the engine."""
    objective = f'"{found.objective}"' if isinstance(found.objective, str) else found.objective
    policy = f'policy="{run.folder / AGREED}" l2={found.l2:g} objective={objective}'
    return f'run config command="train" budgets="" {policy} confidence="0"'


def _log_end(what: str, met: bool, run: SitesConfig) -> None:
    outcome = "met" if met else "exceeded"
    log.info("%s %s on the training rows. Written to %s", what, outcome, run.folder)


_COMMANDS: dict[str, Callable[[SitesConfig, Sites, Session], None]] = {
    "train": _train,
    "compare": _compare,
    "sweep": _sweep,
    "negotiate": _negotiate,
}


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
