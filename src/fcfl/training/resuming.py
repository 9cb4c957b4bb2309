"""Going on from a checkpoint: only with the method and the problem that it was made with."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fcfl.errors import CheckpointError
from fcfl.federation.checkpoint import (
    OtherMethodError,
    checkpoint_path,
    load_checkpoint,
    previous_path,
)
from fcfl.federation.loop import Progress
from fcfl.federation.serialise import same
from fcfl.methods.method import traits_of
from fcfl.problem.constraints import Constraints, Row
from fcfl.problem.evaluation import Problem


def may_change(method: Any) -> tuple[str, ...]:
    """Options that a run may go on with others of: they only say how long it may go on.

    With noise there are none: an epsilon is shared out over so many rounds.
    """
    return () if traits_of(method).is_private else ("rounds",)


def resumed(
    folder: Path, method: Any, fresh: Progress[Any], on_message: Callable[[str], None]
) -> Progress[Any]:
    """The checkpoint's progress, if it is of the same run; without one, the beginning."""
    if not checkpoint_path(folder).exists() and not previous_path(folder).exists():
        on_message(
            "No checkpoint was written before the run stopped; it starts from the beginning."
        )
        return fresh
    try:
        loaded = load_checkpoint(folder, method.state_class)
    except OtherMethodError:
        raise
    except CheckpointError as error:
        on_message(f"{error} Starting from the beginning.")
        return fresh
    if loaded.warning:
        on_message(loaded.warning)
    progress = loaded.progress
    differs = _other_option(progress.options, fresh.options, may_change(method))
    differs = differs or _other_problem(progress.state.problem, fresh.state.problem)
    if differs is not None:
        raise CheckpointError(
            f"The checkpoint in {str(folder)!r} is of another run: {differs}. Continue with what "
            "it was, or begin anew: in another folder, or in this one without `resume`."
        )
    return replace(progress, options=fresh.options)


def _other_option(
    before: Mapping[str, str], now: Mapping[str, str], allowed: tuple[str, ...]
) -> str | None:
    """The first option of the method that differs; older checkpoints say nothing of them."""
    if not before:
        return None
    names = [n for n in {**before, **now} if before.get(n) != now.get(n) and n not in allowed]
    if not names:
        return None
    first, *others = names
    if first == "name":
        return f"its method was {before['name']} and is {now['name']}"
    more = f" (and so do {', '.join(f'`{name}`' for name in others)})" if others else ""
    was, is_now = before.get(first, "not there"), now.get(first, "not there")
    return (
        f"the option `{first}` of method {now['name']} differs, it was {was} and is {is_now}{more}"
    )


def _other_problem(before: Problem, now: Problem) -> str | None:
    """What differs between two problems, None if nothing does."""
    if same(before, now):
        return None
    if before.clients != now.clients:
        return f"its clients were {_listed(before.clients)} and are {_listed(now.clients)}"
    for client, was, has in zip(before.clients, before.n_rows, now.n_rows, strict=True):
        if was != has:
            return f"client {client!r} had {was:g} rows and has {has:g}"
    if before.l2 != now.l2:
        return f"`l2` was {before.l2!r} and is {now.l2!r}"
    if (before.rates, before.comparisons) != (now.rates, now.comparisons):
        return "other groups, attributes or metrics are compared"
    if not same(before.constraints, now.constraints):
        return _other_constraints(before.constraints, now.constraints)
    if not same(before.own_best_losses, now.own_best_losses):
        return "`excess_loss` is another, or so are the clients' own best losses"
    return "other reference rows were disclosed"


def _other_constraints(before: Constraints, now: Constraints) -> str:
    """Which budget differs, or that other groups have one."""
    if [*map(_without_budget, before.rows)] != [*map(_without_budget, now.rows)]:
        return "the budgets bind other clients, groups or metrics"
    for was, is_now in zip(before.rows, now.rows, strict=True):
        if was.budget != is_now.budget:
            whose = "all clients together" if was.client is None else f"client {was.client!r}"
            return (
                f"the budget of {whose} ({was.metric}, {was.attribute}) was {was.budget!r} and is "
                f"{is_now.budget!r}"
            )
    return "groups have other row counts, or `confidence` sets other bounds"


def _without_budget(row: Row) -> Row:
    return replace(row, budget=0.0)


def _listed(names: tuple[str, ...]) -> str:
    shown = ", ".join(map(repr, names[:6]))
    return shown if len(names) <= 6 else f"{shown} and {len(names) - 6} more"
