"""What the private method remembers between rounds."""

from dataclasses import dataclass, field

import numpy as np

from fcfl._types import Matrix, Request, Vector
from fcfl.methods.method import Status
from fcfl.methods.private.estimates import Answer
from fcfl.problem.evaluation import Problem


@dataclass(frozen=True)
class PrivateState:
    """The model and what noisy sums have said so far.

    ``violations`` are those of decisions before the last step, at the end after it, with variances
    by noise; ``count_sd`` has the noise in the rows behind each rate; ``at_zero`` is the gradient
    of the mean loss at zero, as it was told; ``slopes`` are those of the rates, ``slope_noise`` how
    much of the last release's variance they have, ``answer`` how much more than these decisions
    answered to steps.
    ``evaluation`` and ``held_out`` are the cells counted at the end.
    """

    problem: Problem
    params: Vector
    request: Request
    status: Status
    message: str
    rounds: tuple[int, ...]
    group_counts: Matrix = field(default_factory=lambda: np.zeros((0, 0)))
    count_sd: Vector = field(default_factory=lambda: np.zeros(0))
    n_rows: Vector = field(default_factory=lambda: np.zeros(0))
    curvature: Matrix = field(default_factory=lambda: np.zeros((0, 0)))
    at_zero: Vector = field(default_factory=lambda: np.zeros(0))
    gradient: Vector = field(default_factory=lambda: np.zeros(0))
    last_step: Vector = field(default_factory=lambda: np.zeros(0))
    slopes: Matrix = field(default_factory=lambda: np.zeros((0, 0, 0)))
    slope_weight: float = 0.0
    slope_noise: float = 0.0
    slope_sd: float = 0.0
    answer: Answer = field(default_factory=Answer)
    violations: Vector = field(default_factory=lambda: np.zeros(0))
    variances: Vector = field(default_factory=lambda: np.zeros(0))
    evaluation: Matrix = field(default_factory=lambda: np.zeros((0, 0)))
    held_out: Matrix = field(default_factory=lambda: np.zeros((0, 0)))
