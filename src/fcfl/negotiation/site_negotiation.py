"""A negotiation over sites that keep their rows and their preferences: only ballots leave them.

A server app that negotiates is one that serves by this module::

    from fcfl.federation.flower.server_app import server_app
    from fcfl.negotiation.site_negotiation import serve

    app = server_app(serve)

Its run config has those keys of a training run that are in ``TAKEN``, and may have ``budgets``,
``by`` and ``most``.
"""

import logging
import shlex
from collections.abc import Callable

from fcfl.federation.site_settings import Config
from fcfl.federation.transport import Transport
from fcfl.negotiation.negotiating import Procedure
from fcfl.negotiation.negotiation_run import AGREED, run_negotiation
from fcfl.report.negotiation_page import headline
from fcfl.results.negotiation_result import Negotiation, VotingRule
from fcfl.runs.budget_sweep import parse_budgets
from fcfl.runs.site_config import CONFIG, SitesConfig
from fcfl.runs.site_run import Sites

KEYS = ("budgets", "by", "most")
TAKEN = (
    *("sites", "nodes", "label", "sensitive", "positive", "drop", "seed", "test-size", "metric"),
    *("min-group-rows", "l2", "objective", "loss", "module", "site-timeout", "out"),
)  # keys of a training run; others must be left at their defaults
log = logging.getLogger("fcfl")


def serve(transport: Transport, config: Config) -> None:
    """What a server app does: negotiate as the config says, and write the folder ``out``."""
    found = negotiate_sites(transport, config, on_message=log.info)
    log.info("%s Written to %s", headline(found), config["out"])


def negotiate_sites(
    transport: Transport, config: Config, *, on_message: Callable[[str], None]
) -> Negotiation:
    """Negotiate over whatever the transport reaches and write the folder the config names."""
    procedure = _procedure(config)
    given = {key: value for key, value in config.items() if key not in KEYS}
    _check_taken(given)
    run = SitesConfig.from_run_config(given)
    return run_negotiation(
        run.experiment,
        Sites(transport, run, on_message).open(run.experiment),
        procedure,
        run.folder,
        command=lambda found: _command(run, found),
        on_message=on_message,
    )


def _check_taken(config: Config) -> None:
    """Refuse keys of a training run that would do nothing here."""
    for key, value in config.items():
        if key in CONFIG and key not in TAKEN and value not in ("", CONFIG[key][0]):
            raise ValueError(
                f"`{key}` must be left out in a negotiation, got {value!r}: combinations are "
                "trained by sqp with budgets for differences, each from its beginning."
            )


def _procedure(config: Config) -> Procedure:
    """The keys of a negotiation; text that is empty, and what is left out, is the default."""
    default = Procedure()
    budgets, most = str(config.get("budgets", "")), config.get("most", default.most)
    if isinstance(most, bool) or not isinstance(most, int):
        raise ValueError(f"`most` must be a whole number, got {most!r}.")
    by: VotingRule = str(config.get("by", "")) or default.by  # type: ignore[assignment]
    return Procedure(parse_budgets(budgets) if budgets else None, by, most)


def _command(run: SitesConfig, found: Negotiation) -> str:
    """How an app that trains is told to train the agreement."""
    objective = f'"{found.objective}"' if isinstance(found.objective, str) else found.objective
    text = f'policy="{run.folder / AGREED}" l2={found.l2:g} objective={objective} confidence="0"'
    return shlex.join(["flwr", "run", ".", "CONNECTION", "--run-config", text])
