"""Beside fairlearn's ExponentiatedGradient, all rows pooled under one client.

Run with: python examples/fairlearn_comparison.py
"""

import pandas as pd
from fairlearn.metrics import demographic_parity_difference
from fairlearn.reductions import DemographicParity, ExponentiatedGradient
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from fcfl import FCFLClassifier
from fcfl.data import load_adult_frames

ROWS = 6000  # of 32,561, so that the reduction takes seconds
CATEGORIES = ["workclass", "education", "marital-status", "occupation", "relationship"]
NUMBERS = ["age", "hours-per-week"]


def held_out(predicted):
    """Accuracy and demographic parity difference on the test rows, by fairlearn."""
    accuracy = accuracy_score(y_test, predicted)
    return accuracy, demographic_parity_difference(y_test, predicted, sensitive_features=sex_test)


train, test = load_adult_frames()
train = train.sample(ROWS, random_state=0)
y, y_test = ((frame["income"] == ">50K").astype(int) for frame in (train, test))
sex, sex_test = train["sex"], test["sex"]
encoder = make_column_transformer(
    (OneHotEncoder(handle_unknown="ignore", sparse_output=False), CATEGORIES),
    (StandardScaler(), NUMBERS),
)
X, X_test = encoder.fit_transform(train), encoder.transform(test)

curve = []
for budget in (0.15, 0.1, 0.05, 0.02):
    ours = FCFLClassifier(budget, l2=1e-3, objective="max").fit(X, y, sensitive_features=sex)
    parity = DemographicParity(difference_bound=budget / 2)  # its bound is to the mean rate
    theirs = ExponentiatedGradient(LogisticRegression(C=0.1, max_iter=300), parity, max_iter=20)
    theirs.fit(X, y, sensitive_features=sex)
    randomised = theirs.predict(X_test, random_state=0)
    curve.append([budget, *held_out(ours.predict(X_test)), *held_out(randomised)])

columns = ["budget", "fcfl accuracy", "fcfl disparity", "reduction accuracy", "its disparity"]
print(pd.DataFrame(curve, columns=columns).round(3).to_string(index=False))
print("fcfl is one linear model; the reduction draws one of several for each prediction.")
