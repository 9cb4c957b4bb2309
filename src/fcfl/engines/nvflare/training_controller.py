"""What the server of an NVIDIA FLARE job does: train over the sites, write the report."""

import logging

from fcfl.engines.nvflare.server_controller import ServerController
from fcfl.runs.serving import serve
from fcfl.runs.site_config import SitesConfig
from fcfl.runs.site_run import has_begun
from fcfl.sites.settings import Config
from fcfl.sites.transport import Transport

log = logging.getLogger("fcfl")


def begin_or_go_on(transport: Transport, config: Config) -> None:
    """Train; `resume` goes on where a run has begun, and begins it where it has not.

    Who resubmits a job after a fault need not see the server's disk.
    """
    run = SitesConfig.from_run_config(config)
    if run.resume and not has_begun(run):
        log.info("There is nothing to go on with in %s: the run begins.", run.folder)
        config = {**config, "resume": False}
    serve(transport, config)


class TrainingController(ServerController):
    """The one controller that a server provisioned by `fcfl nvflare` lets a job name."""

    def main(self, transport: Transport, config: Config) -> None:
        """Train, or go on."""
        begin_or_go_on(transport, config)
