"""What a client's rows can say about one rule: its value, an interval, and a verdict."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fcfl._types import RateId, Vector
from fcfl.rules import Difference, Rule, with_label

from .disparities import Comparison, compare, disparity_bounds, disparity_value
from .intervals import METHOD, Interval
from .noisy_counts import rows_worth

Verdict = Literal["met", "exceeded", "undetermined", "unconstrained"]


@dataclass(frozen=True, slots=True)
class Evidence:
    """One rule on one client's rows.

    ``value``, ``low`` and ``high`` are ``None`` where fewer than two groups have enough rows.
    ``smallest_verifiable`` is the tightest budget these group sizes could show to be met: the far
    end of the interval if the groups were selected alike. ``compared`` has the positions of the
    rates that were compared, ``notes`` name the groups left out.
    """

    value: float | None
    low: float | None
    high: float | None
    budget: float | None
    verdict: Verdict
    smallest_verifiable: float | None
    method: str = METHOD
    notes: tuple[str, ...] = ()
    compared: tuple[int, ...] = ()


def judge(
    rule: Rule,
    rates: Sequence[RateId],
    group_counts: Vector,
    group_selected: Vector,
    budget: float | None,
    alpha: float = 0.05,
    *,
    min_group_rows: float = 1.0,
    trained_counts: Vector | None = None,
    noise_sd: float = 0.0,
) -> Evidence:
    """Hold one client's counts against one rule.

    Parameters
    ----------
    rule : Difference or Ratio
        Its budget is not read; ``budget`` is this client's.
    rates : what each entry of ``group_counts`` and ``group_selected`` counts
    budget : number or None
    alpha : probability that the interval misses the true value
    min_group_rows : groups with fewer rows are left out, and named in ``notes``
    trained_counts : where training rows decide which groups have enough, those of each group
    noise_sd : of the noise in each cell that was counted, which makes intervals wider
    """
    compared = compare(rule, rates, group_counts, min_group_rows, trained_counts)
    notes = tuple(_too_few(rates[i], group_counts[i], min_group_rows) for i in compared.too_few)
    if not len(compared.pairs):
        return Evidence(None, None, None, budget, verdict_of(rule, None, budget), None, notes=notes)
    value = disparity_value(rule, compared, group_selected, group_counts)
    if noise_sd > 0:
        worth = rows_worth(rates, group_counts, group_selected, noise_sd)
        group_selected = group_selected * worth / np.maximum(group_counts, 1.0)
        group_counts = worth
    both = np.array([group_selected, _selected_alike(compared, group_selected, group_counts)])
    low, high = disparity_bounds(rule, compared, both, group_counts, alpha)
    interval = float(low[0]), float(high[0])
    smallest = float(high[1] if isinstance(rule, Difference) else low[1])
    return Evidence(
        value,
        *interval,
        budget,
        verdict_of(rule, interval, budget),
        smallest,
        notes=notes,
        compared=tuple(np.unique(compared.pairs).tolist()),
    )


def verdict_of(rule: Rule, interval: Interval | None, budget: float | None) -> Verdict:
    """Compare the whole interval with the budget; no interval leaves a budget undetermined."""
    if budget is None:
        return "unconstrained"
    if interval is None:
        return "undetermined"
    low, high = interval
    if isinstance(rule, Difference):
        is_met, is_exceeded = high <= budget, low > budget
    else:
        is_met, is_exceeded = low >= budget, high < budget
    return "met" if is_met else "exceeded" if is_exceeded else "undetermined"


def _selected_alike(compared: Comparison, selected: Vector, rows: Vector) -> Vector:
    """The counts if every compared group were selected at the pooled rate."""
    alike = np.zeros(len(rows))
    for groups in compared.columns.values():
        total = rows[groups].sum()
        if total:
            alike[groups] = rows[groups] * (selected[groups].sum() / total)
    return np.minimum(alike, rows)


def _too_few(rate: RateId, n_rows: float, least: float) -> str:
    fewer = f", fewer than {least:g}" if n_rows else ""
    return (
        f"{n_rows:g} {'row' if n_rows == 1 else 'rows'}{with_label(rate.kind)} of "
        f"{rate.attribute} = {rate.group!r}{fewer}: that group is left out of the comparison."
    )
