"""What a site may be asked: within the limits of its policy, and nothing that singles out rows."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fcfl._types import ClientId, Extra, Matrix, Point, RateId, Vector
from fcfl.client.questions import Evaluate, OnRows, Vote
from fcfl.errors import DataError
from fcfl.extras import LocalTraining
from fcfl.limits import Limits
from fcfl.models.gradient_spread import GradientSpread
from fcfl.models.leave_one_out import LeaveOneOut
from fcfl.models.linear import Linear
from fcfl.models.loss import LOSSES
from fcfl.sites.messages import EXTRAS, Agreement, Terms
from fcfl.sites.named_module import NamedModule

MOST_RATES = 2000
MOST_MODELS = 20  # whose leave-one-out losses are summed at once; training compares ten
MOST_OFFERS = 1000
MOST_EPOCHS, MOST_STEP = 100, 100.0


def check_split(terms: Terms, limits: Limits) -> None:
    """Refuse another split than the one that the site's policy fixes."""
    given = {"seed": terms.seed, "test_size": terms.test_size}
    for name, value in given.items():
        fixed = getattr(limits, name)
        if fixed is not None and value != fixed:
            raise DataError(_fixes(name.replace("_", "-"), fixed, value))


def _fixes(key: str, fixed: float, value: float) -> str:
    return (
        f"This site's policy fixes `{key}` at {fixed}, got {value}. Train with that, or let its "
        "owner open it under [limits]."
    )


def check_question(
    question: OnRows, agreement: Agreement, limits: Limits, *, masked: bool = False
) -> None:
    """Refuse what could tell more of single rows than docs/deployment.md says.

    A question is ``masked`` where its answer has curvature under masks only.
    """
    setup = question.setup
    if setup.thresholds is not None:  # one for each group would tell where its scores are
        raise DataError("A site counts decisions by one threshold, not by group.")
    model = setup.model
    _check_model(model, agreement, limits)
    if len(set(setup.rates)) != len(setup.rates) or len(setup.rates) > MOST_RATES:
        raise DataError(f"A site reports on every rate once, and on at most {MOST_RATES}.")
    for params in params_of(question):
        _check_params(params, model.n_params, limits)
    if isinstance(question, Evaluate):
        for point in question.request.points:
            _check_point(point, setup.rates, limits, masked=masked)
    check_answer_size(question, limits)


def check_vote(question: Vote, name: ClientId) -> None:
    """Refuse a vote on anything but shares of this site's rows."""
    choices = question.choices.get(name)
    if choices is None or len(question.choices) != 1:
        raise DataError("A site votes on what it is offered, not on what others are.")
    sizes_fit = 1 <= len(choices.offers) <= MOST_OFFERS and 1 <= len(choices.alone) <= MOST_OFFERS
    if not sizes_fit or len(choices.alone) != len(choices.alone_trained):
        raise DataError(f"A site votes on one to {MOST_OFFERS} offers, and may walk away.")
    for one in (*choices.offers, *choices.alone, *choices.alone_trained):
        if not (0 <= one.accuracy <= 1 and 0 <= one.disparity <= 1):
            raise DataError(f"`accuracy` and `disparity` must lie between 0 and 1, got {one}.")


def _check_model(model: Any, agreement: Agreement, limits: Limits) -> None:
    """Refuse all but linear models of the agreed columns, and networks that the policy lists."""
    known = isinstance(model, (Linear, NamedModule))
    if not known or model.n_features != agreement.schema.n_features:
        raise DataError(
            "A site reports on linear models, and on modules it has installed, of the columns "
            "agreed on."
        )
    usual = [loss() for loss in LOSSES.values()]  # a narrow hinge would single out rows
    if isinstance(model, Linear) and model.loss not in usual:
        raise DataError("A site reports on losses with their usual settings.")
    if isinstance(model, NamedModule) and model.path not in limits.modules:
        raise DataError(
            f"This site's policy does not list the module {model.path!r} under `modules`."
        )


def params_of(question: OnRows) -> list[Vector]:
    """The models that a question is about."""
    if not isinstance(question, Evaluate):
        return [question.params]
    models = [model for one in leave_one_out_of(question) for model in one.models]
    return [point.params for point in question.request.points] + models


def leave_one_out_of(question: Evaluate) -> list[LeaveOneOut]:
    """The questions for leave-one-out losses at all points."""
    extras = (extra for point in question.request.points for extra in point.extras)
    return [extra for extra in extras if isinstance(extra, LeaveOneOut)]


