"""A step under exact curvature, damped until it is not much longer than the last ones were."""

from dataclasses import dataclass

from fcfl._types import Matrix, Vector
from fcfl.methods.sqp.damping import Damping
from fcfl.methods.sqp.elastic import find_step
from fcfl.methods.sqp.quasi_newton import Curvature
from fcfl.methods.sqp.subproblem import Step, Target
from fcfl.problem.evaluation import Evaluation

# The damping above which a step is left as long as it is. One that is still too long then is mostly
# what the budgets demand; and where only such damping helped before, more of it would keep steps
# short for ever (the paper's synthetic problem, from starts where gradients all but vanish).
_STIFF = 10.0


@dataclass(frozen=True)
class QuadraticModel:
    """The Lagrangian's Hessian at a point, the active rows' gradients, the losses' weights' sum.

    ``is_near`` says that the point is near an optimum: see `Damping.curvature`.
    """

    hessian: Matrix
    active: Matrix
    weight: float
    is_near: bool

    def damped(self, damping: Damping) -> tuple[Curvature, Damping]:
        """The positive definite matrix of a step."""
        return damping.curvature(self.hessian, self.active, self.weight, is_near=self.is_near)


def damped_step(
    at: Evaluation,
    target: Target,
    model: QuadraticModel,
    damping: Damping,
    given: tuple[float, Vector],
) -> tuple[tuple[Step, float, Curvature], Damping]:
    """The step, its penalty and its curvature, and the damping it took.

    ``given`` are the penalty and the losses' weights that the curvature was asked for with. With
    hardly any damping a step can become ten times as long from one round to the next, where rates
    have bent long before its end; refused, it costs four rounds until the damping is gone again.
    """
    penalty, weights = given

    def solved(damping: Damping) -> tuple[tuple[Step, float, Curvature], Damping]:
        curvature, damping = model.damped(damping)
        return find_step(at, target, curvature, penalty, weights), damping

    first = found = solved(damping)
    while not found[1].reaches(found[0][0].direction):
        if found[1].level > _STIFF:
            return first
        found = solved(found[1].raised())
    return found
