"""The page of a negotiation: headline, figures, and the data of its sliders."""

import base64
import hashlib
import sys
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

from markupsafe import Markup

from fcfl._types import ClientId
from fcfl.results.negotiation import Negotiation, Offer, VotingRule

from . import page
from .figures import Dot, Plot, scatter
from .words import plain

_SCRIPT = files("fcfl.report").joinpath("templates/negotiation.js")

RULE_NAMES: dict[VotingRule, str] = {
    "approval": "Approval",
    "borda": "Borda",
    "nash": "Nash bargaining",
}


def write_negotiation_page(found: Negotiation, path: Path) -> Path:
    """Write the page of a negotiation."""
    return page.write(path, render_negotiation(found))


def render_negotiation(found: Negotiation) -> str:
    """Return the page of a negotiation.

    A small script inside the file moves the sliders; without it all numbers are in tables.
    """
    script = _SCRIPT.read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return page.render(
        "negotiation.html",
        negotiation=found,
        talks=sys.modules[__name__],
        script=Markup(script),  # it is ours, not data
        script_hash=digest,
    )


def headline(negotiation: Negotiation) -> str:
    """Return the outcome of the negotiation, as a sentence."""
    if negotiation.agreed is None:
        return "No combination of budgets could be agreed on."
    values = sorted(set(negotiation.offers[negotiation.agreed].budgets.values()))
    budgets = f"{values[0]:g}" if len(values) == 1 else f"{values[0]:g} to {values[-1]:g}"
    election = negotiation.election(negotiation.decided_by)
    leave, rule = len(election.would_leave), RULE_NAMES[election.rule]
    if not leave:
        return f"Budgets of {budgets} could be agreed on ({rule}): no client would leave."
    return (
        f"No combination is better for every client than its own model: budgets of {budgets} win "
        f"({rule}), and {leave} of {len(negotiation.clients)} clients would leave."
    )


def wins(negotiation: Negotiation, position: int) -> list[str]:
    """Return the names of the voting rules that elect an offer."""
    return [
        RULE_NAMES[one.rule]
        for one in negotiation.elections
        if one.winner is not None and negotiation.on_ballot[one.winner] == position
    ]


def frontier(negotiation: Negotiation) -> Plot | None:
    """Return a plot of every offer: lowest accuracy against largest disparity of a client."""

    def place(offer: Offer) -> tuple[float, float]:
        views = offer.views.values()
        return max(view.disparity for view in views), min(view.accuracy for view in views)

    dots = _dots(negotiation, [place(offer) for offer in negotiation.offers])
    axes = ("largest disparity of a client", "lowest accuracy of a client")
    return scatter("frontier", "All combinations that were trained", dots, axes)


def client_figure(negotiation: Negotiation, client: ClientId, index: int) -> Plot | None:
    """Return a plot of one client: accuracy against disparity, for every offer and alone.

    Return None if no two groups of the client can be compared.
    """
    views = [offer.views[client] for offer in negotiation.offers]
    if not any(view.disparity for view in views):
        return None
    alone = negotiation.alone[client]
    dots = _dots(negotiation, [(view.disparity, view.accuracy) for view in views])
    dots.append(Dot("alone", alone.disparity, alone.accuracy, "exceeded"))
    title = f"Accuracy and disparity of {plain(client)} under every combination"
    return scatter(f"client-{index}", title, dots, ("its disparity", "its accuracy"))


def _dots(negotiation: Negotiation, places: Iterable[tuple[float, float]]) -> list[Dot]:
    """Return a dot for each offer; winners come last so that they are drawn on top."""
    found = []
    for position, (x, y) in enumerate(places):
        is_voted, rules = position in negotiation.on_ballot, wins(negotiation, position)
        short = ", ".join(name.split()[0] for name in rules)  # "Nash": short labels do not overlap
        name = "all rules" if len(rules) == len(RULE_NAMES) else short or f"no. {position + 1}"
        verdict = "met" if is_voted else "unconstrained"
        found.append((is_voted, bool(rules), Dot(name, x, y, verdict, bool(rules))))
    return [dot for *_, dot in sorted(found, key=lambda item: item[:2])]


def slider_data(negotiation: Negotiation) -> dict[str, Any]:
    """Return the data of the script: budgets as indices, results as text."""
    return {
        "budgets": [f"{budget:g}" for budget in negotiation.budgets],
        "clients": list(negotiation.clients),
        "offers": [
            {
                "levels": [
                    negotiation.budgets.index(offer.budgets[c]) for c in negotiation.clients
                ],
                "views": [
                    [f"{x:.3f}" for x in (view.accuracy, view.loss, view.disparity)]
                    for view in (offer.views[c] for c in negotiation.clients)
                ],
            }
            for offer in negotiation.offers
        ],
        "start": 0 if negotiation.agreed is None else negotiation.agreed,
    }
