"""The Adult census data, as the paper and later papers divide them into clients."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from fcfl._checks import check_choice, did_you_mean
from fcfl.errors import DataError

from ._cells import Frame
from .adult_files import load_adult_frames
from .encoding import Category, Number, Schema
from .partition import dirichlet_clients
from .roles import Columns
from .table import FederatedTable, federate

LEVELS = {
    "workclass": (
        "Private Self-emp-not-inc Self-emp-inc Federal-gov Local-gov State-gov Without-pay "
        "Never-worked"
    ),
    "education": (
        "Bachelors Some-college 11th HS-grad Prof-school Assoc-acdm Assoc-voc 9th 7th-8th 12th "
        "Masters 1st-4th 10th Doctorate 5th-6th Preschool"
    ),
    "marital-status": (
        "Married-civ-spouse Divorced Never-married Separated Widowed Married-spouse-absent "
        "Married-AF-spouse"
    ),
    "occupation": (
        "Tech-support Craft-repair Other-service Sales Exec-managerial Prof-specialty "
        "Handlers-cleaners Machine-op-inspct Adm-clerical Farming-fishing Transport-moving "
        "Priv-house-serv Protective-serv Armed-Forces"
    ),
    "relationship": "Wife Own-child Husband Not-in-family Other-relative Unmarried",
    "race": "White Asian-Pac-Islander Amer-Indian-Eskimo Other Black",
    "sex": "Female Male",
    "native-country": (
        "United-States Cambodia England Puerto-Rico Canada Germany Outlying-US(Guam-USVI-etc) "
        "India Japan Greece South China Cuba Iran Honduras Philippines Italy Poland Jamaica "
        "Vietnam Mexico Portugal Ireland France Dominican-Republic Laos Ecuador Taiwan Haiti "
        "Columbia Hungary Guatemala Nicaragua Scotland Thailand Yugoslavia El-Salvador "
        "Trinadad&Tobago Peru Hong Holand-Netherlands"
    ),
}
"""Levels of the eight categorical columns, in the order of the data's own description."""

NUMBERS = {
    "age": (40.0, 15.0),
    "fnlwgt": (190_000.0, 100_000.0),
    "education-num": (10.0, 2.5),
    "capital-gain": (0.0, 7_500.0),
    "capital-loss": (0.0, 400.0),
    "hours-per-week": (40.0, 12.0),
}
"""Declared centres and scales of the numbers: round figures, not those of any rows."""

GROUPS = {"race": ("White", "Non-White"), "sex": ("Female", "Male")}
"""Groups of the sensitive columns; the first is the paper's group A."""

N_OCCUPATIONS = 12
_LABELS = ("<=50K", ">50K")


def adult_schema(without: Sequence[str] = ()) -> Schema:
    """Return the paper's encoding: categorical columns only, 99 features, no missing ones."""
    return Schema(
        tuple(
            Category(name, tuple(levels.split()))
            for name, levels in LEVELS.items()
            if name not in without
        )
    )


def declared_schema(without: Sequence[str] = ()) -> Schema:
    """All columns, encoded by the data's own description: nothing is read off the rows."""
    numbers = tuple(Number(name, *given) for name, given in NUMBERS.items())
    return Schema((*numbers, *adult_schema(without).columns))


def adult(
    sensitive: Sequence[str] = ("race",),
    clients: str = "phd",
    resplit: tuple[float, int] | None = None,
) -> FederatedTable:
    """Adult on its original split, categorical features only.

    Parameters
    ----------
    sensitive : "race" (White or not), "sex", or both; these leave the features
    clients : "phd" or "occupation"
        People with a doctorate and everyone else, as in the paper; or the twelve largest
        occupations, which then leave the features.
    resplit : (test_size, seed), optional
        All rows are split anew.
    """
    sensitive = _check_sensitive(sensitive)
    check_choice("clients", clients, ("phd", "occupation"))
    train, test = (_with_groups(frame, sensitive) for frame in load_adult_frames())
    if clients == "phd":
        name, train, test = "client", _with_degree(train), _with_degree(test)
    else:
        name, train, test = "occupation", *_large_occupations(train, test)
    test_size, seed = resplit or (0.0, 0)
    if resplit:
        train, test = pd.concat([train, test], ignore_index=True), None
    return federate(
        train,
        Columns(name, "income", sensitive, positive=_LABELS[1]),
        test_size=test_size,
        seed=seed,
        test_frame=test,
        schema=adult_schema((*sensitive, name)),
        levels=GROUPS,
        labels=_LABELS,
    )


def adult_5(
    sensitive: Sequence[str] = ("sex",),
    n_clients: int = 5,
    concentration: float = 0.5,
    seed: int = 0,
    test_size: float = 0.3,
    *,
    declared: bool = False,
) -> FederatedTable:
    """Adult pooled, all features, dealt to clients that differ in the first sensitive column.

    ``declared`` encodes them by the data's description instead of the clients' statistics.
    """
    sensitive = _check_sensitive(sensitive)
    pooled = pd.concat(load_adult_frames(), ignore_index=True)
    pooled = _with_groups(pooled, sensitive)
    dealt = dirichlet_clients(pooled[sensitive[0]], n_clients, concentration, seed)
    return federate(
        pooled.assign(client=dealt),
        Columns("client", "income", sensitive, positive=_LABELS[1]),
        test_size=test_size,
        seed=seed,
        schema=declared_schema(sensitive) if declared else None,
        levels=GROUPS,
        labels=_LABELS,
    )


def _check_sensitive(sensitive: Sequence[str]) -> tuple[str, ...]:
    names = (sensitive,) if isinstance(sensitive, str) else tuple(sensitive)
    if not names:
        raise DataError("`sensitive` must name race, sex or both, got nothing.")
    for name in names:
        if name not in GROUPS:
            raise DataError(
                f"`sensitive` must be race or sex for the Adult data, got {name!r}. "
                f"{did_you_mean(name, GROUPS)}"
            )
    return names


def _with_groups(frame: Frame, sensitive: tuple[str, ...]) -> Frame:
    """Return the frame with race in two groups where it is sensitive."""
    if "race" not in sensitive:
        return frame
    return frame.assign(race=np.where(frame["race"] == "White", *GROUPS["race"]))


def _with_degree(frame: Frame) -> Frame:
    return frame.assign(client=np.where(frame["education"] == "Doctorate", "phd", "non-phd"))


def _large_occupations(train: Frame, test: Frame) -> tuple[Frame, Frame]:
    largest = train["occupation"].value_counts().index[:N_OCCUPATIONS]
    return train[train["occupation"].isin(largest)], test[test["occupation"].isin(largest)]
