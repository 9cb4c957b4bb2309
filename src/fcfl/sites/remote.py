"""A federation of sites, which are sent the same requests as messages."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NoReturn, Self

from fcfl._types import ClientId, Reports
from fcfl.client.client import Evaluate, Introduction, Question
from fcfl.errors import FCFLError
from fcfl.federation.arrivals import KnownCounts, check_site_introduction
from fcfl.federation.exchange_count import ExchangeCount
from fcfl.federation.federation import Check, CheckReports, Federation
from fcfl.federation.masks.messages import MaskQuestion, SumTerms
from fcfl.sites.agreement import agree, run_id
from fcfl.sites.exchange import Exchange, Traffic
from fcfl.sites.messages import EXTRAS, Agreement, Ask, Terms
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
        self._masks = None
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

    def masked(self, threshold: int | None = None, *, needs_all: bool = True) -> Self:
        """The same sites, whose curvatures are summed under masks.

        With ``needs_all`` no sum is opened that a site is missing from.
        """
        from fcfl.federation.masks.sums import MaskedSums, usual_threshold  # needs an extra

        hidden = copy.copy(self)
        keys = {name: self.introductions[name].mask_key for name in self.names}
        for name, key in keys.items():
            if not key:
                raise FCFLError(f"Site {name!r} sent no key for masked sums.")
        terms = SumTerms(run_id(self.agreement), threshold or usual_threshold(len(keys)), keys)
        hidden._masks = MaskedSums(terms, hidden._ask, hidden._ask_some, needs_all=needs_all)
        return hidden

    def _ask(self, question: Question | MaskQuestion, check: Check) -> dict[ClientId, Any]:
        if isinstance(question, Evaluate):
            _check_extras(question)
        return self._exchange.ask(self._for_sites(question), check, self._only)

    def _ask_some(
        self, question: MaskQuestion, check: Check, names: Sequence[ClientId], enough: int
    ) -> dict[ClientId, Any]:
        """Ask these sites until enough have answered; then `failures` stay as they were."""
        failures = self._exchange.failures
        answers = self._exchange.ask(self._for_sites(question), check, names, enough)
        if len(answers) >= enough:
            self._exchange.failures = failures
        return answers

    def _for_sites(self, question: Question | MaskQuestion) -> Callable[[ClientId], Ask]:
        return lambda name: Ask(_for_site(name, self.agreement), question.for_client(name))

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
        return alone.masked() if self.is_masked else alone


def _for_site(name: ClientId, agreement: Agreement) -> Agreement:
    """The agreement without the checksums of others."""
    return replace(agreement, checksums={name: agreement.checksums[name]})


def _check_extras(question: Evaluate) -> None:
    """Refuse, by name, what no site would answer."""
    for point in question.request.points:
        for extra in point.extras:
            if not isinstance(extra, EXTRAS):
                raise FCFLError(
                    f"The method asks for `{type(extra).__name__}`, which tells too much of single "
                    "rows: sites do not answer it. Choose another method."
                )
