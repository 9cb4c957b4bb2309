"""What a site answers at most, whoever asks: closed unless its owner opens it."""

from dataclasses import dataclass
from typing import Literal

LEAST_ROWS = 20  # nothing is said of fewer rows; `min-group-rows` of a site's policy
LEAST_IN_LEVEL = 10  # rarer levels are not named; `withhold-below`


@dataclass(frozen=True)
class Limits:
    """What a site answers at most, over one run and about one table for good.

    A run is one agreement on columns and encoding; a question that is asked again does not count.
    ``counts`` are models whose decisions are counted, or that are
    judged by leave-one-out losses; ``splits`` ways to hold out rows; ``ballots`` the votes it
    casts, which tell of its preference. ``seed`` and ``test_size`` fix the split; None, in a file
    ``"any"``, leaves it to the server.
    ``curvature`` may be "masked": only as a sum over clients that cannot be taken apart.
    ``modules`` are the networks it reports on, as ``package.module:function``.
    """

    questions_per_run: int = 5_000
    questions_per_table: int = 50_000
    points_per_run: int = 50_000
    points_per_table: int = 500_000
    counts_per_run: int = 200
    counts_per_table: int = 300
    ballots_per_run: int = 100
    ballots_per_table: int = 200
    runs_per_table: int = 100
    splits_per_table: int = 4
    largest_parameter: float = 1e4
    largest_sharpness: float = 100.0
    largest_answer_mb: float = 128.0
    curvature: bool | Literal["masked"] = True
    seed: int | None = 0
    test_size: float | None = 0.3
    modules: tuple[str, ...] = ()
