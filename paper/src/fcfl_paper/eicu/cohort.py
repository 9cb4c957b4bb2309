"""The cohort: rules in a fixed order, and how many stays each of them removes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fcfl._types import Vector

from .source_tables import Frame
from .stays import DAY, Span, death_time, first_of_patient

Mask = NDArray[np.bool_]
YOUNGEST = 16


@dataclass(frozen=True, slots=True)
class Facts:
    """What the rules need to know about each stay, in the order of ``stays``.

    ``prediction`` is APACHE IVa hospital mortality and ``limit`` the minute of the first care
    limitation; ``limit`` is None where its table is not there. ``charted`` says whether ``span``
    is that of heart rates.
    """

    stays: Frame
    span: Span
    charted: bool
    prediction: Vector
    limit: Vector | None
    label: Vector


@dataclass(frozen=True, slots=True)
class Rule:
    """Name in files, words on the screen, and the stays it removes (None: cannot be applied)."""

    name: str
    words: str
    removes: Callable[[Facts], Mask | None]


@dataclass(frozen=True, slots=True)
class Step:
    """One line of the flow. ``removed`` is None where the rule could not be applied."""

    rule: str
    words: str
    removed: int | None
    left: int


def _not_icu(facts: Facts) -> Mask:
    return np.asarray(~facts.stays["unittype"].str.lower().str.contains("icu", na=False))


def _no_heart_rate(facts: Facts) -> Mask | None:
    return np.isnan(facts.span.start) if facts.charted else None


def _no_status(facts: Facts) -> Mask:
    statuses = facts.stays[["hospitaldischargestatus", "unitdischargestatus"]]
    return np.asarray(statuses.isna().all(axis=1))


def _limited(facts: Facts) -> Mask | None:
    return None if facts.limit is None else facts.limit - facts.span.start < DAY


RULES = (
    Rule("unit", "unit is not an ICU", _not_icu),
    Rule("age", f"younger than {YOUNGEST}", lambda f: np.asarray(f.stays["age"] < YOUNGEST)),
    Rule("heart_rate", "no heart rate charted", _no_heart_rate),
    Rule("status", "both discharge statuses missing", _no_status),
    Rule("first_stay", "not the patient's first stay", lambda f: ~first_of_patient(f.stays)),
    Rule("apache", "APACHE IVa mortality not above 0", lambda f: ~(f.prediction > 0)),
    Rule("death", "death within 24 h", lambda f: death_time(f.stays, f.span) - f.span.start < DAY),
    Rule("short", "ICU stay under 24 h", lambda f: f.span.end - f.span.start < DAY),
    Rule("limitation", "care limited within 24 h", _limited),
    Rule("label", "label unknown", lambda f: np.isnan(f.label)),
)


def failures(facts: Facts) -> dict[str, Mask | None]:
    """For each rule the stays it removes, whatever the others do."""
    return {rule.name: rule.removes(facts) for rule in RULES}


def small_clients(client: NDArray[np.object_], in_cohort: Mask, min_stays: int) -> Mask:
    """Stays of clients with fewer than ``min_stays`` stays in the cohort."""
    names = pd.Series(client)
    size = names.map(names[in_cohort].value_counts()).fillna(0)
    return np.asarray(size < min_stays)


def follow(
    n_stays: int, removals: Mapping[str, Mask | None], words: Mapping[str, str]
) -> tuple[Mask, tuple[Step, ...]]:
    """Apply rules one after another: who is left, and the flow."""
    left = np.ones(n_stays, dtype=bool)
    steps = []
    for name, removed in removals.items():
        now = left if removed is None else left & ~removed
        count = None if removed is None else int(left.sum() - now.sum())
        steps.append(Step(name, words[name], count, int(now.sum())))
        left = now
    return left, tuple(steps)
