"""Audit somebody else's model: its predictions are enough.

Run with: python examples/audit_predictions.py
On the command line: fcfl audit predictions.csv --client branch --label income
--prediction predicted --sensitive sex --ratio 0.8
"""

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier

from fcfl import Ratio
from fcfl.audit import PredictionColumns, audit_clients, count_predictions, gate
from fcfl.data import load_adult_frames

train, test = load_adult_frames()
numbers = ["age", "education-num", "hours-per-week", "capital-gain", "capital-loss"]
theirs = HistGradientBoostingClassifier(random_state=0).fit(train[numbers], train["income"])

predictions = test[["sex", "income"]].assign(
    branch=np.where(test["education"] == "Doctorate", "phd", "non-phd"),
    predicted=theirs.predict(test[numbers]),
)
columns = PredictionColumns("branch", "predicted", ("sex",), label="income")
counted = count_predictions(predictions, columns)

four_fifths = Ratio("demographic_parity", "sex", 0.8)
audit = audit_clients([four_fifths], counted.rates, counted.counts)
print(audit.statement)
for branch, found in audit.clients.items():
    ratio = found.disparities[0]
    print(
        f"{branch}: ratio of selection rates {ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}] "
        f"(required: at least {ratio.budget}): {ratio.verdict}"
    )
for sentence in gate(audit, "exceeded"):
    print("would fail a gate:", sentence)
