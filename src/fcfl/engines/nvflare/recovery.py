"""A run that outlasts faults: a job that was lost is submitted again, and goes on."""

from collections.abc import Sequence
from dataclasses import dataclass

from fcfl.engines.nvflare.flare_session import (
    Ended,
    Flare,
    JobStatus,
    OnMessage,
    ServerUnreachable,
)
from fcfl.engines.nvflare.server_controller import ERROR, FAULT
from fcfl.errors import FCFLError
from fcfl.sites.settings import Config


@dataclass(frozen=True)
class Patience:
    """How often a run is submitted, and how long servers and sites that are away are waited for."""

    tries: int = 5
    seconds: float = 600.0


def run_through_faults(
    flare: Flare,
    sites: Sequence[str],
    config: Config,
    patience: Patience,
    on_message: OnMessage,
) -> None:
    """Submit, follow, and after a fault submit again with `resume`, until the run has ended.

    An error of the run itself, such as a site's refusal, ends it at once.
    """
    flare.wait_for_sites(sites, patience.seconds)
    _check_idle(flare.status().jobs)
    for left in reversed(range(patience.tries)):
        ended = _once(flare, sites, config, patience, on_message)
        if not ended.error:
            return
        if not (ended.is_fault and left):
            raise FCFLError(ended.error)
        on_message(f"{ended.error} Going on as soon as the server and all sites are there.")
        flare.wait_for_sites(sites, patience.seconds)
        config = {**config, "resume": True, "overwrite": False}


def _once(
    flare: Flare, sites: Sequence[str], config: Config, patience: Patience, on_message: OnMessage
) -> Ended:
    """Submit a job and follow it to its end, also where the connection is lost in between."""
    job_id = flare.submit(sites, config)
    shown = 0

    def pass_on(line: str) -> None:
        nonlocal shown
        shown += 1
        if not line.startswith((ERROR, FAULT)):  # these are how it ended, which is told below
            on_message(line)

    try:
        while True:
            try:
                return flare.follow(job_id, pass_on, shown)
            except ServerUnreachable as away:
                flare.wait_for_sites(sites, patience.seconds)
                known = {job.job_id: job for job in flare.status().jobs}
                if job_id not in known or known[job_id].is_lost:
                    return Ended(str(away), is_fault=True)
    except KeyboardInterrupt:
        flare.abort(job_id)
        raise


def _check_idle(jobs: Sequence[JobStatus]) -> None:
    at_work = [job.job_id for job in jobs if not job.is_over]
    if at_work:
        raise FCFLError(
            f"The run {at_work[0]} is under way. Wait for its end, or stop it: fcfl nvflare stop"
        )
