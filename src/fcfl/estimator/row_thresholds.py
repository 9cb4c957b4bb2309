"""From which logit on each row is in the second class, where that is by client and group."""

from typing import Any

from fcfl._types import Vector
from fcfl.data.cells import cell_texts
from fcfl.estimator.inputs import ONLY_CLIENT, client_column, sensitive_as_in_fit
from fcfl.models.loss import as_loss
from fcfl.models.model import check_threshold


def cut_of(classifier: Any) -> float:
    """Return the logit of the classifier's decision threshold."""
    return check_threshold(classifier.threshold, as_loss("loss", classifier.loss))


def row_thresholds(
    classifier: Any, n_rows: int, clients: Any, sensitive_features: Any
) -> Vector | float:
    """The threshold of each row above the cut; of a client or group that `fit` had none for, 0."""
    thresholds = classifier.thresholds_
    if thresholds is None:
        return 0.0
    given = {"sensitive_features": sensitive_features}
    if classifier.clients_ != (ONLY_CLIENT,):
        given["clients"] = clients
    for name, value in given.items():
        if value is None:
            raise ValueError(
                f"`{name}` must be given to `predict` and `score`: this classifier was fitted "
                "with thresholds='group' and decides by client and group."
            )
    attribute = thresholds.attribute
    groups = sensitive_as_in_fit(sensitive_features, n_rows, (attribute,))[attribute]
    owners = cell_texts(client_column(clients, n_rows))
    found: Vector = thresholds.of_rows(owners, cell_texts(groups))[0]
    return found