def _check_params(params: Vector, n_params: int, limits: Limits) -> None:
    if params.shape != (n_params,) or not np.isfinite(params).all():
        raise DataError(f"`params` must be {n_params} finite numbers.")
    if np.abs(params).max() > limits.largest_parameter:
        raise DataError(
            f"This site's policy has a largest parameter of {limits.largest_parameter:g}, got "
            f"{np.abs(params).max():g}."
        )


def _check_point(point: Point, rates: Sequence[RateId], limits: Limits, *, masked: bool) -> None:
    for extra in point.extras:
        _check_extra(extra, point, rates, limits)
    if not 0 < point.sharpness <= limits.largest_sharpness:
        raise DataError(
            f"`sharpness` must lie between 0 and {limits.largest_sharpness:g}, this site's limit, "
            f"got {point.sharpness!r}."
        )
    if point.want == "curvature" and not limits.curvature:
        raise DataError('This site sends no curvature. Train with curvature = "lbfgs".')
    if point.want == "curvature" and limits.curvature == "masked" and not masked:
        raise DataError(
            "This site sends curvature as part of a masked sum only. Train with masked = true, or "
            'with curvature = "lbfgs".'
        )


def _check_extra(extra: Extra, point: Point, rates: Sequence[RateId], limits: Limits) -> None:
    """Refuse questions that could single out rows: other ones, and training on few at a time."""
    if not isinstance(extra, EXTRAS):
        raise DataError(f"A site does not answer `{type(extra).__name__}`.")
    if isinstance(extra, GradientSpread):
        if limits.curvature is not True:  # it is for all rows' sum only, or for nobody
            raise DataError(
                "This site tells curvature, and how gradients vary, to nobody by itself."
            )
        _check_factor(extra.factor, point.params.size)
    if isinstance(extra, LeaveOneOut):
        _check_leave_one_out(extra, point.params.size, limits)
    if isinstance(extra, LocalTraining):
        _check_training(extra)


def _check_training(extra: LocalTraining) -> None:
    """Reject too long training; `LocalTraining` rejects small batches itself."""
    if not (1 <= extra.epochs <= MOST_EPOCHS and 0 < extra.step_size <= MOST_STEP):
        raise DataError(
            f"A site trains for at most {MOST_EPOCHS} epochs, with steps up to {MOST_STEP:g}, got "
            f"{extra.epochs} epochs and {extra.step_size:g}."
        )


def _check_leave_one_out(asked: LeaveOneOut, n_params: int, limits: Limits) -> None:
    """Reject malformed models, factors and weights, and factors that would magnify single rows.

    The models themselves are checked by `params_of`.
    """
    if not limits.curvature:
        raise DataError('This site sends no leave-one-out losses. Train with curvature = "lbfgs".')
    n = len(asked.models)
    if not (1 <= n <= MOST_MODELS and len(asked.factors) == n):
        raise DataError(
            f"A site sums leave-one-out losses of 1 to {MOST_MODELS} models with a factor each, "
            f"got {n} `models` and {len(asked.factors)} `factors`."
        )
    for factor in asked.factors:
        _check_factor(factor, n_params)
        if np.abs(factor).max(initial=0.0) > limits.largest_parameter:
            raise DataError(
                f"`factors` must be at most {limits.largest_parameter:g}, this site's largest "
                f"parameter, got {np.abs(factor).max():g}."
            )
    for weights in asked.weights.values():
        if weights.shape != (n,) or not ((weights >= 0) & (weights <= 1)).all():
            raise DataError(f"`weights` must be {n} numbers between 0 and 1.")
    if len(asked.weights) != 1:
        raise DataError("`weights` must be those of this site only.")


def _check_factor(factor: Matrix, n_params: int) -> None:
    if factor.shape != (n_params, n_params) or not np.isfinite(factor).all():
        raise DataError(f"`factor` must be {n_params} × {n_params} finite numbers.")


def check_answer_size(question: OnRows, limits: Limits) -> None:
    """Refuse what a short question would make a very long answer of."""
    points = question.request.points if isinstance(question, Evaluate) else ()
    size = sum(answer_size(point, len(question.setup.rates)) for point in points) / 1e6
    if size > limits.largest_answer_mb:
        raise DataError(
            f"The question asks for an answer of {size:.0f} MB; this site sends at most "
            f"{limits.largest_answer_mb:g} MB. Ask for fewer points, or without curvature."
        )


def answer_size(point: Point, n_rates: int) -> int:
    """Bytes of the arrays in a report on ``point``."""
    n = point.params.size
    vectors = (1 + n_rates) * n if point.wants_gradients else 0
    vectors += sum(
        math.prod(shape) for e in point.extras for shape in e.shapes(point, n_rates).values()
    )
    vectors += {"curvature": n * n, "decisions": 4}.get(point.want, 0)  # 4 counts of decisions
    return 8 * (2 * n_rates + vectors)
