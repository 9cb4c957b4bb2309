"""A federation whose clients are sites, to which requests are sent as messages."""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NoReturn

from fcfl._types import ClientId, Reports
from fcfl.client.client import Evaluate, Introduction, Question
from fcfl.data import Schema
from fcfl.data.cells import EMPTY, alike_notes, look_alikes
from fcfl.data.columns import label_pair
from fcfl.errors import DataError, FCFLError
from fcfl.federation.federation import (
    Check,
    CheckReports,
    Federation,
    KnownCounts,
    check_site_introduction,
)
from fcfl.federation.loop import ExchangeCount
from fcfl.sites.exchange import Exchange, Traffic
from fcfl.sites.messages import EXTRAS, Agreement, Ask, Terms
from fcfl.sites.transport import Transport

_TOO_RARE = f"{EMPTY}, or all its values are too rare for the sites to name (`withhold-below`),"


class RemoteFederation(Federation):
    """Sites that hold their own rows.

    A site without a valid response is left out of an exchange, and ``failures`` has the reason. The
    constructor waits for the introductions of all sites and agrees on one encoding of their rows.
    ``nodes`` binds names to the transport's nodes; otherwise a name is bound to the first node that
    reports it.
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
        """The messages, bytes and longest response time of each site."""
        return self._exchange.traffic

    @property
    def exchanges(self) -> ExchangeCount:
        """The number of exchanges by phase; all messages of one exchange count once."""
        return self._exchange.exchanges

    @property
    def failures(self) -> Mapping[ClientId, str]:
        """The reasons why sites were left out of the last exchange."""
        return self._exchange.failures

    def introduce(self) -> dict[ClientId, Introduction]:
        """Return every site's introduction, with the groups that any site named."""
        levels = self.agreement.levels
        return {name: replace(self.introductions[name], levels=levels) for name in self.names}

    def _evaluate_curved(self, question: Evaluate, check: CheckReports) -> Reports:
        """Return every site's reports with its own curvature matrix, not only the sum.

        The matrices are stored to approximate sites that are absent later.
        """
        return self._ask(question, check)

    def _ask(self, question: Question, check: Check) -> dict[ClientId, Any]:
        if isinstance(question, Evaluate):
            _check_extras(question)

        def for_site(name: ClientId) -> Ask:
            own = {name: self.agreement.checksums[name]}  # omits the checksums of other sites
            return Ask(replace(self.agreement, checksums=own), question.for_client(name))

        return self._exchange.ask(for_site, check, self._only)

    def check_chooses_thresholds(self) -> NoReturn:
        """Raise `FCFLError`: sites choose no thresholds yet."""
        raise FCFLError(
            "`thresholds` must be 'common' in a run over sites, got 'group': sites choose no "
            "thresholds yet. Train in-process, or omit `thresholds`."
        )

    def only(self, name: ClientId) -> "RemoteFederation":
        """Return a federation of this site alone, over the same connection."""
        alone = copy.copy(self)
        alone._only = (name,)
        return alone


def _check_extras(question: Evaluate) -> None:
    """Raise `FCFLError` if the method requests an extra that sites do not support."""
    for point in question.request.points:
        for extra in point.extras:
            if not isinstance(extra, EXTRAS):
                raise FCFLError(
                    f"The method requests `{type(extra).__name__}`, which discloses too much "
                    "about single rows: sites reject it. Choose another method."
                )


# --- agreement -----------------------------------------------------------------------------------


def agree(terms: Terms, introductions: Mapping[ClientId, Introduction]) -> Agreement:
    """Return one encoding for all rows, and the groups that any site named."""
    declared = {name: one for name, one in introductions.items() if one.schema is not None}
    if declared:
        return _declared(terms, introductions, declared)
    statistics = {n: s.statistics for n, s in introductions.items() if s.statistics is not None}
    schema = Schema.from_statistics(statistics)
    levels = _levels(terms, introductions.values())
    notes = list(schema.notes)
    if any(one.withhold_below > 1 for one in introductions.values()):
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
        checksums={name: one.checksum for name, one in introductions.items()},
    )


def _declared(
    terms: Terms,
    introductions: Mapping[ClientId, Introduction],
    declared: Mapping[ClientId, Introduction],
) -> Agreement:
    """Return the encoding that all sites declare; raise `DataError` if the declarations differ."""
    first = next(iter(declared.values()))
    for name, one in introductions.items():
        same = (one.schema, one.labels, one.levels) == (
            first.schema,
            first.labels,
            first.levels,
        )
        if one.schema is None or not same:
            raise DataError(
                f"Sites {first.name!r} and {name!r} must declare the same labels, groups and "
                "columns. If one site has a privacy budget, every site must declare a schema."
            )
    checksums = {name: one.checksum for name, one in introductions.items()}
    negative, positive = first.labels
    schema = first.schema or Schema(())
    return Agreement(terms, (negative, positive), first.levels, schema, checksums)


def _labels(terms: Terms, introductions: Mapping[ClientId, Introduction]) -> tuple[str, str]:
    values = sorted({value for one in introductions.values() for value in one.labels})
    if len(values) > 2:
        by_site = ", ".join(
            f"{name!r} {' and '.join(map(repr, one.labels))}" for name, one in introductions.items()
        )
        alike = look_alikes(values)
        raise DataError(
            f"Label column {terms.label!r} must have the same two values at all sites, got "
            f"{by_site}." + (f" {alike}." if alike else "")
        )
    return label_pair(tuple(values), terms.columns)


def _levels(terms: Terms, introductions: Iterable[Introduction]) -> dict[str, tuple[str, ...]]:
    """Return the groups of each sensitive column, sorted as text."""
    named: dict[str, set[str]] = {attribute: set() for attribute in terms.sensitive}
    for introduction in introductions:
        for attribute, groups in named.items():
            groups.update(introduction.levels.get(attribute, ()))
    for attribute, groups in named.items():
        if not groups:
            raise DataError(
                f"No site named a group of {attribute!r}: the column is empty, or every group has "
                "fewer rows than the sites' `withhold-below`."
            )
    return {attribute: tuple(sorted(groups)) for attribute, groups in named.items()}
