r"""How much is still to be gained, by the quadratic model: when a stage ends.

A KKT residual of 1e-6 is a sharp test. In a curved valley it takes ten rounds and more that change
no loss by 1e-5. What people ask is how far a loss can still fall, and that is what Newton's method
predicts: half of :math:`g^T H^{-1} g`, with g the gradient and H the Hessian of the Lagrangian,
together with the distance of objective and violations from their weighted sum (a duality gap).
"""

from fcfl.methods.sqp.elastic import find_step
from fcfl.methods.sqp.lagrangian import Multipliers, active_grads, lagrangian_hessian
from fcfl.methods.sqp.sqp_options import Options
from fcfl.methods.sqp.sqp_state import SQPState, target_of
from fcfl.methods.sqp.stages import has_stage_2, nearly_met
from fcfl.methods.sqp.subproblem import Step, Target
from fcfl.problem.evaluation import Evaluation


def model_gap(at: Evaluation, target: Target, step: Step) -> float:
    """The largest of: the objective's change, the duality gap, half of ``d · B d``."""
    a = target.objectives(at.losses)
    b = target.constraints(at.losses, at.violations)
    dual = step.objective_weights @ a + step.constraint_weights @ b
    bend = -0.5 * float(step.lagrangian_grad @ step.direction)
    return max(abs(step.objective_decrease), abs(float(a.max() - dual)), bend)


def nothing_to_gain(
    options: Options, state: SQPState, at: Evaluation, step: Step, assumed: Multipliers
) -> bool:
    """Whether the stage may end at ``at``, from where the model leads along ``step``.

    ``assumed`` are the multipliers under which the curvature was asked for. A damped model predicts
    little because it is stiff: it can only say no. Where the Hessian itself is not positive
    definite along the active rows the point may be a saddle, and the stage goes on.
    """
    if options.gap == 0 or len(state.problem.clients) == 1:
        return False
    target = target_of(options, state)
    exceeded = target.constraints(at.losses, at.violations).max(initial=0.0)
    limit = nearly_met(options) if has_stage_2(options, state) else options.feasibility
    if exceeded > limit or model_gap(at, target, step) > options.gap:
        return False
    hessian = lagrangian_hessian(assumed, target, at)
    active = active_grads(assumed, target, at)
    undamped = state.damping.undamped(hessian, active, float(assumed.losses.sum()))
    if undamped is None:
        return False
    newton, _, _ = find_step(at, target, undamped, state.penalty, assumed.losses)
    return model_gap(at, target, newton) <= options.gap
