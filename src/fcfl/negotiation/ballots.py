"""What a client does with its preference: it looks at the offers and fills in a ballot.

This is the client's own business, wherever it runs. Only the ballot leaves.
"""

from collections.abc import Sequence

import numpy as np
from scipy.stats import rankdata

from fcfl.preference import Preference
from fcfl.results.negotiation_result import Ballot, View


def cast_ballot(preference: Preference, views: Sequence[View], alone: View) -> Ballot:
    """Approve what is at least as good as going alone; rank by utility, limits first.

    What breaks a hard limit is ranked below everything that breaks none.
    """
    gains = np.array([gain_over(preference, view, alone) for view in views])
    allowed = np.array([preference.allows(view.accuracy, view.disparity) for view in views], bool)
    order = np.where(allowed, gains, gains - 1e6)
    largest = max(np.abs(gains[allowed]).max(initial=0.0), np.finfo(float).tiny)
    return Ballot(
        approves=tuple((allowed & (gains >= 0)).tolist()),
        ranks=tuple(rankdata(-order, method="average").tolist()),
        gains=tuple(np.where(allowed, gains / largest, -1.0).tolist()),
    )


def gain_over(preference: Preference, view: View, alone: View) -> float:
    """By how much a client prefers what it is offered to what it has alone.

    Where alone it breaks a hard limit of its own it has no acceptable model to walk away to, and
    anything within the limits is a gain: it counts from the worst model there is.
    """
    walk_away = 0.0 - 1.0  # accuracy 0, disparity 1
    if preference.allows(alone.accuracy, alone.disparity):
        walk_away = preference.utility(alone.accuracy, alone.disparity)
    return preference.utility(view.accuracy, view.disparity) - walk_away
