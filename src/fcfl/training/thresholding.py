r"""Budgets kept by thresholds: one score, trained without budgets, and decisions by group.

Every client chooses thresholds for its groups on its own training rows (`client.thresholds`), so
that only these and the usual counts leave it. First within the plain budgets; then, for a
confidence, within bounds lowered by the margins of those decisions (`margins`): of all pairs of
groups of a client the largest, since all of its groups share one window. A client's rate may move
by ``most_change`` for that, as in training; one that cannot keep its thresholds. Where margins cost
more accuracy than `MOST_ACCURACY`, they are made smaller.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fcfl._checks import check_choice
from fcfl._types import ClientId, RateKind, Vector
from fcfl.client.thresholds import MOST_KINDS, RateWindow
from fcfl.federation.federation import Federation
from fcfl.models.group_thresholds import THRESHOLDS, GroupThresholds
from fcfl.rules import Rule
from fcfl.server.problem import Problem, build_problem, evaluate_point
from fcfl.training.few_rows import too_few_rows
from fcfl.training.held import Held, held_at, sentence_on_changes
from fcfl.training.holding import MOST_ACCURACY
from fcfl.training.margins import STEP, Margins, margins_at
from fcfl.training.run_stages import Run, Stage


@dataclass(frozen=True)
class Thresholded:
    """A score with thresholds: what it decides, what exceeds budgets, what a person should know."""

    held: Held
    thresholds: GroupThresholds
    exceeded: float
    notes: tuple[str, ...]


def check_thresholds(
    thresholds: str, rules: Sequence[Rule], federation: Federation, *, relative: bool
) -> None:
    """Refuse, before anything is trained, what thresholds by group cannot keep."""
    check_choice("thresholds", thresholds, THRESHOLDS)
    if thresholds == "common":
        return
    bounded = [rule for rule in rules if rule.budget is not None or relative]
    if not bounded:
        raise ValueError("`thresholds` 'group' needs a budget: what the thresholds are to keep.")
    if any(rule.scope == "global" for rule in bounded):
        raise ValueError(
            "`thresholds` 'group' needs rules of scope 'client', got one of scope 'global': every "
            "client chooses its own."
        )
    attributes = tuple(dict.fromkeys(rule.attribute for rule in bounded))
    if len(attributes) > 1:
        raise ValueError(
            "`thresholds` 'group' needs budgets on one attribute, got "
            f"{', '.join(map(repr, attributes))}. Leave the other budgets out."
        )
    kinds = dict.fromkeys(kind for rule in bounded for kind in rule.kinds)
    if len(kinds) > MOST_KINDS:
        raise ValueError(
            f"`thresholds` 'group' compares at most {MOST_KINDS} kinds of rates, got "
            f"{', '.join(kinds)}. Leave a rule out."
        )
    federation.check_chooses_thresholds()


def with_thresholds(
    run: Run, rules: Sequence[Rule], plain: Stage, confidence: float, most_change: float
) -> Thresholded:
    """The trained score with thresholds that keep ``rules`` by decisions on training rows."""
    return _Choosing(run, rules, plain, most_change).choose(confidence)


class _Choosing:
    """The turns of one run."""

    def __init__(self, run: Run, rules: Sequence[Rule], plain: Stage, most_change: float) -> None:
        self._run, self._rules, self._plain = run, rules, plain
        self._most_change = most_change
        self._asked, self._notes = build_problem(
            rules, run.setup.rates, run.counts, l2=run.l2, min_group_rows=run.min_group_rows
        )
        self._attribute = next(rule.attribute for rule in rules if rule.budget is not None)

    def choose(self, confidence: float) -> Thresholded:
        """Thresholds within the budgets, then within tighter bounds."""
        notes = list(self._notes)
        base = self._choose(windows_of(self._asked))
        thresholds, held = self._with_margins(base, confidence, notes)
        notes.append(thresholds.sentence)
        for note in notes:
            self._run.session.on_message(note)
        exceeded = float(held.excess(self._asked).sum())
        return Thresholded(held, thresholds, exceeded, tuple(notes))

    def _with_margins(
        self, base: tuple[GroupThresholds, Held], confidence: float, notes: list[str]
    ) -> tuple[GroupThresholds, Held]:
        """The choice under the whole margin, or the largest part of it that does not cost much."""
        plain, held = base
        if confidence == 0.0 or not len(self._asked.constraints):
            return base
        margins = self._margins(held)
        whole = margins.deviations_for(confidence)
        notes += too_few_rows(margins, confidence)
        low, high, tried = 0, round(whole / STEP) + 1, round(whole / STEP)
        best = base
        while low + 1 < high:
            found = self._tightened(plain, margins, tried * STEP)
            if found[1].accuracy >= held.accuracy - MOST_ACCURACY:
                low, best = tried, found
            else:
                high = tried
            tried = (low + high) // 2
        if low * STEP < whole - STEP / 2:
            notes.append(
                f"Margins are {low * STEP:.1f} instead of {whole:.1f} standard deviations: larger "
                f"ones cost more than {MOST_ACCURACY:g} of accuracy on training rows."
            )
        notes += sentence_on_changes(best[1].changes(held))
        return best

    def _margins(self, held: Held) -> Margins:
        """The margins of decisions within the plain budgets."""
        hard = np.split(held.decided, len(self._asked.clients))
        reports = {
            client: (replace(held.found.reports[client], rates=rates),)
            for client, rates in zip(self._asked.clients, hard, strict=True)
        }
        at = evaluate_point(self._asked, held.params, reports)
        return margins_at(at, held.decided, self._most_change)

    def _tightened(
        self, plain: GroupThresholds, margins: Margins, deviations: float
    ) -> tuple[GroupThresholds, Held]:
        """The choice within bounds lowered by margins; of who would move too far, the plain one."""
        lowered = self._asked.constraints.bounds - margins.taken(deviations)
        together = dict(zip(margins.changes.keys, margins.changes.decided, strict=True))
        windows = {
            client: tuple(
                _limited(window, together[client, self._attribute, window.kind], self._most_change)
                for window in own
            )
            for client, own in windows_of(self._asked, lowered).items()
        }
        chosen, held = self._choose(windows)
        changed = self._changed_too_much(margins, held)
        if not changed:
            return chosen, held
        kept = {
            client: plain.by_client[client] if client in changed else own
            for client, own in chosen.by_client.items()
        }
        return self._decided(replace(chosen, by_client=kept))

    def _changed_too_much(self, margins: Margins, held: Held) -> set[ClientId | None]:
        changes = margins.changes
        decided = np.array([shares @ held.decided[columns] for columns, shares in changes.weights])
        over = np.abs(decided - changes.decided) > self._most_change + 1e-9
        return {key[0] for key, is_over in zip(changes.keys, over, strict=True) if is_over}

    def _choose(
        self, windows: Mapping[ClientId, tuple[RateWindow, ...]]
    ) -> tuple[GroupThresholds, Held]:
        run = self._run
        with run.federation.phase("threshold"):
            chosen = run.federation.choose_thresholds(
                run.setup, self._plain.params, self._attribute, windows
            )
        listed = {client: dict(own) for client, own in chosen.items() if own}
        return self._decided(GroupThresholds(self._attribute, listed))

    def _decided(self, thresholds: GroupThresholds) -> tuple[GroupThresholds, Held]:
        """The thresholds, and what they decide."""
        run = replace(self._run, setup=replace(self._run.setup, thresholds=thresholds))
        stage = self._plain
        held = held_at(run, stage.params, stage.progress.state, self._rules, self._asked.clients)
        return thresholds, held


def windows_of(
    problem: Problem, bounds: Vector | None = None
) -> dict[ClientId, tuple[RateWindow, ...]]:
    """What each client's rates are held to: for every rule and kind one window for all its groups.

    ``bounds`` are those of the rows, by default the budgets; of all pairs the lowest holds.
    """
    constraints = problem.constraints
    bounds = constraints.bounds if bounds is None else bounds
    weights = np.zeros(len(constraints))
    np.maximum.at(weights, constraints.entry_row, constraints.entry_value)
    windows: dict[tuple[ClientId, int, str], RateWindow] = {}
    lines = zip(constraints.rows, constraints.blocks, weights, bounds, strict=True)
    for row, block, weight, bound in lines:
        assert row.client is not None, "rules over all rows are refused before"
        kind: RateKind = row.kind  # type: ignore[assignment]
        key = (row.client, int(block), row.kind)
        window = windows.get(key, RateWindow(kind, (), float(weight), float(bound)))
        groups = tuple(dict.fromkeys((*window.groups, row.group_a, row.group_b)))
        windows[key] = replace(window, groups=groups, bound=min(window.bound, float(bound)))
    found: dict[ClientId, tuple[RateWindow, ...]] = {}
    for (client, *_), window in windows.items():
        found[client] = (*found.get(client, ()), window)
    return found


def _limited(window: RateWindow, together: float, most_change: float) -> RateWindow:
    """The window whose groups taken together stay near a rate."""
    return replace(window, least=together - most_change, most=together + most_change)
