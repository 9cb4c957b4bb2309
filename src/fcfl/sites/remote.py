"""A federation of sites, which are sent the same requests as messages."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NoReturn

from fcfl._types import ClientId, Reports
from fcfl.client.client import Evaluate, Introduction, Question
from fcfl.errors import FCFLError
from fcfl.federation.arrivals import KnownCounts, check_site_introduction
from fcfl.federation.exchange_count import ExchangeCount
from fcfl.federation.federation import Check, CheckReports, Federation
from fcfl.sites.agreement import agree
from fcfl.sites.exchange import Exchange, Traffic
from fcfl.sites.messages import EXTRAS, Ask, Terms
from fcfl.sites.transport import Transport


class RemoteFederation(Federation):
    """Sites that hold their own rows. One that does not answer, or not well, is left out.

    ``failures`` says why, for those left out of the last exchange. Making one waits for all sites
    and lets them agree on how rows are encoded. ``nodes`` binds names to the transport's nodes:
    without it a name is whoever's claims it first.
    """

    clients_have_rows: ClassVar[bool] = True

    def __init__(
        self,
        transport: Transport,
        names: Sequence[ClientId],
        terms: Terms,
        *,
        timeout: float = 600.0,
        nodes: Mapping[ClientId, int] | None = None,
        on_message: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        self._exchange = Exchange(
            transport, names, terms, timeout=timeout, nodes=nodes, on_message=on_message
        )
        self.introductions = self._exchange.meet(check_site_introduction)
        self.agreement = agree(terms, self.introductions)
        self._only: tuple[ClientId, ...] | None = None
        self._known_counts = KnownCounts()

    @property
    def names(self) -> tuple[ClientId, ...]:
        """All sites of the run, sorted as text."""
        return self._only or self._exchange.names

    @property
    def traffic(self) -> Mapping[ClientId, Traffic]:
        """The messages, bytes and slowest answer of each site."""
        return self._exchange.traffic

    @property
    def exchanges(self) -> ExchangeCount:
        """Requests that have left for the sites, by phase; copies count together."""
        return self._exchange.exchanges

    @property
    def failures(self) -> Mapping[ClientId, str]:
        """Why sites were left out of the last exchange."""
        return self._exchange.failures

    def introduce(self) -> dict[ClientId, Introduction]:
        """Return every site's introduction, with the groups that any site named."""
        levels = self.agreement.levels
        return {name: replace(self.introductions[name], levels=levels) for name in self.names}

    def _evaluate_curved(self, question: Evaluate, check: CheckReports) -> Reports:
        """Every site's reports, each with its own curvature: one that is absent leaves its last."""
        return self._ask(question, check)

    def _ask(self, question: Question, check: Check) -> dict[ClientId, Any]:
        if isinstance(question, Evaluate):
            _check_extras(question)

        def for_site(name: ClientId) -> Ask:
            own = {name: self.agreement.checksums[name]}  # without those of the others
            return Ask(replace(self.agreement, checksums=own), question.for_client(name))

        return self._exchange.ask(for_site, check, self._only)

    def _threshold_clients(self) -> NoReturn:
        """Raise `FCFLError`: sites choose no thresholds yet."""
        raise FCFLError(
            "`thresholds` must be 'common' in a run over sites, got 'group': sites choose no "
            "thresholds yet. Train where the rows are in one process, or leave it out."
        )

    def only(self, name: ClientId) -> "RemoteFederation":
        """The same exchange with one site alone."""
        alone = copy.copy(self)
        alone._only = (name,)
        return alone


def _check_extras(question: Evaluate) -> None:
    """Refuse, by name, what no site would answer."""
    for point in question.request.points:
        for extra in point.extras:
            if not isinstance(extra, EXTRAS):
                raise FCFLError(
                    f"The method asks for `{type(extra).__name__}`, which tells too much of single "
                    "rows: sites do not answer it. Choose another method."
                )
