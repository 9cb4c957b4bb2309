"""Budgets as people write them: for every client, for some, for all but some."""

import re
from collections.abc import Mapping, Sequence

from fcfl._checks import check_budget, is_number
from fcfl._types import ClientId

EVERYONE_ELSE = "*"  # key of a budget mapping that stands for all clients not named
_DECIMAL_COMMA = re.compile(r"([01]?),(\d+)")


def for_every_client(
    budget: Mapping[ClientId, float], clients: Sequence[ClientId]
) -> dict[ClientId, float]:
    """Write out the budget of all others."""
    named = {client: value for client, value in budget.items() if client != EVERYONE_ELSE}
    if EVERYONE_ELSE not in budget:
        return named
    return {client: budget[EVERYONE_ELSE] for client in clients if client not in named} | named


def read_share(text: str) -> float:
    """``0.05`` or ``5%`` as a number."""
    text = text.strip()
    return float(text[:-1]) / 100 if text.endswith("%") else float(text)


def parse_budget(name: str, text: str) -> float | dict[ClientId, float]:
    """``0.05``; ``north=0.05,south=0.1``; ``0.05,south=0.1``: all at .05 but one."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise ValueError(f"`{name}` is empty. Example: --budget 0.05")
    budgets: dict[ClientId, float] = {}
    for part in parts:
        client, equals, number = part.rpartition("=")
        key = client.strip() if equals else EVERYONE_ELSE
        try:
            value = read_share(number)
        except ValueError:
            raise _no_budget(name, part) from None
        if not key:
            raise _no_budget(name, part)
        if key in budgets:
            whom = "without a client" if key == EVERYONE_ELSE else f"for client {key!r}"
            is_one = _DECIMAL_COMMA.fullmatch(text.strip())
            hint = f" Write {is_one[1]}.{is_one[2]} with a point." if is_one else ""
            raise ValueError(f"`{name}` must not have two numbers {whom}, got {text!r}.{hint}")
        budgets[key] = check_budget(name if key == EVERYONE_ELSE else f"{name}[{key!r}]", value)
    return budgets[EVERYONE_ELSE] if list(budgets) == [EVERYONE_ELSE] else budgets


def _no_budget(name: str, part: str) -> ValueError:
    return ValueError(
        f"`{name}` must be a number or client=number, got {part!r}. "
        "Example: --budget 0.05, --budget 5% or --budget north=0.05,south=0.1"
    )


def budget_text(budget: float | Mapping[ClientId, float]) -> str:
    """What `parse_budget` reads as this budget."""
    if not isinstance(budget, Mapping):
        return f"{budget!r}"
    return ",".join(
        f"{value!r}" if c == EVERYONE_ELSE else f"{c}={value!r}" for c, value in budget.items()
    )


def check_budgets(name: str, budget: float | Mapping[ClientId, float]) -> None:
    """Refuse a budget that cannot bound a disparity, whoever it is for."""
    if not isinstance(budget, Mapping):
        check_budget(name, budget)
        return
    for client, value in budget.items():
        check_budget(f"{name}[{client!r}]", value)


def check_ratio(name: str, ratio: float) -> None:
    """Refuse what cannot be the ratio of a smaller rate to a larger one."""
    if not (is_number(ratio) and 0 <= ratio <= 1):
        raise ValueError(
            f"`{name}` must be a number from 0 to 1, got {ratio!r}. The four-fifths rule is 0.8."
        )
