"""How a run of the two-stage method ends, in a status and a sentence."""

from dataclasses import replace

import numpy as np

from fcfl.methods.method import Status
from fcfl.methods.two_stage.two_stage_state import TwoStageState
from fcfl.problem.constraints import FEASIBILITY_TOLERANCE


def end_run(state: TwoStageState, why: Status, *, is_used_up: bool) -> TwoStageState:
    """The final state: ``why`` it ended, or ``infeasible`` with a budget still exceeded.

    ``is_used_up`` says whether stage 1 took all its steps.
    """
    violation = float(state.violations.max()) if state.violations.size else -np.inf
    if violation > FEASIBILITY_TOLERANCE:
        message = _exceeded(state, violation, is_used_up)
        return replace(state, status="infeasible", message=message)
    return replace(state, status=why, message=_sentence(why, state))


def _exceeded(state: TwoStageState, violation: float, is_used_up: bool) -> str:
    """Why a run ends with a budget exceeded, by how stage 1 ended, and what may help."""
    steps = f"after {state.steps[0]} + {state.steps[1]} steps"
    where = f"with a budget exceeded by {violation:.2g} on the training rows"
    if is_used_up:
        return (
            f"The rounds of stage 1 are used up ({steps}) {where}. "
            "More of them, a smaller step or a larger budget may help."
        )
    return (
        f"No step lowers the violation without raising the worst loss ({steps}), {where}. "
        "Begin with `start='zero'`, where a linear model selects all groups alike and every budget "
        "is met."
    )


def _sentence(why: Status, state: TwoStageState) -> str:
    """Why a run ends with its budgets met."""
    steps = f"after {state.steps[0]} + {state.steps[1]} steps"
    if why == "converged":
        return f"No step lowers a loss without raising another or breaking a budget ({steps})."
    return f"All rounds taken ({steps})."
