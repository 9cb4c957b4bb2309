"""What a site may be asked: within the limits of its policy, and nothing that singles out rows."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fcfl._types import ClientId, Extra, Fold, Matrix, Point, RateId, Vector
from fcfl.client.folds import THIN_STEP
from fcfl.client.questions import Evaluate, HoldOut, OnRows, Vote
from fcfl.errors import DataError
from fcfl.extras import LocalTraining
from fcfl.federation.messages import EXTRAS, Agreement, Terms
from fcfl.federation.named_module import NamedModule
from fcfl.limits import Limits
from fcfl.models.gradient_spread import GradientSpread
from fcfl.models.linear import Linear
from fcfl.models.loss import LOSSES

MOST_RATES = 2000
MOST_FOLDS = 20
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
    folds = folds_of(question)
    if isinstance(question, HoldOut) and not 1 <= len(folds) <= MOST_FOLDS:
        raise DataError(f"A site holds out 1 to {MOST_FOLDS} folds at once, got {len(folds)}.")
    for fold in folds:
        _check_fold(fold, limits)
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


def folds_of(question: OnRows) -> list[Fold]:
    """The folds whose rows a question is about, or about all but them."""
    if isinstance(question, Evaluate):
        return [point.fold for point in question.request.points if point.fold is not None]
    return [fold for fold, _ in question.folds] if isinstance(question, HoldOut) else []


def params_of(question: OnRows) -> list[Vector]:
    """The models that a question is about."""
    if isinstance(question, Evaluate):
        return [point.params for point in question.request.points]
    if isinstance(question, HoldOut):
        return [params for _, models in question.folds for params in models]
    return [question.params]


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
        _check_factor(extra.factor, point.params.size, limits)
    if isinstance(extra, LocalTraining):
        _check_training(extra, rates, limits)


def _check_training(extra: LocalTraining, rates: Sequence[RateId], limits: Limits) -> None:
    """Refuse training that could single out rows; `LocalTraining` refuses small batches itself."""
    steps_fit = 1 <= extra.epochs <= MOST_EPOCHS and 0 < extra.step_size <= MOST_STEP
    weights = list((extra.set_weights or {}).values())
    largest = max((float(np.abs(one).max(initial=0.0)) for one in weights), default=0.0)
    if not (steps_fit and largest <= limits.largest_parameter):
        raise DataError(
            f"A site trains for at most {MOST_EPOCHS} epochs, with steps up to {MOST_STEP:g} and "
            f"`set_weights` up to {limits.largest_parameter:g}, got {extra.epochs} epochs, "
            f"{extra.step_size:g} and {largest:g}."
        )
    if weights and extra.batch_rows:  # a batch may have one row of the group whose weight is not 0
        raise DataError(
            "A site that weighs groups (`set_weights`) trains on all rows at once. Train with "
            f"batch_rows = 0, got {extra.batch_rows}."
        )
    by_label = np.array([[r.kind == "false_positive", r.kind == "true_positive"] for r in rates])
    if any(one.shape == by_label.T.shape and one[~by_label.T].any() for one in weights):
        raise DataError(
            "`set_weights` may differ from zero for rows with label 0 behind false positive rates "
            "and for rows with label 1 behind true positive rates only."
        )


def _check_factor(factor: Matrix, n_params: int, limits: Limits) -> None:
    """Sums of squares over rows, as curvature has: who sends none of that sends none of these."""
    if limits.curvature is not True:  # it is for all rows' sum only, or for nobody
        raise DataError("This site tells curvature, and how gradients vary, to nobody by itself.")
    if factor.shape != (n_params, n_params) or not np.isfinite(factor).all():
        raise DataError(f"`factor` must be {n_params} × {n_params} finite numbers.")


def _check_fold(fold: Fold, limits: Limits) -> None:
    # The index after the last one is that of no fold: nothing is held out.
    valid = 2 <= fold.count <= MOST_FOLDS and 0 <= fold.index <= fold.count
    if not valid or fold.seed < 0:
        raise DataError(f"A site makes 2 to {MOST_FOLDS} folds, got {fold}.")
    if fold.most_rows is not None and (fold.most_rows < 1 or fold.most_rows % THIN_STEP):
        raise DataError(
            f"`most_rows` of a fold must be a positive multiple of {THIN_STEP}, "
            f"got {fold.most_rows}."
        )
    if limits.seed is not None and fold.seed != limits.seed:
        raise DataError(_fixes("seed", limits.seed, fold.seed))


def check_answer_size(question: OnRows, limits: Limits) -> None:
    """Refuse what a short question would make a very long answer of."""
    points = question.request.points if isinstance(question, Evaluate) else ()
    size = sum(answer_size(point, len(question.setup.rates)) for point in points) / 1e6
    if isinstance(question, HoldOut):
        sizes = [len(models) for _, models in question.folds]
        size = sum(8 * n * (n + len(question.setup.rates)) for n in sizes) / 1e6
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
    return 8 * (2 * n_rates + vectors + (n * n if point.want == "curvature" else 0))
