"""A table with pandas: Adult, two clients, a budget of .05 for race, verdicts on held-out rows.

Run with: python examples/tabular.py
"""

import numpy as np
from sklearn.compose import make_column_transformer
from sklearn.preprocessing import OneHotEncoder

from fcfl import FCFLClassifier
from fcfl.data import load_adult_frames

FEATURES = ["workclass", "education", "marital-status", "occupation", "relationship", "sex"]


def roles(frame):
    """Label, client and group of every row."""
    label = frame["income"]
    client = np.where(frame["education"] == "Doctorate", "phd", "non-phd")
    race = frame["race"].where(frame["race"] == "White", "Non-White")
    return label, client, race


train, test = load_adult_frames()
encoder = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), FEATURES))
X_train, X_test = encoder.fit_transform(train), encoder.transform(test)

label, client, race = roles(train)
model = FCFLClassifier(budget=0.05)
model.fit(X_train, label, clients=client, sensitive_features=race)
print(model.result_.selection.sentence)
print(model.result_.message)

label, client, race = roles(test)
audit = model.audit(X_test, label, clients=client, sensitive_features=race)
print(audit.statement)
for name, found in audit.clients.items():
    disparity = found.disparities[0]
    print(
        f"{name}: accuracy {found.accuracy:.3f}, demographic parity difference "
        f"{disparity.value:.3f} [{disparity.low:.3f}, {disparity.high:.3f}], budget "
        f"{disparity.budget}: {disparity.verdict}"
    )
for price in model.prices_:
    print(f"Relaxing {price.client}'s budget by .01 would save {price.value / 100:.1e}.")
