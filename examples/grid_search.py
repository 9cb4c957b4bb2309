"""GridSearchCV over budgets, with clients and groups routed through a pipeline.

Run with: python examples/grid_search.py
"""

import numpy as np
import sklearn
from fairlearn.metrics import demographic_parity_difference
from sklearn.compose import make_column_transformer
from sklearn.metrics import make_scorer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from fcfl import FCFLClassifier
from fcfl.data import load_adult_frames

sklearn.set_config(enable_metadata_routing=True)

table = load_adult_frames()[0].sample(4000, random_state=0)
label = (table["income"] == ">50K").astype(int)
client = np.where(table["workclass"] == "Private", "private", "other")

columns = make_column_transformer(
    (OneHotEncoder(handle_unknown="ignore"), ["education", "occupation", "marital-status"]),
    (StandardScaler(), ["age", "hours-per-week"]),
)
model = FCFLClassifier(l2=0.003, objective=1.0, confidence=0, starts=1)  # plain budgets
model.set_fit_request(clients=True, sensitive_features=True)
disparity = make_scorer(demographic_parity_difference, greater_is_better=False)
disparity.set_score_request(sensitive_features=True)

search = GridSearchCV(
    make_pipeline(columns, model),
    {"fcflclassifier__budget": [0.2, 0.1, 0.05]},
    scoring={"accuracy": "accuracy", "disparity": disparity},
    refit="accuracy",
    cv=3,
)
search.fit(table, label, clients=client, sensitive_features=table["sex"])

found = search.cv_results_
print("budget  held-out accuracy  held-out demographic parity difference, all rows")
for budget, accuracy, negated in zip(
    found["param_fcflclassifier__budget"],
    found["mean_test_accuracy"],
    found["mean_test_disparity"],
    strict=True,
):
    print(f"{budget:6}  {accuracy:17.3f}  {-negated:12.3f}")
