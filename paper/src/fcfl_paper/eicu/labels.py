"""Label, client and sensitive groups of each stay."""

from collections.abc import Callable

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fcfl._types import Vector

from .source_tables import TEXT, WHOLE, Frame, Table, read_frame
from .stays import DAY, died

WEEK = 7 * DAY
UNKNOWN_REGION = "unknown"
Texts = NDArray[np.object_]  # None where unknown


def los7(stays: Frame) -> Vector:
    """1 where the hospital stay is longer than 7 days, NaN where its length is unknown."""
    minutes = stays["hospitaldischargeoffset"] - stays["hospitaladmitoffset"]
    length = minutes.to_numpy(dtype=np.float64)
    return np.where(np.isnan(length), np.nan, length > WEEK)


def mortality(stays: Frame) -> Vector:
    """1 where the patient expired in hospital or unit."""
    return died(stays).astype(np.float64)


def race(stays: Frame) -> Texts:
    """Caucasian or not; a missing ethnicity is unknown."""
    ethnicity = stays["ethnicity"]
    caucasian = ethnicity.str.lower() == "caucasian"
    groups = caucasian.map({True: "Caucasian", False: "not Caucasian"}).astype(object)
    return _texts(groups.where(ethnicity.notna(), None))


def gender(stays: Frame) -> Texts:
    """Female or Male; anything else is unknown."""
    words = stays["gender"].str.capitalize().astype(object)
    return _texts(words.where(words.isin(["Female", "Male"]), None))


def hospital(stays: Frame) -> Texts:
    """The hospital's id as text."""
    return _texts(stays["hospitalid"].astype(int).astype(str))


def region(stays: Frame, hospitals: Table) -> Texts:
    """The region of the hospital; hospitals without one form a client of their own."""
    frame = read_frame(hospitals, {"hospitalid": WHOLE, "region": TEXT})
    regions = pd.Series(frame["region"].to_numpy(object), index=frame["hospitalid"].astype(int))
    named = stays["hospitalid"].astype(int).map(regions[~regions.index.duplicated()])
    return _texts(named.str.strip().replace("", None).fillna(UNKNOWN_REGION))


def _texts(column: Frame) -> Texts:
    return np.asarray(column, dtype=object)


LABELS: dict[str, Callable[[Frame], Vector]] = {"los7": los7, "mortality": mortality}
GROUPS: dict[str, Callable[[Frame], Texts]] = {"race": race, "gender": gender}
