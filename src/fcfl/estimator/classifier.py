"""`FCFLClassifier`: one binary classifier for many clients, each with a disparity budget."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from fcfl._checks import check_count
from fcfl._types import ClientId, Vector
from fcfl.audit import Audit, audit_clients
from fcfl.client.counts import count_rows
from fcfl.data.cells import cell_texts, look_alikes
from fcfl.data.rows import as_pandas
from fcfl.federation.federation import Federation
from fcfl.methods.method import RoundInfo
from fcfl.models.linear import Linear
from fcfl.models.loss import HALF, Loss, as_loss
from fcfl.models.model import Model, Thresholds, check_threshold, hard_selection
from fcfl.policy import PrivacyBudget
from fcfl.results.result import DataSource, Result
from fcfl.rules import Rule, rates_needed
from fcfl.training.margins import MAX_ACCURACY_LOSS, Pooling
from fcfl.training.train import train

from . import inputs
from .saved import read_classifier, write_classifier

_PASSED_ON = (
    *("confidence", "max_accuracy_loss", "max_rate_shift", "pooling", "new_rows", "min_group_rows"),
    *("starts", "thresholds", "verbose"),
)
"""Parameters that `fcfl.train` has by the same names."""


def _has_probabilities(classifier: "FCFLClassifier") -> bool:
    """Return whether scores are probabilities; otherwise raise `AttributeError`."""
    loss = as_loss("loss", classifier.loss)
    if not loss.has_probabilities:
        raise AttributeError(
            f"`predict_proba` needs a loss with probabilities, got loss={loss.name!r}: its scores "
            "are not probabilities. Use `decision_function`."
        )
    return True


@dataclass(repr=False, eq=False)  # scikit-learn's own are used
class FCFLClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Binary classifier whose group rates keep each client's budget on the training rows.

    A linear model by default (logistic regression with an L2 penalty), or any torch module with
    one logit. Training minimises the worst client's loss, or a smooth maximum of all clients'
    losses, subject to the budgets (docs/method.md).

    Parameters
    ----------
    budget : float, mapping, rule or sequence of rules, optional
        The largest difference of group rates: one number for every client, or one per client,
        where the key ``"*"`` stands for all others. Rules, ``Difference(...)`` and ``Ratio(...)``,
        have their own metric, attribute and scope. By default disparities are measured and not
        bounded.
    metric : {"demographic_parity", "equal_opportunity", "equalized_odds"}
        The rates that a number or a mapping as ``budget`` bounds, for every sensitive feature.
    scope : {"client", "global", "both"}
        Whether a number or a mapping as ``budget`` holds on each client's rows, on all rows
        together, or on both.
    method : str or method
        The training method: "sqp", "two-stage" or a baseline that ``fcfl train --help`` lists. A
        method object sets options, such as ``SQP(tolerance=1e-4)``, or is of your own class.
    l2 : float or "auto", optional
        Weight of ``|params|**2 / 2`` in every loss. The default is 0.003 for a torch module and 0
        for methods other than "sqp"; for a linear model "sqp" chooses by leave-one-out losses.
    objective : float, "max", "mean" or "auto", optional
        The minimised function of the clients' losses: their maximum, their mean, or the smooth
        maximum at this temperature (a large one is near the mean). The default is 1 for a torch
        module and the objective of a method object; otherwise it is chosen together with ``l2``.
    loss : {"cross-entropy", "hinge", "squared"} or loss
        The loss of a row. Hinge is smoothed over a width of 0.1; ``Hinge(width=0.05)`` sets
        another. Its scores are not probabilities, so that there is no `predict_proba`.
    rounds : int or (int, int), optional
        Maximum number of rounds; a pair for a method with two stages.
    confidence : float, optional
        Confidence that each budget holds on new rows. Training tightens the bounds as far as a
        client's rows allow, which repeats training; 0 trains with the budgets themselves. The
        default is 0.9, and 0 for a torch module.
    max_accuracy_loss : float
        Largest training accuracy that margins may cost, in addition to the cost of the budgets.
    max_rate_shift : float, optional
        Largest shift of the pooled rates from the model without budgets. By default 0.05; no limit
        with ``confidence`` 0.
    pooling : "auto" or "none"
        With "auto" and at least eight clients, the rates of a client with few rows are estimated
        with help of the other clients' rows. "none" uses each client's own rows only.
    new_rows : float, optional
        Keep budgets on new samples of so many rows of each client. By default they are kept in the
        population that the client's rows are drawn from.
    min_group_rows : float, optional
        Groups with fewer rows (by weight) at a client are not compared there. By default 30, more
        for a budget below 0.05, 100 at most.
    starts : int, optional
        How many starts are compared. By default 2 where ``l2`` and ``objective`` are given, else 1.
    threshold : float
        A row of at least this probability is in the second class. Training, `predict` and `audit`
        use the same threshold. Lower it for a rare class: if nearly nobody is selected, a warning
        suggests a threshold. It must be 0.5 for "hinge".
    thresholds : {"common", "group"}
        With "group" one score is trained without budgets. Thresholds by client and group then
        keep the budgets. `predict` and `score` require ``clients`` and ``sensitive_features``; for
        metadata routing, request them by `set_predict_request` and `set_score_request`. Every
        decision then depends on the attribute, which may be unlawful: in the United States, for
        example, it may be disparate treatment in employment and credit.
    privacy : {"epsilon": E, "delta": D}, optional
        Clients add noise to everything they report, and the method is "private"; see
        docs/privacy.md. The scale of ``X``, the classes and the groups are treated as public. Scale
        ``X`` by constants, not by statistics of these rows.
    model : torch.nn.Module, optional
        A module with one logit. A copy is trained, starting from the module's weights.
    random_state : int, RandomState or None
        Seed of further random starts.
    verbose : bool, optional
        Whether to show a progress bar. By default only if stdout is a terminal or a notebook.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        The second one counts as selected.
    coef_, intercept_ : ndarray of shape (1, n_features) and (1,)
        Parameters of a linear model.
    module_ : torch.nn.Module
        The trained copy of ``model``.
    clients_ : tuple of str
    history_ : tuple of RoundInfo
        Worst loss and largest violation of every round.
    result_ : Result
        The content of a run's ``result.json``; ``result_.selection`` is how settings were chosen.
    prices_ : tuple of Price
        The price of each budget: the decrease of the objective per unit of relaxation. Only "sqp"
        has prices.
    thresholds_ : GroupThresholds or None
        Offset from the logit of ``threshold`` for each client and group, in ``by_client``.
    audit_ : Audit
        Rates, intervals and verdicts on the training rows. `audit` does the same for other rows.
    n_iter_ : int
        Rounds taken.
    schema_ : Schema or None
        The encoding of a table's columns as features, if `load` has read a run of the command
        line. ``X`` is then a table with the run's columns. None after `fit`.

    Examples
    --------
    >>> import numpy as np
    >>> from fcfl import FCFLClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((400, 3))
    >>> sex = rng.choice(["f", "m"], 400)
    >>> y = (X[:, 0] + (sex == "m") + rng.logistic(size=400) > 0).astype(int)
    >>> site = rng.choice(["north", "south"], 400)
    >>> X[:, 1] += sex == "m"
    >>> model = FCFLClassifier(budget=0.05, l2=0.01, objective="max")
    >>> model = model.fit(X, y, clients=site, sensitive_features=sex)
    >>> model.result_.message[:12], len(model.prices_)
    ('KKT residual', 2)
    """

    budget: float | Mapping[ClientId, float] | Rule | Sequence[Rule] | None = None
    _: KW_ONLY
    metric: str = "demographic_parity"
    scope: Literal["client", "global", "both"] = "client"
    method: Any = "sqp"
    l2: float | Literal["auto"] | None = None
    objective: float | Literal["max", "mean", "auto"] | None = None
    loss: str | Loss = "cross-entropy"
    rounds: int | tuple[int, int] | None = None
    confidence: float | None = None
    max_accuracy_loss: float = MAX_ACCURACY_LOSS
    max_rate_shift: float | None = None
    pooling: Pooling = "auto"
    new_rows: float | None = None
    min_group_rows: float | None = None
    starts: int | None = None
    threshold: float = HALF
    thresholds: Thresholds = "common"
    privacy: PrivacyBudget | Mapping[str, float] | None = None
    model: Any = None
    random_state: Any = 0
    verbose: bool | None = None

    # `predict` and `score` use these for thresholds by group only, so routing is off by default.
    __metadata_request__predict: ClassVar = {"clients": False, "sensitive_features": False}
    __metadata_request__score: ClassVar = {"clients": False, "sensitive_features": False}

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        clients: Any = None,
        sensitive_features: Any = None,
        sample_weight: Any = None,
    ) -> "FCFLClassifier":
        """Train on all clients' rows, which stay in this process.

        Parameters
        ----------
        X : array, sparse matrix or table of numbers, of shape (n_rows, n_features)
            Tables, here and below, are those of pandas, Arrow, Polars, or of any other library
            that speaks Arrow's protocol.
        y : array of shape (n_rows,) with two values
        clients : array of shape (n_rows,), optional
            The client of each row. By default all rows belong to one client.
        sensitive_features : array, Series, DataFrame or mapping, optional
            The groups of each row; several columns are several attributes. A row with an empty
            cell counts for the loss and belongs to no group.
        sample_weight : array of shape (n_rows,), optional
            How many rows each stands for, in losses and in rates.
        """
        X, y = inputs.features_of(X), as_pandas(y)
        inputs.check_labelled(y)
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64)
        inputs.check_sizes(X, getattr(self, "feature_names_in_", None))
        labels = self._encode_labels(y)
        weights = inputs.row_weights(sample_weight, X, labels)
        sensitive = inputs.sensitive_columns(sensitive_features, len(labels))
        parts = inputs.split_by_client(
            X, labels, inputs.client_column(clients, len(labels)), sensitive, weights
        )
        inputs.warn_of_names(self.classes_, parts)
        seed = self.random_state
        if not isinstance(seed, (int, np.integer)):
            seed = check_random_state(seed).randint(2**31)
        check_count("random_state", int(seed))
        method = inputs.method_of(self, int(seed))
        l2, objective = inputs.open_settings_of(self)
        trained = train(
            Federation.from_rows(parts, privacy=inputs.privacy_of(self)),
            self._model_of(self.model, X.shape[1]),
            inputs.rules_of(self, list(sensitive), list(parts)),
            method=method,
            l2=l2,
            objective=objective,
            seed=int(seed),
            **{name: getattr(self, name) for name in _PASSED_ON},
        )
        self._take_params(trained.params)
        self.schema_ = None
        self.thresholds_ = trained.thresholds
        self._client_column = inputs.CLIENTS
        self.rules_ = trained.rules
        self.levels_ = dict(next(iter(parts.values())).levels)
        plain = (str, int, float, bool, tuple, Mapping)
        result = trained.result(
            seed=int(seed),
            start="zero" if self.model is None else "module",
            settings={
                name: value if isinstance(value, plain) else repr(value)
                for name, value in self.get_params(deep=False).items()
                if value is not None and name not in ("model", "verbose")
            },
            data=DataSource(
                "rows in memory",
                inputs.rows_checksum(parts) if trained.privacy is None else "withheld",
            ),
        )
        self._take_result(result, trained.history)
        self.audit_ = trained.evaluations.audits["train"]
        if trained.status != "converged" and self.rounds is None:
            warnings.warn(inputs.advice(trained.message, X), ConvergenceWarning, stacklevel=2)
        if trained.degenerate is not None:
            warnings.warn(trained.degenerate.in_python, UserWarning, stacklevel=2)
        if unenforced := self._unenforced():
            warnings.warn(unenforced, UserWarning, stacklevel=2)
        return self

    def _encode_labels(self, y: Any) -> Vector:
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        alike = look_alikes(str(name) for name in self.classes_ if isinstance(name, str))
        if type_of_target(y) != "binary" or alike:
            raise ValueError(
                "Only binary classification is supported. The type of the target is "
                f"{type_of_target(y)}: `y` must have two classes"
                + (f", but {alike}." if alike else ".")
            )
        if self.classes_.size != 2:
            raise ValueError(
                f"`y` must have two classes, got one class: {str(self.classes_[0])!r}."
            )
        return codes.astype(np.float64)

    def _model_of(self, module: Any, n_features: int) -> Model:
        """Return a linear model, or the module as a model."""
        loss = as_loss("loss", self.loss)
        if module is None:
            return Linear(n_features, loss=loss, threshold=self.threshold)
        if not hasattr(module, "state_dict"):
            raise TypeError(
                f"`model` must be None or a torch.nn.Module, got {type(module).__name__}."
            )
        from fcfl.models.torch_module import TorchModule  # imported late: torch is optional

        return TorchModule(module, loss=loss, threshold=self.threshold)

    def _unenforced(self) -> str:
        """Return a warning if no client has two groups that a budget compares, else empty text."""
        bounded = [entry for _, entry in self.audit_.disparities() if entry.budget is not None]
        if not bounded or any(entry.value is not None for entry in bounded):
            return ""
        attributes = " or ".join(dict.fromkeys(repr(entry.attribute) for entry in bounded))
        return (
            f"No budget is enforced: no two groups of {attributes} have the rows that are compared "
            "at a client. Give other `sensitive_features`, a lower `min_group_rows`, or "
            "`scope='global'`."
        )

    def _take_params(self, params: Vector) -> None:
        """Set ``coef_`` and ``intercept_``, or ``module_``, from the flat parameters."""
        if self.model is None:
            self.coef_, self.intercept_ = params[None, :-1].copy(), params[-1:].copy()
        else:
            from fcfl.models.torch_rows import as_network

            self.module_ = as_network(self.model).restored(params)

    def _take_result(self, result: Result, history: tuple[RoundInfo, ...]) -> None:
        self.result_, self.history_ = result, history
        self.clients_, self.prices_ = tuple(result.clients), result.prices
        self.n_iter_ = result.n_rounds

    def _trained(self) -> tuple[Model, Vector]:
        """Return the fitted model and its flat parameters."""
        if self.model is None:
            params = np.append(self.coef_, self.intercept_)
            return self._model_of(None, params.size - 1), params
        model: Any = self._model_of(self.module_, 0)
        return model, model.start()

    def decision_function(self, X: Any) -> Vector:
        """Return the logit of each row. `predict` compares it with the logit of ``threshold``."""
        check_is_fitted(self)
        if self.schema_ is None:
            X = inputs.features_of(X)
            X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        else:
            X = self.schema_.transform(as_pandas(X))
        model, params = self._trained()
        return model.logits(params, X)

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Any:
        """Return the probabilities of both classes, if the loss has them."""
        probability = as_loss("loss", self.loss).scores(self.decision_function(X))
        return np.column_stack([1.0 - probability, probability])

    def predict(self, X: Any, *, clients: Any = None, sensitive_features: Any = None) -> Any:
        """Return the class of each row.

        A row is in the second class if its probability is at least ``threshold``. With
        ``thresholds="group"`` the threshold depends on the row's client and group; a client or
        group with too few training rows has the common threshold. Otherwise ``clients`` and
        ``sensitive_features`` are ignored.
        """
        logits = self.decision_function(X)
        cuts = self._cut + self._row_thresholds(logits.size, clients, sensitive_features)
        return self.classes_[hard_selection(logits, cuts).astype(np.intp)]

    @property
    def _cut(self) -> float:
        """The logit of the decision threshold."""
        return check_threshold(self.threshold, as_loss("loss", self.loss))

    def _row_thresholds(self, n_rows: int, clients: Any, sensitive_features: Any) -> Vector | float:
        """Return the offset of each row's threshold, 0 for an unknown client or group."""
        if self.thresholds_ is None:
            return 0.0
        given = {"sensitive_features": sensitive_features}
        if self.clients_ != (inputs.ONLY_CLIENT,):
            given["clients"] = clients
        for name, value in given.items():
            if value is None:
                raise ValueError(
                    f"`{name}` must be given to `predict` and `score`: this classifier was fitted "
                    "with thresholds='group' and decides by client and group."
                )
        attribute = self.thresholds_.attribute
        groups = inputs.sensitive_columns(sensitive_features, n_rows, [attribute])[attribute]
        owners = cell_texts(inputs.client_column(clients, n_rows))
        found: Vector = self.thresholds_.of_rows(owners, cell_texts(groups))[0]
        return found

    def score(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        clients: Any = None,
        sensitive_features: Any = None,
    ) -> float:
        """Return the accuracy; ``clients`` and ``sensitive_features`` are those of `predict`."""
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
        """Return rates, intervals and verdicts of these rows, against the budgets of `fit`."""
        logits = self.decision_function(X)
        found = np.isin(y, self.classes_)
        if not np.all(found):
            strange = str(np.asarray(y)[~found][0])
            raise ValueError(f"`y` must hold the classes of `fit`, got {strange!r}.")
        labels = (np.asarray(y) == self.classes_[1]).astype(np.float64)
        sensitive = inputs.sensitive_columns(sensitive_features, labels.size, self.levels_)
        parts = inputs.split_by_client(
            logits[:, None],
            labels,
            inputs.client_column(clients, labels.size),
            sensitive,
            levels=self.levels_,
        )
        rules = [  # leave out the budgets of clients without rows in `X`
            replace(rule, budget={c: rule.budget[c] for c in parts if c in rule.budget})
            if isinstance(rule.budget, Mapping)
            else rule
            for rule in self.rules_
        ]
        rates, loss = rates_needed(rules, self.levels_), as_loss("loss", self.loss)
        counts = {}
        for client, data in parts.items():
            own = 0.0 if self.thresholds_ is None else self.thresholds_.of_data(client, data)
            counts[client] = count_rows(data.X[:, 0], data, rates, self._cut + own, loss)
        # The default minimum is for training. An audit compares small groups too: their intervals
        # are wide.
        least = 1.0 if self.min_group_rows is None else self.min_group_rows
        return audit_clients(rules, rates, counts, confidence=confidence, min_group_rows=least)

    def save(self, path: str | Path) -> None:
        """Write the fitted classifier to a folder with the files of a run, without pickle.

        ``fcfl predict``, ``fcfl report`` and ``fcfl export`` can read it.
        """
        check_is_fitted(self)
        write_classifier(self, Path(path))

    @classmethod
    def load(cls, path: str | Path, *, model: Any = None) -> Self:
        """Read a folder that `save` or ``fcfl train`` wrote.

        For a network, ``model`` must be a module of the same architecture. A classifier read from a
        run of the command line has no ``audit_``, and its ``X`` are tables with the run's columns.
        """
        classifier: Self = read_classifier(cls, Path(path), model)
        return classifier

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.sparse = True
        return tags
