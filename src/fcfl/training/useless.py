"""Warn of a model that decides alike about everybody: it keeps any budget, for nothing."""

from fcfl.client.counts import pool_counts
from fcfl.results.evaluations import Evaluations

_LARGE_NOISE = 0.1  # of all rows: counts that may be wrong by more say nothing


def sentence_on_alike(found: Evaluations) -> tuple[str, ...]:
    """A warning of a model that decides alike about everybody: it keeps any budget, for nothing."""
    counts = pool_counts(found.train.values())
    selected = counts.true_positive + counts.false_positive
    positive = counts.true_positive + counts.false_negative
    return sentence_on_selected(selected, positive, counts.n_rows)


def sentence_on_selected(
    selected: float, positive: float, n_rows: float, noise: float = 0.0
) -> tuple[str, ...]:
    """As `sentence_on_alike`, of counts that may be wrong by ``noise``."""
    is_told = n_rows > 0 and noise < _LARGE_NOISE * n_rows
    if not is_told or not noise < positive < n_rows - noise or noise < selected < n_rows - noise:
        return ()
    whom = "everybody" if selected > n_rows / 2 else "nobody"
    rows = f"{n_rows:g}" if noise == 0 else f"about {n_rows:.0f}"
    surely = "" if noise == 0 else ", as far as counts with noise tell"
    return (
        f"The model selects {whom} of the {rows} training rows{surely}: it keeps every budget on "
        "equal rates and is of no use. Use a smaller `l2`, a larger budget, or more rows.",
    )
