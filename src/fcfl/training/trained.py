"""What training leaves: the model, every round, and what the model does for each client."""

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

WEIGHT_SHOWN = 1e-3  # share in the worst loss above which a client is named


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """Where a run ended.

    ``turns`` are all fits, from the one without budgets to the projection; ``starts`` what became
    of each start that was compared. ``state`` is the last one of the fit that ``params`` are from.

    ``exceeded`` says by how much decisions on training rows exceed what they must keep, by name:
    budgets on the own rows of clients whose rows can tell, estimates of the others, and limits on
    rate shifts.
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
    """A trained model and how it came about.

    ``at`` is the problem it solved, evaluated at ``params`` on training rows with smooth rates;
    ``evaluations`` has the hard counts of all rows, compared with the ``rules`` asked for.

    With ``thresholds`` decisions are by client and group. With ``privacy`` every count is noisy,
    and no loss is known.
    ``exchanges`` are the requests that all clients answered, by phase (`ExchangeCount`).
    ``degenerate`` is set if the model selects nearly nobody or nearly everybody: it is of no use.
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
        """Method, status, exchanges, and a line for each disparity of the first clients."""
        return repr(self._shown)

    def _repr_html_(self) -> str:
        """The same as a table, for notebooks."""
        return self._shown._repr_html_()

    @property
    def _shown(self) -> results.Result:
        return self.result(seed=0, start="", settings={}, data=results.DataSource("", ""))

    @property
    def history(self) -> tuple[RoundInfo, ...]:
        """The rounds of this process, of all turns."""
        return tuple(info for turn in self.turns for info in turn.history)

    @property
    def status(self) -> str:
        """How training ended: converged, stopped, infeasible or failed."""
        return str(self.state.status)

    @property
    def message(self) -> str:
        """One sentence on how training ended."""
        return str(self.state.message)

    @property
    def rounds(self) -> tuple[int, ...]:
        """Rounds of each stage, of all turns."""
        counts = [turn.progress.state.rounds for turn in self.turns]
        return tuple(map(sum, zip_longest(*counts, fillvalue=0)))

    @property
    def kkt(self) -> float | None:
        """How far the model is from optimal, None for methods that do not say."""
        return getattr(self.state, "kkt", None)

    @property
    def losses(self) -> dict[ClientId, float]:
        """Each client's mean training loss, the L2 term left out."""
        clients = self.at.problem.clients
        return {c: report.loss for c, report in zip(clients, self.at.reports, strict=True)}

    @property
    def rates(self) -> tuple[RateId, ...]:
        """What is compared, in the order of the counts."""
        return self.evaluations.rates

    @property
    def counts(self) -> Mapping[ClientId, Counts]:
        """Hard counts of each client's training rows."""
        return self.evaluations.train

    @property
    def prices(self) -> tuple[Price, ...]:
        """What each budget costs, the most expensive first; empty for methods without prices."""
        if not hasattr(self.state, "prices"):
            return ()
        return tuple(budget_prices(self.at, self.state.prices))

    @property
    def largest_violation(self) -> float:
        """By how much a smooth rate of training rows exceeds what it was trained for, at most."""
        return self.at.largest_violation

    @property
    def budgets_met(self) -> bool:
        """Whether decisions on training rows keep all that they must: nothing is ``exceeded``."""
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
        """Everything that ``result.json`` says; ``notes`` come before those of training."""
        useless = None if self.degenerate is None else self.degenerate.in_python  # has its field
        prices, state = self.prices, self.state
        cost = sum_tallies(turn.progress.tally for turn in self.turns)
        rows = row_sections(self.evaluations, prices)
        losses = [who.train.loss for who in rows.clients.values() if who.train.loss is not None]
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
            notes=(*notes, *(note for note in self.notes if note != useless)),
        )
