"""What a run over sites is going to cost: exchanges by its settings, time by the introductions.

Ranges for a linear model trained by sqp are the .05 and .95 quantiles of 30 runs each,
`python -m benchmarks.exchanges`. A run of another method is bounded by its rounds.
"""

from typing import Any

from fcfl.methods.method import traits_of
from fcfl.models.linear import Linear
from fcfl.models.model import Model
from fcfl.runs.settings import Experiment

# By whether settings are chosen, whether the objective is "max", and what is enforced.
EXCHANGES = {
    (True, False, "margins"): (21, 60),
    (True, False, "budgets"): (18, 30),
    (True, False, "nothing"): (12, 14),
    (False, False, "margins"): (16, 56),
    (False, False, "budgets"): (12, 32),
    (False, False, "nothing"): (7, 8),
    (False, True, "margins"): (24, 72),
    (False, True, "budgets"): (17, 37),
    (False, True, "nothing"): (9, 10),
}
# Under masks a request for a sum takes a second exchange, which opens it. Not all requests do: on
# the tables of three clients or more the shortest runs took 1.7 times as many exchanges. With
# margins this gives 36 to 120 and 27 to 112; 20 runs each took 39 to 114 and 34 to 100.
MASKED = (1.7, 2.0)
AROUND = 3  # of other methods: introductions, counts of groups, counts of decisions


def cost_sentence(experiment: Experiment, method: Any, model: Model, seconds: float) -> str | None:
    """Return what to expect if an exchange takes ``seconds``; None if it was not measured."""
    if traits_of(method).is_cross_validated:
        exchanges = typical_exchanges(experiment, method, model)
        basis = "the range of nine in ten measured runs with such settings"
        if experiment.masked:
            basis = "estimated from measured runs without masks"
    else:
        exchanges, basis = most_exchanges(experiment, method), "if all rounds are taken"
    if exchanges is None:
        return None
    low, high = exchanges
    times = [_duration(count * seconds) for count in dict.fromkeys(exchanges)]
    count = f"{low:,} to {high:,}" if low < high else f"about {high:,}"
    return (
        f"Expect {count} exchanges with all sites, {basis}: {' to '.join(times)} at "
        f"{_duration(seconds)} each, the time of the slowest introduction."
    )


def typical_exchanges(experiment: Experiment, method: Any, model: Model) -> tuple[int, int] | None:
    """Return the range of nine in ten runs by sqp; None for settings that were not measured."""
    is_linear = isinstance(model, Linear) and method.is_exact(model.n_params)
    if not is_linear or experiment.starts not in (None, 1):
        return None
    confidence = experiment.confidence
    enforced = "margins" if confidence or confidence is None else "budgets"
    if not (experiment.is_constrained or experiment.policy):
        enforced = "nothing"
    settings = experiment.open_settings
    measured = EXCHANGES.get((settings.is_open, settings.objective == "max", enforced))
    if measured is None or not experiment.masked:
        return measured
    return round(measured[0] * MASKED[0]), round(measured[1] * MASKED[1])


def most_exchanges(experiment: Experiment, method: Any) -> tuple[int, int] | None:
    """Return about how many exchanges all rounds take; None if a round is not one exchange."""
    rounds = getattr(method, "rounds", None)
    if not isinstance(rounds, int):  # two-stage counts accepted steps
        return None
    most = AROUND + rounds * (1 if experiment.relative_budget is None else 2)
    return most, most


def _duration(seconds: float) -> str:
    """Return seconds, minutes or hours, whichever is short."""
    if seconds < 90:
        return f"{seconds:.2g} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
