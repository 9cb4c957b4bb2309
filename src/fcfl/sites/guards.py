"""Checks of a request at a site: against the site's policy, and for bounded work.

From exact responses a malicious server can infer single rows, in spite of these checks. Only noise
(a privacy budget) prevents this inference.
"""

import math

import numpy as np

from fcfl._types import ClientId, Extra, Matrix, Point, Vector
from fcfl.client.client import Evaluate, OnRows, Question, Vote
from fcfl.client.private import ONLY_SUMS, Costs, costs_of
from fcfl.data.declared_rows import Declared
from fcfl.errors import DataError
from fcfl.extras import LocalTraining
from fcfl.models.influence import GradientSpread, LeaveOneOut
from fcfl.models.linear import Linear
from fcfl.policy import Limits, check_rules_kept
from fcfl.sites.messages import Agreement
from fcfl.sites.named_module import NamedModule
from fcfl.sites.settings import SiteSettings

MAX_EPOCHS = 100


def check_vote(question: Vote, name: ClientId) -> None:
    """Raise `DataError` unless the choices are this site's and their figures lie in [0, 1]."""
    choices = question.choices.get(name)
    if choices is None or len(question.choices) != 1:
        raise DataError("`choices` must be those of this site only.")
    n_alone = len(choices.alone)
    if not choices.offers or n_alone == 0 or n_alone != len(choices.alone_trained):
        raise DataError(
            "A vote needs one or more `offers`, one or more models in `alone`, and as many in "
            "`alone_trained`."
        )
    for one in (*choices.offers, *choices.alone, *choices.alone_trained):
        if not (0 <= one.accuracy <= 1 and 0 <= one.disparity <= 1):
            raise DataError(f"`accuracy` and `disparity` must lie between 0 and 1, got {one}.")


def check_policy(question: Question, agreement: Agreement, settings: SiteSettings) -> None:
    """Raise `DataError` if the site's policy does not allow the request."""
    if isinstance(question, Vote):
        check_vote(question, settings.name)
    else:
        check_rules_kept(settings.name, settings.rules, question.setup.rules)
        check_question(question, agreement, settings.read_policy.limits)


def check_private_question(question: Question, agreement: Agreement, declared: Declared) -> Costs:
    """Return the privacy costs of training and held-out rows; reject all but noisy sums."""
    levels = {name: declared.levels.get(name) for name in agreement.terms.sensitive}
    if agreement.schema != declared.schema or agreement.labels != declared.labels:
        raise DataError(
            "`schema` and `labels` of the request must be those that this site's schema declares."
        )
    if dict(agreement.levels) != levels:
        raise DataError(
            "`levels` of the request must be the groups that this site's schema declares."
        )
    if not isinstance(question, Evaluate):
        raise DataError(ONLY_SUMS)
    return costs_of(question.request.points)


def check_question(question: OnRows, agreement: Agreement, limits: Limits) -> None:
    """Raise `DataError` if the limits do not allow the request or the model has other columns."""
    model, n_rates = question.setup.model, len(question.setup.rates)
    if question.setup.thresholds is not None:
        raise DataError(
            "A site evaluates decisions at one common threshold, not at thresholds by group."
        )
    known = isinstance(model, (Linear, NamedModule))
    if not known or model.n_features != agreement.schema.n_features:
        raise DataError(
            "The model must be linear or a module installed at the site, and its features must be "
            "those of the agreed columns."
        )
    if isinstance(model, NamedModule) and model.path not in limits.modules:
        raise DataError(
            f"This site's policy does not list the module {model.path!r} under `modules`."
        )
    if not isinstance(question, Evaluate):
        _check_params(question.params, model.n_params)
        return
    size = sum(answer_size(point, n_rates) for point in question.request.points) / 1e6
    if size > limits.largest_answer_mb:
        raise DataError(
            f"The request needs a response of {size:.0f} MB; this site sends at most "
            f"{limits.largest_answer_mb:g} MB. Request fewer points, or no curvature."
        )
    for point in question.request.points:
        _check_params(point.params, model.n_params)
        if point.want == "curvature" and not limits.curvature:
            raise DataError('This site sends no curvature. Train with curvature = "lbfgs".')
        for extra in point.extras:
            _check_extra(extra, model.n_params, limits)


def answer_size(point: Point, n_rates: int) -> int:
    """Return the size, in bytes, of the arrays in a report on ``point``."""
    n = point.params.size
    vectors = (1 + n_rates) * n if point.wants_gradients else 0
    vectors += sum(
        math.prod(shape) for e in point.extras for shape in e.shapes(point, n_rates).values()
    )
    vectors += {"curvature": n * n, "decisions": 4}.get(point.want, 0)  # 4 counts of hard decisions
    return 8 * (2 * n_rates + vectors)


def _check_params(params: Vector, n_params: int) -> None:
    if params.shape != (n_params,) or not np.isfinite(params).all():
        raise DataError(f"`params` must be {n_params} finite numbers.")


def _check_extra(extra: Extra, n: int, limits: Limits) -> None:
    if isinstance(extra, GradientSpread):
        if not limits.curvature:
            raise DataError("This site sends neither curvature nor the spread of gradients.")
        _check_factor(extra.factor, n)
    if isinstance(extra, LeaveOneOut):
        _check_leave_one_out(extra, n, limits)
    is_endless = isinstance(extra, LocalTraining) and not (
        1 <= extra.epochs <= MAX_EPOCHS and 0 < extra.step_size < math.inf
    )
    if is_endless:
        raise DataError(f"A site trains for 1 to {MAX_EPOCHS} `epochs` with a finite `step_size`.")


def _check_leave_one_out(extra: LeaveOneOut, n_params: int, limits: Limits) -> None:
    if not limits.curvature:
        raise DataError('This site sends no leave-one-out losses. Train with curvature = "lbfgs".')
    n = len(extra.models)
    if n == 0 or len(extra.factors) != n:
        raise DataError(
            "Leave-one-out losses need `models` with a factor each, got "
            f"{n} `models` and {len(extra.factors)} `factors`."
        )
    for model, factor in zip(extra.models, extra.factors, strict=True):
        _check_params(model, n_params)
        _check_factor(factor, n_params)
    if len(extra.weights) != 1:
        raise DataError("`weights` must be those of this site only.")
    for weights in extra.weights.values():
        if weights.shape != (n,) or not np.isfinite(weights).all():
            raise DataError(f"`weights` must be {n} finite numbers.")


def _check_factor(factor: Matrix, n_params: int) -> None:
    if factor.shape != (n_params, n_params) or not np.isfinite(factor).all():
        raise DataError(f"`factor` must be {n_params} × {n_params} finite numbers.")
