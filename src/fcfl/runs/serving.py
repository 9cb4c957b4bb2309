"""What a server app does: train over the sites, and write the report of the result."""

import logging

from fcfl.federation.site_settings import Config
from fcfl.federation.transport import Transport
from fcfl.report.page import write_page
from fcfl.runs.site_run import run_sites
from fcfl.server.method import RoundInfo

log = logging.getLogger("fcfl")


def serve(transport: Transport, config: Config) -> None:
    """Run as the config says; the log has a line for every round."""
    finished = run_sites(transport, config, on_round=_log_round, on_message=log.info)
    write_page(finished.folder)
    log.info("%s: %s", finished.result.status, finished.result.message)
    met = "met" if finished.budgets_met else "exceeded"
    log.info("Budgets are %s on the training rows. Written to %s", met, finished.folder)


def _log_round(info: RoundInfo, share: float) -> None:
    log.info(
        "round %d: worst loss %.4f (%s), largest violation %+.4f, %.0f %% done",
        info.round,
        info.worst_loss,
        info.worst_client,
        info.largest_violation,
        100 * share,
    )
