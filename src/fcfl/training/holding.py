"""Budgets that hold for decisions and on new rows: the turns after the plain fit.

A model that is trained with the plain budgets keeps them by smooth rates on training rows. Then

1. where decisions exceed a budget, its bound is lowered by what they exceed it by, at most three
   times, and what is left is taken inside by the least change of the model (`server.decisions`);
2. from there it is trained on under tighter bounds (`margins`), so that new rows keep the budgets
   with the confidence asked for, and again until decisions keep the budgets; where that costs too
   much or does not converge, with margins as large as they can be;
3. from there against the drift of small clients (`drift`), and with their rates moved.

Every turn goes on from the last model and is a run with its own checkpoint. Those of 1 are kept
only if they cost no more accuracy on training rows than `MOST_ACCURACY`, and so are the others.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from fcfl._types import Vector
from fcfl.rules import Rule
from fcfl.server.decisions import RestoreDecisions
from fcfl.server.problem import Problem
from fcfl.training.drift import drift_at, drifts_of
from fcfl.training.few_rows import too_few_rows
from fcfl.training.held import (
    NEARLY,
    Held,
    held_at,
    sentence_on_changes,
    sentence_on_exceeded,
    sentence_on_no_margins,
)
from fcfl.training.margins import STEP, Limits, Margins, margins_at
from fcfl.training.run_stages import Run, Stage

MOST_ACCURACY = 0.02  # share of all training rows that turns may decide wrongly instead of rightly
MOST_FOR_MOVING = 0.002  # the same for moving the rates of small clients
DRIFT_SHARES = (1.0, 0.5)  # of the drift that training is held against: the first it can be
MOVES = 6  # tries of how far the rates of small clients may move
FURTHER, FURTHEST = 1.5, 2.0  # times the aim that a move is tried by: next, and at most
PUSHES = (1.0, 0.8, 0.6)  # shares of the aim that the least change is tried for
MOST_LOSS = 0.01  # by how much moving may raise the mean of the clients' losses
MOVED = 0.8  # of its aim: near enough
TURNS = 3  # of lowering bounds by what decisions exceed them by
FEEDBACK, AT_LEAST = 1.2, 5e-4  # times the excess, and a bit more
TURN_ROUNDS = 100  # of each stage of a turn, more where the plain fit took more


class Holding:
    """The turns after the plain fit of a run: `stages` has all of them, `notes` what to say."""

    def __init__(self, run: Run, rules: Sequence[Rule], plain: Stage) -> None:
        self._run, self._rules = run, rules
        self._asked: Problem = plain.progress.state.problem
        self.stages: list[Stage] = [plain]
        self.notes: list[str] = []
        self.plain = self._held(plain.params, plain.progress.state)
        self._method = run.method
        self._reference = self.plain  # what costs count from: this, then the model without margins

    def exceeded(self, held: Held) -> float:
        """What decisions exceed budgets by, in all; 0 when they keep every one."""
        return float(held.excess(self._asked).sum())

    def hold(self, confidence: float, most_change: float) -> Held:
        """The model with margins for ``confidence``, its decisions within the budgets."""
        if not len(self._asked.constraints) or self.plain.state.status in ("infeasible", "failed"):
            return self.plain
        self._method = self._limited()
        base = self._inside(self.plain, Limits(self._asked))
        self._reference = base
        kept = self._with_margins(base, confidence, most_change)
        if self.exceeded(kept) > 0:
            self._say(sentence_on_exceeded(kept, self._asked, MOST_ACCURACY))
        for sentence in sentence_on_changes(kept.changes(base)):
            self._say(sentence)
        return self._with_drifts(kept) if self._tells_drift else kept

    def as_it_is(self, confidence: float) -> Held:
        """The plain fit, where the method cannot go on; that it has no margins is told."""
        if confidence and len(self._asked.constraints):
            for sentence in sentence_on_no_margins(self._run.method, confidence):
                self._say(sentence)
        return self.plain

    @property
    def _is_exact(self) -> bool:
        """Whether clients are asked for curvature."""
        method = self._run.method  # one of your own need not know
        return hasattr(method, "is_exact") and bool(method.is_exact(self.plain.params.size))

    @property
    def _tells_drift(self) -> bool:
        """Whether clients are asked how gradients vary: each by itself, so not under masks."""
        return self._is_exact and not self._run.federation.is_masked

    def _with_drifts(self, held: Held) -> Held:
        """The same with what is known of its rates on new rows."""
        drifts = drifts_of(self._run.clients, held.at, held.state)
        if drifts is None:
            return held
        split = np.split(drifts, len(self._asked.clients))
        known = dict(zip(self._asked.clients, split, strict=True))
        return replace(held, found=replace(held.found, drifts=known))

    def _limited(self) -> Any:
        """The method of a turn: it goes on from a model that is near, and gives up if it is not."""
        most = max(TURN_ROUNDS, sum(self.plain.state.rounds) // 2)
        given = self._run.method.rounds or (most, most)
        if not isinstance(given, tuple):
            return replace(self._run.method, rounds=min(most, given))
        return replace(self._run.method, rounds=tuple(min(most, count) for count in given))

    def _with_margins(self, base: Held, confidence: float, most_change: float) -> Held:
        """The model under the whole margin, or under the largest part of it that it can have."""
        if confidence == 0.0:
            return base
        at = replace(base.at, problem=self._asked)
        drift = drift_at(self._run.clients, at, base.state) if self._tells_drift else None
        margins = margins_at(at, base.decided, most_change, drift)
        for sentence in too_few_rows(margins, confidence):
            self._say(sentence)
        whole, exceeded = margins.deviations_for(confidence), base.excess(self._asked)
        limits, best = margins.limits(exceeded), base
        low, high, tried, why = 0, round(whole / STEP) + 1, round(whole / STEP), ""
        while True:
            turn = self._turn(margins.tightened(tried * STEP), best, "margin")
            if turn.is_sound and not self._costs_too_much(turn):
                turn = self._lowered(turn, margins.limits(exceeded, tried * STEP))
                turn = self._inside(turn, limits)
            refused = self._refused(turn, limits)
            if refused is None:
                low, best = tried, turn
            else:
                high, why = tried, refused
            if high - low <= 1:
                break
            tried = (low + high) // 2
        if high * STEP <= whole:
            self._say(
                f"Margins for {confidence:g} confidence were cut to {low * STEP / whole:.0%} of "
                f"their size: with more, {why}."
            )
        if low == 0:
            return best
        wider = margins.limits(exceeded, low * STEP)
        return self._for_small_clients(margins, low * STEP, (wider, limits), best)

    def _for_small_clients(
        self, margins: Margins, deviations: float, limits: tuple[Limits, Limits], best: Held
    ) -> Held:
        """The model held against its drift, and with rates moved to where they vary less.

        Each is left out where it does not succeed. Moving rates must be cheap, too: one of .09
        that falls to .04 costs others much, one of .82 that rises to .87 may cost nothing.
        """
        kept = 0.0
        if margins.drifted(deviations).any():
            for share in DRIFT_SHARES:
                problem = margins.tightened(deviations, against_drift=share)
                turn = self._turn(problem, best, "drift")
                held = self._settled(turn, best, limits, MOST_ACCURACY)
                if held is not None:
                    best, kept = held, share
                    break
        tightened = partial(margins.tightened, deviations, against_drift=kept)
        if margins.aims(deviations).any():
            found = self._moved(tightened, partial(margins.reached, deviations), limits, best)
            return self._pushed(margins, deviations, limits, best, found)
        return best

    def _moved(
        self,
        tightened: Callable[..., Problem],
        reached: Callable[[Vector], float],
        limits: tuple[Limits, Limits],
        best: Held,
    ) -> Held:
        """The model with the rates of small clients moved as far as they may, found by trying.

        People who are alike are decided about alike: a rate of decisions jumps where the smooth
        one moves by little, and may be too far on the other side, or not have moved at all.
        """
        found, low, high, share = best, 0.0, np.inf, 1.0
        for _ in range(MOVES):
            if reached(found.decided) >= MOVED:
                break
            turn = self._turn(tightened(moved=share), best, "moved")
            is_too_far = turn.excess(limits[1].problem)[len(self._asked.constraints) :].any()
            is_out = is_too_far or turn.mean_loss > best.mean_loss + MOST_LOSS
            kept = None if is_out else self._settled(turn, best, limits, MOST_FOR_MOVING)
            low, high = (low, share) if kept is None else (share, high)
            found = max(found, kept or found, key=lambda held: reached(held.decided))
            share = (low + high) / 2 if np.isfinite(high) else min(FURTHER * low, FURTHEST)
            if share == low:
                break
        return found

    def _pushed(
        self, margins: Margins, by: float, limits: tuple[Limits, Limits], best: Held, found: Held
    ) -> Held:
        """The model changed as little as moves the decided rates of small clients.

        Training again changes decisions everywhere: it may cost others more than the move does.
        """
        lower, needed = limits
        for share in PUSHES:
            if margins.reached(by, found.decided) >= share * MOVED:
                break
            turn = self._restored(best, margins.aimed(lower, by, share))
            is_dear = turn.accuracy < best.accuracy - MOST_FOR_MOVING
            is_dear |= turn.mean_loss > best.mean_loss + MOST_LOSS
            # Margins, of decisions and of smooth rates, are not given up for a move.
            is_out = turn.excess(lower.problem).sum() > best.excess(lower.problem).sum()
            is_out |= turn.at.violations[: len(self._asked.constraints)].max() > NEARLY
            if not is_dear and not is_out and self._refused(turn, needed) is None:
                found = max(found, turn, key=lambda held: margins.reached(by, held.decided))
        return found

    def _settled(
        self, turn: Held, best: Held, limits: tuple[Limits, Limits], most: float
    ) -> Held | None:
        """A turn from the best model, brought inside; None if it fails or costs over ``most``.

        Decisions are to keep the second limits, and the first, lower ones as far as that succeeds.
        """
        lower, needed = limits
        if turn.is_sound and turn.accuracy >= best.accuracy - most:
            turn = self._inside(self._lowered(turn, lower), needed)
        is_cheap = turn.accuracy >= best.accuracy - most
        return turn if is_cheap and self._refused(turn, needed) is None else None

    def _refused(self, turn: Held, limits: Limits) -> str | None:
        """Why a margin is not kept, None if it is."""
        if not turn.is_sound:
            return "training does not converge"
        if self._costs_too_much(turn):
            return f"over {MOST_ACCURACY:g} of accuracy on training rows would be lost"
        if turn.excess(limits.problem).sum() > 0:
            return "decisions do not keep the budgets, or a client's rate changes too much"
        return None

    def _inside(self, held: Held, limits: Limits) -> Held:
        """The model trained on until decisions keep ``limits``, or as near as that comes."""
        held = self._lowered(held, limits)
        if held.excess(limits.problem).sum() > 0:
            held = self._restored(held, limits)
        return held

    def _lowered(self, kept: Held, limits: Limits) -> Held:
        """The model trained on under bounds lower than its smooth rates, by what decisions exceed.

        Of a row whose smooth value is below its bound, a bound a little lower changes nothing.
        """
        bounds, last = kept.state.problem.constraints.bounds, kept
        least = kept.excess(limits.problem).sum()
        for _ in range(TURNS):
            if least == 0:
                break
            excess = last.excess(limits.problem)
            smooth = limits.problem.constraints.apply(last.at.rates)
            lower = np.minimum(bounds, smooth - FEEDBACK * excess - AT_LEAST)
            bounds = np.where(excess > 0, lower, bounds)
            last = self._turn(limits.under(bounds), last, "decisions")
            if not last.is_sound or self._costs_too_much(last):
                break
            if last.excess(limits.problem).sum() < least:
                kept, least = last, last.excess(limits.problem).sum()
        return kept

    def _restored(self, kept: Held, limits: Limits) -> Held:
        """The model moved as little as brings its decisions inside."""
        method = RestoreDecisions(exact=self._is_exact)
        stage = self._run.train(
            limits.problem, kept.params, self._folder("restored"), method, "project"
        )
        self.stages.append(stage)
        restored = self._held(stage.params, kept.state)
        is_better = restored.excess(limits.problem).sum() < kept.excess(limits.problem).sum()
        return restored if is_better and not self._costs_too_much(restored) else kept

    def _costs_too_much(self, turn: Held) -> bool:
        return turn.accuracy < self._reference.accuracy - MOST_ACCURACY

    def _turn(self, problem: Problem, since: Held, what: str) -> Held:
        stage = self._run.train(problem, since.params, self._folder(what), self._method, "tighten")
        self.stages.append(stage)
        return self._held(stage.params, stage.progress.state)

    def _folder(self, what: str) -> str:
        return f"turn-{len(self.stages)}-{what}"

    def _held(self, params: Vector, state: Any) -> Held:
        return held_at(self._run, params, state, self._rules, self._asked.clients)

    def _say(self, sentence: str) -> None:
        self.notes.append(sentence)
        self._run.session.on_message(sentence)
