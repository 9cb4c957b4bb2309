"""Negotiate budgets: explore combinations, request ballots, count votes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from fcfl._checks import check_choice
from fcfl._types import ClientId
from fcfl.client.client import Introduction
from fcfl.negotiation.bargaining import Bargain
from fcfl.negotiation.exploration import Exploration, Levels
from fcfl.negotiation.voting import Outcome, Voters, dominated, merits
from fcfl.results.negotiation import VOTING_RULES, Cost, Negotiation, Offer, VotingRule
from fcfl.results.result import objective_name
from fcfl.rules import Difference

LADDER_SHARES = (1.0, 0.5, 0.25, 0.1)  # of the largest disparity that a client has without budgets
MOST = 64  # combinations trained


@dataclass(frozen=True)
class Procedure:
    """The settings of a negotiation.

    ``budgets`` are those that a client may get, by default shares of the largest disparity without
    budgets. ``by`` is the rule whose winner is agreed on; if "nash" has none, "approval" decides.
    At most ``most`` combinations are trained.
    """

    budgets: tuple[float, ...] | None = None
    by: VotingRule = "nash"
    most: int = MOST

    def __post_init__(self) -> None:
        check_choice("by", self.by, VOTING_RULES)
        if self.most < 1:
            raise ValueError(f"`most` must be at least 1, got {self.most}.")
        if self.budgets is not None:
            object.__setattr__(self, "budgets", check_ladder(self.budgets))


def default_ladder(own: Mapping[ClientId, float]) -> tuple[float, ...]:
    """Return four budgets: `LADDER_SHARES` of the largest disparity without budgets."""
    largest = max(max(own.values()), 0.01)
    return tuple(float(f"{min(share * largest, 1.0):.2g}") for share in LADDER_SHARES)


def check_ladder(budgets: Sequence[float]) -> tuple[float, ...]:
    """Return the budgets to combine, the loosest first; raise if they are fewer than two."""
    if len(set(budgets)) < 2 or not all(0 <= budget <= 1 for budget in budgets):
        given = ", ".join(f"{budget:g}" for budget in budgets) or "none"
        raise ValueError(f"`budgets` must be two or more numbers between 0 and 1, got {given}.")
    return tuple(sorted(set(budgets), reverse=True))


def caps_of(
    introductions: Mapping[ClientId, Introduction], rules: Sequence[Difference]
) -> dict[ClientId, float]:
    """Return the budgets that clients insist on; they are offered no looser ones."""
    negotiated = {(rule.metric, rule.attribute) for rule in rules}
    caps: dict[ClientId, float] = {}
    for client, introduction in introductions.items():
        for rule in introduction.rules:
            if isinstance(rule, Difference) and (rule.metric, rule.attribute) in negotiated:
                budget = rule.budget_of(client)
                if budget is not None:
                    caps[client] = min(budget, caps.get(client, 1.0))
    return caps


def negotiate(
    bargain: Bargain,
    procedure: Procedure = Procedure(),  # noqa: B008 - frozen
    *,
    table: str,
    on_message: Callable[[str], None] = lambda sentence: None,
) -> Negotiation:
    """Find budgets that the clients of a federation could agree on.

    Parameters
    ----------
    bargain : clients, model and rules; ``l2`` and ``objective`` may still be "auto"
    procedure : which budgets are combined, how many combinations, and which rule decides
    table : name of the table, stored in the result
    """
    bargain, free = bargain.settled()
    caps = caps_of(bargain.federation.introduce(), bargain.rules)
    ladder = check_ladder([*(procedure.budgets or default_ladder(free.own)), *caps.values()])
    on_message(f"Budgets to combine: {', '.join(f'{budget:g}' for budget in ladder)}.")
    voters = Voters.meet(bargain, ladder, free)
    clients = bargain.federation.names

    def train(levels: Levels, why: str) -> Offer:
        given = {client: ladder[level] for client, level in zip(clients, levels, strict=True)}
        listed = ", ".join(f"{client} {budget:g}" for client, budget in given.items())
        on_message(f"{listed} ({why})")
        return bargain.offer(given, free, why)

    exploration = Exploration(
        clients, ladder, train, lambda offers: voters.vote(offers).best, procedure.most, caps
    )
    offers = exploration.run(free.own)
    outcome = voters.vote(offers)
    decided_by, agreed = outcome.agreed(procedure.by)
    worse = dominated(merits(offers))
    return Negotiation(
        table=table,
        clients=clients,
        budgets=ladder,
        part=free.part,
        metric=bargain.rules[0].metric,
        attributes=tuple(rule.attribute for rule in bargain.rules),
        min_group_rows=bargain.min_group_rows,
        l2=bargain.l2,
        objective=objective_name(bargain.objective),
        offers=tuple(replace(o, is_dominated=bool(w)) for o, w in zip(offers, worse, strict=True)),
        on_ballot=outcome.positions,
        alone=voters.walk_away(outcome.ballots),
        ballots=outcome.ballots,
        elections=outcome.elections,
        decided_by=decided_by,
        agreed=agreed,
        costs=() if agreed is None else costs_around(offers, agreed, ladder),
        notes=_notes(exploration, procedure.most, outcome),
        loss=bargain.model.loss.name,
    )


def _notes(exploration: Exploration, most: int, outcome: Outcome) -> tuple[str, ...]:
    notes = []
    if exploration.n_combinations > most <= len(exploration.known):
        notes.append(
            f"Exploring stopped at {most} combinations; a larger `--most` may find better ones."
        )
    silent = [client for client, ballot in outcome.ballots.items() if not ballot.gains]
    if silent:
        notes.append(
            f"Nash's rule has no winner: {', '.join(map(repr, silent))} does not report its gains."
        )
    elif outcome.winner("nash") is None:
        notes.append(
            "No bargaining solution: every combination leaves a client worse off than alone."
        )
    return tuple(notes)


def costs_around(
    offers: Sequence[Offer], position: int, ladder: Sequence[float]
) -> tuple[Cost, ...]:
    """Return what changes for all clients if one of them has the next looser budget.

    A client has no entry if that combination was not trained, for example because the looser
    budget would have no effect.
    """
    here, costs = offers[position], []
    for client, budget in here.budgets.items():
        relaxed = min((level for level in ladder if level > budget), default=None)
        there = next((o for o in offers if o.budgets == {**here.budgets, client: relaxed}), None)
        if relaxed is None or there is None:
            continue
        pairs = {c: (view, there.views[c]) for c, view in here.views.items()}
        costs.append(
            Cost(
                client,
                budget,
                relaxed,
                here.prices.get(client, 0.0),
                accuracy={c: after.accuracy - view.accuracy for c, (view, after) in pairs.items()},
                loss={c: after.loss - view.loss for c, (view, after) in pairs.items()},
            )
        )
    return tuple(costs)
