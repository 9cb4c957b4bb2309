"""What a classifier does once it is fitted, or read from its file: predict, score, audit, save."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import check_is_fitted, validate_data

from fcfl._types import Vector
from fcfl.audit import Audit
from fcfl.data.rows import as_pandas
from fcfl.data.schema import Schema
from fcfl.estimator.audited_rows import audit_rows
from fcfl.estimator.classifier_file import read_classifier, write_classifier
from fcfl.estimator.inputs import features_of
from fcfl.estimator.row_thresholds import cut_of, row_thresholds
from fcfl.models.linear import linear_logits
from fcfl.models.loss import Loss, as_loss
from fcfl.models.rates import hard_selection


class FittedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Everything but parameters and `fit`, which `fcfl.FCFLClassifier` adds."""

    # Only thresholds by group need these beyond `fit`: they are routed there when it is asked for.
    __metadata_request__predict: ClassVar = {"clients": False, "sensitive_features": False}
    __metadata_request__score: ClassVar = {"clients": False, "sensitive_features": False}

    loss: str | Loss
    threshold: float
    model: Any
    schema_: Schema | None

    def _take_params(self, params: Vector) -> None:
        """Set what prediction uses from the flat parameters."""
        if self.model is None:
            self.coef_, self.intercept_ = params[None, :-1].copy(), params[-1:].copy()
        else:
            from fcfl.models.torch_params import as_network

            self.module_ = as_network(self.model).restored(params)

    def decision_function(self, X: Any) -> Vector:
        """Return the logit of each row. `predict` compares it with the logit of ``threshold``."""
        check_is_fitted(self)
        if self.schema_ is None:
            X = features_of(X)
            X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        else:
            X = self.schema_.transform(as_pandas(X))
        if self.model is None:
            return linear_logits(X, np.append(self.coef_, self.intercept_))
        from fcfl.models.torch_module import TorchModule

        trained = TorchModule(self.module_)
        return trained.logits(trained.start(), X)

    @property
    def predict_proba(self) -> Callable[[Any], Any]:
        """Probabilities of both classes, as a function of X; not there where the loss has none."""
        loss = as_loss("loss", self.loss)
        if not loss.has_probabilities:
            raise AttributeError(
                f"`predict_proba` needs a loss with probabilities, got loss={loss.name!r}: its "
                "scores are not probabilities. Use `decision_function`."
            )

        def predict_proba(X: Any) -> Any:
            probability = loss.scores(self.decision_function(X))
            return np.column_stack([1.0 - probability, probability])

        return predict_proba

    def predict(self, X: Any, *, clients: Any = None, sensitive_features: Any = None) -> Any:
        """The class of each row.

        It is the second one from a probability of ``threshold`` on. With ``thresholds="group"``
        each row's client and group decide from which logit on it is the second one, as in `fit`. A
        client or group with too few training rows has the common threshold. Otherwise both
        arguments are ignored.
        """
        logits = self.decision_function(X)
        cuts = cut_of(self) + row_thresholds(self, logits.size, clients, sensitive_features)
        return self.classes_[hard_selection(logits, cuts).astype(np.intp)]

    def score(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        clients: Any = None,
        sensitive_features: Any = None,
    ) -> float:
        """The share of rows whose class is predicted rightly; arguments as in `predict`."""
        predicted = self.predict(X, clients=clients, sensitive_features=sensitive_features)
        return float(accuracy_score(y, predicted, sample_weight=sample_weight))

    def audit(
        self,
        X: Any,
        y: Any,
        *,
        clients: Any = None,
        sensitive_features: Any = None,
        confidence: float = 0.95,
    ) -> Audit:
        """Rates, intervals and verdicts of these rows, against the budgets of `fit`."""
        logits = self.decision_function(X)
        return audit_rows(self, logits, y, clients, sensitive_features, confidence)

    def save(self, path: str | Path) -> None:
        """Write the fitted classifier to a folder like a run's, without pickle.

        ``fcfl predict``, ``fcfl report`` and ``fcfl export`` read it too.
        """
        check_is_fitted(self)
        write_classifier(self, Path(path))

    @classmethod
    def load(cls, path: str | Path, *, model: Any = None) -> Self:
        """Read a folder that `save` or ``fcfl train`` wrote.

        ``model`` is a module of the same architecture, for a network. A classifier of a run of the
        command line takes tables with the run's columns as ``X``, and has no ``audit_``.
        """
        classifier: Self = read_classifier(cls, Path(path), model)
        return classifier

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.sparse = True
        return tags
