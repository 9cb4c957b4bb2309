"""From clients to an agreement: explore budgets, cast ballots, count votes, write a policy."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import tomli_w

from fcfl._checks import did_you_mean
from fcfl._files import replace_file
from fcfl._types import ClientId
from fcfl.errors import DataError
from fcfl.negotiation.ballots import cast_ballot
from fcfl.negotiation.bargaining import Bargain, judged_part, views_of
from fcfl.negotiation.exploration import Exploration, Levels
from fcfl.negotiation.frontier import dominated, merits, worth_a_vote
from fcfl.negotiation.voting import elect_by_all, leaders
from fcfl.policy import Policy
from fcfl.policy_file import read_policy
from fcfl.preference import Preference
from fcfl.results.evaluations import row_sections
from fcfl.results.negotiation_result import (
    Ballot,
    Cost,
    Negotiation,
    Offer,
    View,
    VotingRule,
)
from fcfl.rules import Difference

LADDER_SHARES = (1.0, 0.5, 0.25, 0.1)  # of the largest disparity that a client has without budgets
MIN_GROUP_ROWS = 30
MOST = 60  # combinations trained
LEADERS = 5  # offers of each rule around which more are tried
AGREED = "agreed.toml"


@dataclass(frozen=True)
class Wishes:
    """What clients bring: preferences, which stay with them, and budgets they insist on."""

    preferences: Mapping[ClientId, Preference]
    caps: Mapping[ClientId, float]

    def preference_of(self, client: ClientId) -> Preference:
        """A client's own, else that of everybody without one."""
        return self.preferences.get(client, Preference())


def read_wishes(folder: Path | None, clients: Sequence[ClientId]) -> Wishes:
    """Policy files of clients, each named ``CLIENT.toml``; whoever has none is like all others."""
    if folder is None:
        return Wishes({}, {})
    if not folder.is_dir():
        raise DataError(f"{str(folder)!r} is not a folder; it should hold a CLIENT.toml for each.")
    policies: dict[ClientId, Policy] = {}
    for path in sorted(folder.glob("*.toml")):
        if path.stem not in clients:
            raise DataError(
                f"The policy {str(path)!r} is of no client. {did_you_mean(path.stem, clients)}"
            )
        policies[path.stem] = read_policy(path)
    caps = {}
    for client, policy in policies.items():
        budgets = [
            budget
            for rule in policy.rules([client])
            if isinstance(rule, Difference) and (budget := rule.budget_of(client)) is not None
        ]
        if budgets:
            caps[client] = min(budgets)
    preferences = {c: p.preference for c, p in policies.items() if p.preference is not None}
    return Wishes(preferences, caps)


def default_ladder(own: Mapping[ClientId, float]) -> tuple[float, ...]:
    """Four budgets from the largest disparity without budgets downwards, two digits each."""
    largest = max(max(own.values()), 0.01)
    return tuple(float(f"{min(share * largest, 1.0):.2g}") for share in LADDER_SHARES)


def check_ladder(budgets: Sequence[float]) -> tuple[float, ...]:
    """Budgets to combine, the loosest first."""
    if len(set(budgets)) < 2 or not all(0 <= budget <= 1 for budget in budgets):
        given = ", ".join(f"{budget:g}" for budget in budgets)
        raise ValueError(f"`budgets` must be two or more numbers between 0 and 1, got {given}.")
    return tuple(sorted(set(budgets), reverse=True))


