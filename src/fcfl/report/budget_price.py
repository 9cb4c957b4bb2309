"""What budgets and their margins cost on training rows, and by what each client's are kept."""

from collections.abc import Iterator
from dataclasses import dataclass

from fcfl.results import Result
from fcfl.results.findings import times_as_many
from fcfl.results.result import PriceStep, Share

from .words import listed, trained_sentence


@dataclass(frozen=True)
class ClientPrice:
    """Accuracy and share selected of a client without budgets, with budgets, and with margins.

    ``rows_needed`` is how many times its rows the confidence would take, empty if they suffice.
    ``kept_by`` is "own rows", or "estimate" with the weight of its own rows, empty unless pooled.
    """

    client: str
    steps: tuple[Share, Share, Share]
    rows_needed: str
    kept_by: str
    is_odd: bool


@dataclass(frozen=True)
class BudgetPrice:
    """The price in three steps, and sentences on margins and estimates."""

    lines: tuple[ClientPrice, ...]
    sentences: tuple[str, ...]
    is_short: bool
    is_pooled: bool


def price_in_steps(result: Result) -> BudgetPrice | None:
    """Return a line for each client and one for all rows; None where the price is not known."""
    price = result.price
    if price is None:
        return None
    steps = price.without_budgets, price.with_budgets, price.with_margins
    lines = [_line(name, _shares(steps, name), result) for name in result.clients]
    if len(lines) > 1:
        first, second, third = (Share(one.accuracy, one.selected) for one in steps)
        lines.append(ClientPrice(result.name_of_all, (first, second, third), "", "", False))
    sentences = margin_sentence(result), *pooling_sentences(result)
    return BudgetPrice(
        tuple(lines),
        tuple(filter(None, sentences)),
        is_short=any(line.rows_needed for line in lines),
        is_pooled=result.pooling is not None,
    )


def _shares(steps: tuple[PriceStep, ...], client: str) -> tuple[Share, Share, Share]:
    first, second, third = (one.clients[client] for one in steps)
    return first, second, third


def _line(client: str, steps: tuple[Share, Share, Share], result: Result) -> ClientPrice:
    short = {} if result.margins is None else result.margins.rows_short
    needed = _needed(short[client]) if client in short else ""
    pooling, kept_by, is_odd = result.pooling, "", False
    if pooling is not None and client in pooling.weights:
        weight = pooling.weights[client]
        is_own = client in pooling.own_rows_decide
        kept_by = "own rows" if is_own else f"estimate, own rows weigh {weight:.2f}"
        is_odd = client in pooling.odd
    return ClientPrice(client, steps, needed, kept_by, is_odd)


def _needed(times: float | None) -> str:
    return "no number suffices" if times is None else f"{times_as_many(times)} times"


def steps_sentence(result: Result) -> str:
    """Return accuracy and share selected on training rows in three steps, in one sentence."""
    price = result.price
    if price is None:
        return ""
    steps = [price.without_budgets, price.with_budgets]
    if result.margins is not None:
        steps.append(price.with_margins)
    accuracy = " → ".join(f"{one.accuracy:.3f}" for one in steps)
    selected = " → ".join(f"{one.selected:.3f}" for one in steps)
    last = " → with margins" if result.margins is not None else ""
    return f"Training rows, without budgets → with{last}: accuracy {accuracy}, selected {selected}."


def margin_sentence(result: Result) -> str:
    """Return the confidence that margins were made for, and whether rows suffice."""
    margins = result.margins
    if margins is None:
        return ""
    if margins.cut_to is None:
        said = f"Margins are made for {margins.confidence:g} confidence"
    else:
        made = f"{margins.cut_to:g}" if margins.cut_to else "0 (there are none)"
        said = f"Margins are made for {made} instead of {margins.confidence:g} confidence"
    n = len(margins.rows_short)
    if not n:
        return f"{said}."
    whose = "1 client are" if n == 1 else f"{n} clients are"
    return f"{said}; the rows of {whose} too few for it, and have smaller margins."


def pooling_sentences(result: Result) -> Iterator[str]:
    """Say whose budgets are kept by estimates, who exceeds one on its own rows, and who differs."""
    pooling = result.pooling
    if pooling is None:
        return
    yield trained_sentence(result)
    if pooling.odd:
        yield (
            f"Estimates may be too low for {listed(pooling.odd)}: more than chance separates them "
            "from the other clients."
        )
