"""The page of a negotiation: the frontier, every client's view, ballots, winners, and sliders.

A small script inside the file moves the sliders; without it everything stands in tables.
"""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from markupsafe import Markup

from fcfl._types import ClientId
from fcfl.preference import Ballot
from fcfl.results.negotiation import Cost, Election, Negotiation, Offer, View, VotingRule

from .claims import part_called
from .figures import Dot, scatter
from .page import _render, _write
from .words import plain

RULE_NAMES: dict[VotingRule, str] = {
    "approval": "Approval",
    "borda": "Borda",
    "nash": "Nash bargaining",
}
_SCRIPT = files("fcfl.report").joinpath("templates/negotiation.js")


@dataclass(frozen=True)
class OfferLine:
    """One combination in the table of all."""

    number: int
    offer: Offer
    on_ballot: bool
    wins: tuple[str, ...]


@dataclass(frozen=True)
class WinnerView:
    """What one rule elects, and who would leave."""

    name: str
    election: Election
    number: int | None
    offer: Offer | None


@dataclass(frozen=True)
class ClientView:
    """A client's view of all combinations, and its ballot."""

    client: ClientId
    figure: Markup | None
    alone: View
    ballot: Ballot
    approved: int


@dataclass(frozen=True)
class NegotiationView:
    """Everything the page says."""

    title: str
    negotiation: Negotiation
    rows_called: str
    frontier: Markup
    winners: tuple[WinnerView, ...]
    clients: tuple[ClientView, ...]
    lines: tuple[OfferLine, ...]
    costs: tuple[Cost, ...]
    agreed: OfferLine | None
    data: dict[str, object]
    script: Markup
    script_hash: str


def write_negotiation_page(negotiation: Negotiation, path: Path) -> Path:
    """Draw the page and write it."""
    return _write(path, render_negotiation(negotiation))


def render_negotiation(negotiation: Negotiation) -> str:
    """The page as text."""
    return _render("negotiation.html", **vars(negotiation_view(negotiation)))


def negotiation_view(negotiation: Negotiation) -> NegotiationView:
    """Everything the page says of a negotiation."""
    wins = _wins(negotiation)
    lines = tuple(
        OfferLine(i + 1, offer, i in negotiation.on_ballot, tuple(wins.get(i, ())))
        for i, offer in enumerate(negotiation.offers)
    )
    script = _SCRIPT.read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return NegotiationView(
        title=headline(negotiation),
        negotiation=negotiation,
        rows_called=part_called(negotiation.part),
        frontier=_frontier(negotiation, lines),
        winners=tuple(_winner(negotiation, election) for election in negotiation.elections),
        clients=tuple(_client(negotiation, c, i, lines) for i, c in enumerate(negotiation.clients)),
        lines=lines,
        costs=negotiation.costs,
        agreed=None if negotiation.agreed is None else lines[negotiation.agreed],
        data=_slider_data(negotiation),
        script=Markup(script),  # ours, not data
        script_hash=digest,
    )


def headline(negotiation: Negotiation) -> str:
    """What could be agreed on, in a sentence."""
    if negotiation.agreed is None:
        return "No combination of budgets could be agreed on."
    offer = negotiation.offers[negotiation.agreed]
    values = sorted(set(offer.budgets.values()))
    budgets = f"{values[0]:g}" if len(values) == 1 else f"{values[0]:g} to {values[-1]:g}"
    election = negotiation.election(negotiation.decided_by)
    leave, rule = len(election.would_leave), RULE_NAMES[election.rule]
    if not leave:
        return f"Budgets of {budgets} could be agreed on ({rule}): nobody would leave."
    return (
        f"Nothing was found that everybody prefers to going alone: budgets of {budgets} win "
        f"({rule}), and {leave} of {len(negotiation.clients)} would leave."
    )


def _wins(negotiation: Negotiation) -> dict[int, list[str]]:
    wins: dict[int, list[str]] = {}
    for election in negotiation.elections:
        if election.winner is not None:
            position = negotiation.on_ballot[election.winner]
            wins.setdefault(position, []).append(RULE_NAMES[election.rule])
    return wins


def _winner(negotiation: Negotiation, election: Election) -> WinnerView:
    name = RULE_NAMES[election.rule]
    if election.winner is None:
        return WinnerView(name, election, None, None)
    position = negotiation.on_ballot[election.winner]
    return WinnerView(name, election, position + 1, negotiation.offers[position])


def _dot(line: OfferLine, x: float, y: float) -> Dot:
    verdict = "met" if line.on_ballot else "unconstrained"
    short = ", ".join(name.split()[0] for name in line.wins)  # "Nash": labels must not collide
    wins = "all rules" if len(line.wins) == len(RULE_NAMES) else short
    return Dot(wins or f"no. {line.number}", x, y, verdict, bool(line.wins))


def _winners_last(lines: Sequence[OfferLine]) -> list[OfferLine]:
    """In the order of drawing, so that nothing covers a winner."""
    return sorted(lines, key=lambda line: (line.on_ballot, bool(line.wins)))


def _frontier(negotiation: Negotiation, lines: Sequence[OfferLine]) -> Markup:
    """Worst accuracy over largest disparity, of every combination."""
    dots = [
        _dot(
            line,
            max(view.disparity for view in line.offer.views.values()),
            min(view.accuracy for view in line.offer.views.values()),
        )
        for line in _winners_last(lines)
    ]
    axes = ("largest disparity of a client", "lowest accuracy of a client")
    return scatter("frontier", "All combinations that were trained", dots, axes)


def _client(
    negotiation: Negotiation, client: ClientId, index: int, lines: Sequence[OfferLine]
) -> ClientView:
    alone, ballot = negotiation.alone[client], negotiation.ballots[client]
    dots = [
        _dot(line, view.disparity, view.accuracy)
        for line in _winners_last(lines)
        for view in (line.offer.views[client],)
    ]
    if not any(dot.x for dot in dots):  # no two groups to compare: there is nothing to trade
        return ClientView(client, None, alone, ballot, sum(ballot.approves))
    dots.append(Dot("alone", alone.disparity, alone.accuracy, "exceeded", True))
    title = f"What {plain(client)} gets under every combination"
    figure = scatter(f"client-{index}", title, dots, ("its disparity", "its accuracy"))
    return ClientView(client, figure, alone, ballot, sum(ballot.approves))


def _slider_data(negotiation: Negotiation) -> dict[str, object]:
    """What the script needs: budgets as steps of the ladder, and figures as they are shown."""
    clients, ladder = negotiation.clients, negotiation.budgets
    return {
        "budgets": [f"{budget:g}" for budget in ladder],
        "clients": list(clients),
        "offers": [
            {
                "levels": [
                    negotiation.budgets.index(offer.budgets[c]) for c in negotiation.clients
                ],
                "views": [_figures(offer.views[c]) for c in negotiation.clients],
            }
            for offer in negotiation.offers
        ],
        "start": 0 if negotiation.agreed is None else negotiation.agreed,
    }


def _figures(view: View) -> list[str]:
    return [f"{view.accuracy:.3f}", f"{view.loss:.3f}", f"{view.disparity:.3f}"]
