"""The rate of one group, with its interval."""

from .client_result import GroupCount, Interval


def rate_interval(group: GroupCount, alpha: float = 0.05) -> Interval | None:
    """Wilson's interval of the share selected, None without rows."""
    from fcfl.audit.intervals import proportion_interval  # heavy, and not every reader draws

    return proportion_interval(group.selected, group.rows, alpha)
