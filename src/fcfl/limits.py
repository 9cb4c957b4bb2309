"""What a site answers at most, whoever asks."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What a site answers at most, over one run and about one table for good.

    A run is one agreement on columns and encoding; a question that is asked again does not count.
    ``counts`` are models whose decisions are counted, ``splits`` ways to hold out rows and ways to
    make folds, each. A ``seed`` and a ``test_size`` fix both; None leaves them to the server.
    ``modules`` are the networks it reports on, as ``package.module:function``.
    """

    questions_per_run: int = 5_000
    questions_per_table: int = 50_000
    points_per_run: int = 50_000
    points_per_table: int = 500_000
    counts_per_run: int = 200
    counts_per_table: int = 300
    runs_per_table: int = 100
    splits_per_table: int = 4
    largest_parameter: float = 1e4
    largest_sharpness: float = 100.0
    largest_answer_mb: float = 128.0
    curvature: bool = True
    seed: int | None = None
    test_size: float | None = None
    modules: tuple[str, ...] = ()
