"""Results of training: the model, its rounds, and its losses and rates at each client."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Literal

import numpy as np

from fcfl import __version__
from fcfl._types import ClientId, RateId, Vector
from fcfl.client.counts import Counts
from fcfl.federation.loop import sum_tallies
from fcfl.methods.method import RoundInfo
from fcfl.models.model import GroupThresholds, Model
from fcfl.problem import Evaluation, Price, budget_prices
from fcfl.results import result as results
from fcfl.results.evaluations import Evaluations, row_sections
from fcfl.rules import Rule
from fcfl.training.run import Stage

WEIGHT_SHOWN = 1e-3  # smallest weight in the worst loss at which a client is listed


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """Result of the fits of a run.

    ``turns`` are all fits, from the one without budgets to the projection. ``starts`` has the
    losses reached from each starting point. ``state`` is the final state of the fit that returned
    ``params``.

    ``exceeded`` maps names of budgets and rate limits to the excess of decisions on training rows.
    With pooling, a client is judged by its own rows if they suffice, otherwise by its estimate.
    """

    params: Vector
    state: Any
    turns: tuple[Stage, ...]
    notes: tuple[str, ...]
    rules: tuple[Rule, ...]
    selection: results.Selection | None = None
    starts: tuple[results.Start, ...] = ()
    exceeded: Mapping[str, float] = field(default_factory=dict)
    price: results.PriceOfBudgets | None = None
    margins: results.MarginSummary | None = None
    pooling: results.PoolingSummary | None = None
    privacy: results.Privacy | None = None


@dataclass(frozen=True, kw_only=True)
class Trained(Fitted):
    """A trained model with its evaluation and the record of its training.

    ``at`` is the solved problem, evaluated at ``params`` with smooth rates of training rows.
    ``evaluations`` has the hard counts of all rows and compares them with the ``rules``.

    With ``thresholds``, decisions depend on a row's client and group. With ``privacy``, every count
    is noisy and losses are unknown. ``exchanges`` is the number of completed exchanges by phase
    (`ExchangeCount`). ``degenerate`` is set if the model selects almost nobody or almost everybody.
    """

    model: Model
    method: Any
    at: Evaluation
    evaluations: Evaluations
    l2: float
    objective: float | Literal["max", "mean"] | None
    exchanges: Mapping[str, int]
    thresholds: GroupThresholds | None = None
    degenerate: results.Degenerate | None = None

    def __repr__(self) -> str:
        """Return method, status, exchanges, and one line per disparity of the first clients."""
        return repr(self._shown)

    def _repr_html_(self) -> str:
        """Return the summary as an HTML table for notebooks."""
        return self._shown._repr_html_()

    @property
    def _shown(self) -> results.Result:
        return self.result(seed=0, start="", settings={}, data=results.DataSource("", ""))

    @property
    def history(self) -> tuple[RoundInfo, ...]:
        """Rounds that this process ran, over all fits."""
        return tuple(info for turn in self.turns for info in turn.history)

    @property
    def status(self) -> str:
        """Final status: converged, stopped, infeasible or failed."""
        return str(self.state.status)

    @property
    def message(self) -> str:
        """Reason why training ended, in one sentence."""
        return str(self.state.message)

    @property
    def rounds(self) -> tuple[int, ...]:
        """Number of rounds in each stage, summed over all fits."""
        counts = [turn.progress.state.rounds for turn in self.turns]
        return tuple(map(sum, zip_longest(*counts, fillvalue=0)))

    @property
    def kkt(self) -> float | None:
        """KKT residual of the model, or None for methods that do not compute one."""
        return getattr(self.state, "kkt", None)

    @property
    def losses(self) -> dict[ClientId, float]:
        """Each client's mean training loss without the L2 term."""
        clients = self.at.problem.clients
        return {c: report.loss for c, report in zip(clients, self.at.reports, strict=True)}

    @property
    def rates(self) -> tuple[RateId, ...]:
        """Rates that are compared, in the order of the counts."""
        return self.evaluations.rates

    @property
    def counts(self) -> Mapping[ClientId, Counts]:
        """Hard counts of each client's training rows."""
        return self.evaluations.train

    @property
    def prices(self) -> tuple[Price, ...]:
        """Price of each budget, the highest first; empty for methods without prices."""
        if not hasattr(self.state, "prices"):
            return ()
        return tuple(budget_prices(self.at, self.state.prices))

    @property
    def largest_violation(self) -> float:
        """Largest excess of a smooth rate over its training bound, on training rows."""
        return self.at.largest_violation

    @property
    def budgets_met(self) -> bool:
        """Whether decisions on training rows exceed no budget and no rate limit."""
        return not self.exceeded

    def result(
        self,
        *,
        seed: int,
        start: str,
        settings: Mapping[str, object],
        data: results.DataSource,
        notes: Sequence[str] = (),
    ) -> results.Result:
        """Return the content of ``result.json``, with ``notes`` before the notes of training."""
        # `degenerate` has a field of its own, so its note is omitted.
        repeated = None if self.degenerate is None else self.degenerate.in_python
        prices, state = self.prices, self.state
        cost = sum_tallies(turn.progress.tally for turn in self.turns)
        rows = row_sections(self.evaluations, prices)
        losses = [c.train.loss for c in rows.clients.values() if c.train.loss is not None]
        only = results.Start(
            start, max(losses, default=None), sum(losses) / len(losses) if losses else None
        )
        pays = zip(state.problem.clients, state.worst_weights, strict=True) if prices else ()
        return results.Result(
            method=self.method.name,
            status=state.status,
            message=state.message,
            rounds={f"stage{i + 1}": count for i, count in enumerate(self.rounds)},
            exchanges=results.Exchanges.of(self.exchanges),
            evaluations=results.EvaluationCounts(cost.values, cost.gradients, cost.curvatures),
            bytes_from_clients=cost.bytes_from_clients,
            kkt_residual=None if self.kkt is None or not np.isfinite(self.kkt) else float(self.kkt),
            l2=self.l2,
            objective=results.objective_name(self.objective),
            selection=self.selection,
            threshold=self.model.threshold,
            thresholds=self.thresholds,
            degenerate=self.degenerate,
            seed=seed,
            fcfl_version=__version__,
            worst_client=rows.worst_client,
            clients=rows.clients,
            overall=rows.overall,
            starts=self.starts or (only,),
            exceeded=dict(self.exceeded),
            price=self.price,
            margins=self.margins,
            pooling=self.pooling,
            privacy=self.privacy,
            audit=rows.audit,
            prices=prices,
            worst_clients={c: float(weight) for c, weight in pays if weight > WEIGHT_SHOWN},
            settings={
                key: "mean" if key == "objective" and value == np.inf else value
                for key, value in settings.items()
                if value is not None
            },
            data=data,
            versions=results.versions(),
            notes=(*notes, *(note for note in self.notes if note != repeated)),
        )
