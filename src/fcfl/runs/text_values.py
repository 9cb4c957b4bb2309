"""Values as people write them: lists, budgets, and numbers by name."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from fcfl._checks import check_budget
from fcfl._types import ClientId

EVERYONE_ELSE = "*"  # key of a budget mapping that stands for all clients not named
_DECIMAL_COMMA = re.compile(r"([01]?),(\d+)")

Number = TypeVar("Number", int, float)


def words(text: str) -> tuple[str, ...]:
    """Read ``race, sex`` as names."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def read_numbers(name: str, text: str) -> tuple[float, ...]:
    """Read ``0.2,0.1,5%`` as numbers."""
    try:
        return tuple(map(read_share, words(text)))
    except ValueError:
        raise ValueError(
            f"`{name}` must be numbers with commas, such as 0.2,0.1,0.05, got {text!r}."
        ) from None


def read_share(text: str) -> float:
    """Read ``0.05`` or ``5%`` as a number."""
    text = text.strip()
    return float(text[:-1]) / 100 if text.endswith("%") else float(text)


def read_rounds(name: str, text: str) -> tuple[int, ...]:
    """Read ``800,1500`` as whole numbers."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"`{name}` must be counts such as 800,1500, got {text!r}.") from None


def read_pairs(
    name: str,
    text: str,
    number: Callable[[str], Number],
    expected: str,
    unnamed: str = "",
) -> dict[str, Number]:
    """Read ``a=1,b=2`` as numbers by name; a number alone is that of ``unnamed``.

    Raise `ValueError` with what was ``expected`` if a part is something else, or if there is none.
    """
    found: dict[str, Number] = {}
    for part in words(text):
        key, equals, value = (piece.strip() for piece in part.rpartition("="))
        key = key if equals else unnamed
        try:
            read = number(value)
        except ValueError:
            key = ""
        if not key:
            raise ValueError(f"`{name}` must be {expected}, got {part!r}.")
        if key in found:
            raise ValueError(f"`{name}` must have one number for each name, got {text!r}.")
        found[key] = read
    if not found:
        raise ValueError(f"`{name}` is empty; it must be {expected}.")
    return found


def write_pairs(pairs: Mapping[str, float]) -> str:
    """Return the text that `read_pairs` reads as these numbers."""
    named = {"" if key == EVERYONE_ELSE else f"{key}=": value for key, value in pairs.items()}
    return ",".join(f"{key}{value!r}" for key, value in named.items())


def read_budget(name: str, text: str) -> float | dict[ClientId, float]:
    """Read ``0.05``; ``north=0.05,south=0.1``; ``0.05,south=0.1``: all at .05 but one."""
    comma = _DECIMAL_COMMA.fullmatch(text.strip())
    if comma:
        raise ValueError(
            f"`{name}` must not have two numbers without a client, got {text!r}. "
            f"Write {comma[1]}.{comma[2]} with a point."
        )
    expected = "a number or client=number. Example: 0.05, 5% or north=0.05,south=0.1"
    budgets = read_pairs(name, text, read_share, expected, unnamed=EVERYONE_ELSE)
    check_budgets(name, budgets)
    return budgets[EVERYONE_ELSE] if [*budgets] == [EVERYONE_ELSE] else budgets


def check_budgets(name: str, budget: float | Mapping[ClientId, float]) -> None:
    """Raise `ValueError` if a budget cannot bound a disparity."""
    given = budget if isinstance(budget, Mapping) else {EVERYONE_ELSE: budget}
    for client, value in given.items():
        check_budget(name if client == EVERYONE_ELSE else f"{name}[{client!r}]", value)


def for_every_client(
    budget: Mapping[ClientId, float], clients: Sequence[ClientId]
) -> dict[ClientId, float]:
    """Return the budget of every client: its own, or that of all others."""
    named = {client: value for client, value in budget.items() if client != EVERYONE_ELSE}
    if EVERYONE_ELSE not in budget:
        return named
    return {client: budget[EVERYONE_ELSE] for client in clients if client not in named} | named


def read_options(name: str, text: str) -> dict[str, float]:
    """Read ``q=10,local-epochs=5`` as numbers, without a point as whole ones."""
    pairs = read_pairs(name, text, _whole_or_not, "NAME=NUMBER, such as q=10")
    return {key.replace("-", "_"): value for key, value in pairs.items()}


def _whole_or_not(text: str) -> float:
    value = float(text)
    return int(value) if value.is_integer() and "." not in text else value


def read_privacy(name: str, text: str) -> dict[str, float]:
    """Read ``epsilon=2,delta=1e-6`` as numbers."""
    return read_pairs(name, text, float, "epsilon=E,delta=D with numbers")


def read_sites(name: str, text: str) -> tuple[ClientId, ...]:
    """Read names separated by commas, sorted; raise if there is none, or one twice."""
    names = words(text)
    if not names:
        raise ValueError(f'`{name}` must name the sites of the run: {name}="north,south".')
    twice = sorted({site for site in names if names.count(site) > 1})
    if twice:
        raise ValueError(f"`{name}` must name every site once, got {twice[0]!r} twice.")
    return tuple(sorted(names))


def read_nodes(name: str, text: str) -> dict[ClientId, int]:
    """Read ``north=123,south=456``: the id of each site's node, which belongs to its key."""
    nodes = read_pairs(name, text, int, "NAME=ID, separated by commas")
    if len(set(nodes.values())) < len(nodes):
        raise ValueError(f"`{name}` must name every site and every node once, got {text!r}.")
    return nodes