def negotiate(
    bargain: Bargain,
    wishes: Wishes,
    *,
    table: str,
    budgets: Sequence[float] | None = None,
    decided_by: VotingRule = "nash",
    most: int = MOST,
    on_message: Callable[[str], None] = lambda sentence: None,
) -> Negotiation:
    """Find budgets that clients could agree on.

    Parameters
    ----------
    bargain : clients, a model and what is compared; ``l2`` and ``objective`` may be open
    wishes : the clients' own; of a preference only ballots are used
    table : how the rows are called
    budgets : to combine; by default shares of the largest disparity without budgets
    decided_by : the rule whose winner is agreed on; where "nash" has none, "approval" decides
    most : combinations trained at most
    """
    clients = bargain.federation.names
    bargain, free = bargain.settled()
    part = judged_part(row_sections(free.evaluations).clients)
    own = {client: view.disparity for client, view in views_of(free, "train").items()}
    ladder = check_ladder(budgets) if budgets is not None else default_ladder(own)
    ladder = tuple(sorted({*ladder, *wishes.caps.values()}, reverse=True))
    on_message(f"Budgets to combine: {', '.join(f'{budget:g}' for budget in ladder)}.")
    alone = {
        client: bargain.alone(client, wishes.preference_of(client), ladder, free.params)
        for client in clients
    }

    def train(levels: Levels, why: str) -> Offer:
        given = {client: ladder[level] for client, level in zip(clients, levels, strict=True)}
        on_message(f"{budgets_text(given)} ({why})")
        return bargain.offer(given, free.params, why)

    def ballots_on(offers: Sequence[Offer]) -> dict[ClientId, Ballot]:
        return {
            client: cast_ballot(
                wishes.preference_of(client), [o.views[client] for o in offers], alone[client]
            )
            for client in clients
        }

    def leading(offers: Sequence[Offer]) -> list[int]:
        voted = worth_a_vote(offers)
        return [voted[i] for i in leaders(ballots_on([offers[i] for i in voted]), LEADERS)]

    exploration = Exploration(clients, ladder, train, leading, most, wishes.caps)
    offers = exploration.run(own)
    voted = worth_a_vote(offers)
    ballots = ballots_on([offers[i] for i in voted])
    elections = elect_by_all(ballots)
    won = {election.rule: election.winner for election in elections}
    decided_by = "approval" if won[decided_by] is None else decided_by
    agreed = won[decided_by]
    position = None if agreed is None else voted[agreed]
    worse = dominated(merits(offers))
    offers = tuple(replace(o, is_dominated=bool(w)) for o, w in zip(offers, worse, strict=True))
    return Negotiation(
        table=table,
        clients=clients,
        budgets=ladder,
        part=part,
        metric=bargain.rules[0].metric,
        attributes=tuple(rule.attribute for rule in bargain.rules),
        min_group_rows=bargain.min_group_rows,
        l2=bargain.l2,
        objective=bargain.objective,
        offers=offers,
        on_ballot=voted,
        alone=alone,
        ballots=ballots,
        elections=elections,
        decided_by=decided_by,
        agreed=position,
        costs=() if position is None else costs_around(offers, position, ladder),
        notes=_notes(len(offers), most, is_nash_empty=won["nash"] is None),
        loss=bargain.model.loss.name,
    )


def _notes(count: int, most: int, *, is_nash_empty: bool) -> tuple[str, ...]:
    notes = []
    if count >= most:
        notes.append(
            f"Exploring stopped at {most} combinations; a larger `--most` may find better ones."
        )
    if is_nash_empty:
        notes.append(
            "Under every combination somebody has less than alone: there is no bargaining solution."
        )
    return tuple(notes)


def costs_around(
    offers: Sequence[Offer], position: int, ladder: Sequence[float]
) -> tuple[Cost, ...]:
    """Whose budget costs whom: what changes for all where one client has the next looser budget.

    Only of neighbours that were trained: where a budget costs nothing, none may have been.
    """
    here = offers[position]
    costs = []
    for client, budget in here.budgets.items():
        looser = [level for level in ladder if level > budget]
        if not looser:
            continue
        relaxed = {**here.budgets, client: min(looser)}
        there = next((offer for offer in offers if offer.budgets == relaxed), None)
        if there is not None:
            costs.append(_cost(client, here, there, here.prices.get(client, 0.0)))
    return tuple(costs)


def _cost(client: ClientId, here: Offer, there: Offer, price: float) -> Cost:
    def change(what: Callable[[View], float]) -> dict[ClientId, float]:
        return {c: what(there.views[c]) - what(view) for c, view in here.views.items()}

    return Cost(
        client,
        here.budgets[client],
        there.budgets[client],
        price,
        accuracy=change(lambda view: view.accuracy),
        loss=change(lambda view: view.loss),
    )


def budgets_text(budgets: Mapping[ClientId, float]) -> str:
    """``north 0.1, south 0.05``."""
    return ", ".join(f"{client} {budget:g}" for client, budget in budgets.items())


def policy_text(negotiation: Negotiation) -> str:
    """The agreed budgets as a policy file that `fcfl train --policy` takes."""
    if negotiation.agreed is None:
        raise DataError("Nothing was agreed on: there is no combination to write.")
    agreed = negotiation.offers[negotiation.agreed].budgets
    rules = [
        {
            "metric": negotiation.metric,
            "attribute": attribute,
            "kind": "difference",
            "clients": dict(agreed),
        }
        for attribute in negotiation.attributes
    ]
    policy = {"min-group-rows": int(negotiation.min_group_rows), "rule": rules}
    head = f"# Budgets agreed on by the {negotiation.decided_by} rule of `fcfl negotiate`.\n\n"
    return head + tomli_w.dumps(policy)


def write_policy(negotiation: Negotiation, folder: Path) -> Path:
    """Write the policy file."""
    path = folder / AGREED
    replace_file(path, policy_text(negotiation).encode())
    return path
