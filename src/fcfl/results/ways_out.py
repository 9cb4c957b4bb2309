"""What would lower the price of budgets, each way with its own price where that is known."""

from .result import Result

HUNDREDTH = 0.01  # by which a budget is relaxed in a sentence
LEAST_NAMED = 0.005  # accuracy that margins must cost before leaving them out is advised


def ways_out(result: Result) -> str:
    """Return a sentence with every way that applies: measured, estimated, or without a figure."""
    ways = [_larger_budget(result)]
    margins = _margins(result)
    if margins:
        ways.append(margins)
    more_rows = _more_rows(result)
    if more_rows:
        ways.append(more_rows)
    if len(result.clients) > 1 and not _has_global_budgets(result):
        ways.append("--scope global")
    if result.threshold is not None:
        ways.append(f"another --threshold than {result.threshold:g}")
    listed = f"{'; '.join(ways[:-1])}; or {ways[-1]}" if len(ways) > 1 else ways[0]
    return f"What would help: {listed}."


def _larger_budget(result: Result) -> str:
    """The budget with the largest shadow price, and what a hundredth of it saves."""
    dear = max(result.prices, key=lambda price: price.value, default=None)
    if dear is None or dear.value <= 0:
        return "looser budgets"
    whose = result.name_of_all if dear.client is None else dear.client
    loosened = "a smaller --ratio" if dear.rule == "ratio" else "a larger --budget"
    more = "less" if dear.rule == "ratio" else "more"
    return (
        f"{loosened} ({HUNDREDTH:g} {more} for {whose}, {dear.attribute}, would lower the training "
        f"objective by about {HUNDREDTH * dear.value:.2g})"
    )


def _margins(result: Result) -> str:
    """What leaving out margins would regain: measured on the way."""
    price = result.price
    if price is None or result.margins is None:
        return ""
    regained = price.with_budgets.accuracy - price.with_margins.accuracy
    if regained < LEAST_NAMED:
        return ""
    return f"a smaller --confidence (0 regains {100 * regained:.1f} points of accuracy)"


def _more_rows(result: Result) -> str:
    """The client that is shortest of rows, and how many times as many it would take."""
    short = {} if result.margins is None else result.margins.rows_short
    if not short:
        return "more rows"
    known = [(times, client) for client, times in short.items() if times is not None]
    if not known:
        return ""
    times, client = max(known)
    return f"more rows (about {times_as_many(times)} times as many for {client})"


def times_as_many(times: float) -> str:
    """Write a factor with two digits, or as a whole number."""
    return f"{times:.2g}" if times < 10 else f"{times:,.0f}"


def _has_global_budgets(result: Result) -> bool:
    return any(entry.budget is not None for entry in result.overall.train.disparities)
