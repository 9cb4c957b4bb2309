"""A federation of sites, which are sent the same requests as messages."""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NoReturn

from fcfl._types import ClientId, Reports
from fcfl.client.client import Evaluate, Introduction, Question
from fcfl.data import Schema
from fcfl.data.cells import alike_notes, look_alikes
from fcfl.data.columns import label_pair
from fcfl.data.schema import EMPTY
from fcfl.errors import DataError, FCFLError
from fcfl.federation.arrivals import KnownCounts, check_site_introduction
from fcfl.federation.federation import Check, CheckReports, Federation
from fcfl.federation.loop import ExchangeCount
from fcfl.sites.exchange import Exchange, Traffic
from fcfl.sites.messages import EXTRAS, Agreement, Ask, Terms
from fcfl.sites.transport import Transport

_TOO_RARE = f"{EMPTY}, or all its values are too rare for the sites to name (`withhold-below`),"


class RemoteFederation(Federation):
    """Sites that hold their own rows.

    A site without a valid response is left out of an exchange, and ``failures`` has the reason. The
    constructor waits for the introductions of all sites and agrees on one encoding of their rows.
    ``nodes`` binds names to the transport's nodes; otherwise the first node that claims a name has
    it.
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
        """Return every site's reports with its own curvature, as a stand-in needs it later."""
        return self._ask(question, check)

    def _ask(self, question: Question, check: Check) -> dict[ClientId, Any]:
        if isinstance(question, Evaluate):
            _check_extras(question)

        def for_site(name: ClientId) -> Ask:
            own = {name: self.agreement.checksums[name]}  # without those of the others
            return Ask(replace(self.agreement, checksums=own), question.for_client(name))

        return self._exchange.ask(for_site, check, self._only)

    def check_chooses_thresholds(self) -> NoReturn:
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
    """Raise `FCFLError` for requests of the method that no site answers."""
    for point in question.request.points:
        for extra in point.extras:
            if not isinstance(extra, EXTRAS):
                raise FCFLError(
                    f"The method requests `{type(extra).__name__}`, which discloses too much of "
                    "single rows: sites do not answer it. Choose another method."
                )


# --- agreement -----------------------------------------------------------------------------------


def agree(terms: Terms, introductions: Mapping[ClientId, Introduction]) -> Agreement:
    """Return one encoding for all rows, and the groups that any site named."""
    declared = {name: said for name, said in introductions.items() if said.schema is not None}
    if declared:
        return _declared(terms, introductions, declared)
    statistics = {n: s.statistics for n, s in introductions.items() if s.statistics is not None}
    schema = Schema.from_statistics(statistics)
    levels = _levels(terms, introductions.values())
    notes = list(schema.notes)
    if any(said.withhold_below > 1 for said in introductions.values()):
        notes = [note.replace(EMPTY, _TOO_RARE) for note in notes]
    for attribute, groups in levels.items():
        notes += alike_notes(f"Column {attribute!r}: groups", groups)
    if not schema.columns:
        raise DataError("The sites must share at least one feature column that varies, got none.")
    return Agreement(
        terms=terms,
        labels=_labels(terms, introductions),
        levels=levels,
        schema=replace(schema, notes=tuple(notes)),
        checksums={name: said.checksum for name, said in introductions.items()},
    )


def _declared(
    terms: Terms,
    introductions: Mapping[ClientId, Introduction],
    declared: Mapping[ClientId, Introduction],
) -> Agreement:
    """Return the agreement that sites with a privacy budget have declared alike."""
    first = next(iter(declared.values()))
    for name, said in introductions.items():
        same = (said.schema, said.labels, said.levels) == (
            first.schema,
            first.labels,
            first.levels,
        )
        if said.schema is None or not same:
            raise DataError(
                f"Sites {first.name!r} and {name!r} must declare the same labels, groups and "
                "columns, and all sites must where one has a privacy budget."
            )
    checksums = {name: said.checksum for name, said in introductions.items()}
    negative, positive = first.labels
    schema = first.schema or Schema(())
    return Agreement(terms, (negative, positive), first.levels, schema, checksums)


def _labels(terms: Terms, introductions: Mapping[ClientId, Introduction]) -> tuple[str, str]:
    values = sorted({value for said in introductions.values() for value in said.labels})
    if len(values) > 2:
        by_site = ", ".join(
            f"{name!r} {' and '.join(map(repr, said.labels))}"
            for name, said in introductions.items()
        )
        alike = look_alikes(values)
        raise DataError(
            f"Label column {terms.label!r} must have the same two values at all sites, got "
            f"{by_site}." + (f" {alike}." if alike else "")
        )
    return label_pair(tuple(values), terms.columns)


def _levels(terms: Terms, said: Iterable[Introduction]) -> dict[str, tuple[str, ...]]:
    """Groups of each sensitive column, sorted as text."""
    named: dict[str, set[str]] = {attribute: set() for attribute in terms.sensitive}
    for introduction in said:
        for attribute, groups in named.items():
            groups.update(introduction.levels.get(attribute, ()))
    for attribute, groups in named.items():
        if not groups:
            raise DataError(
                f"No site named a group of {attribute!r}: the column is empty, or every group has "
                "fewer rows than the sites' `withhold-below`."
            )
    return {attribute: tuple(sorted(groups)) for attribute, groups in named.items()}
