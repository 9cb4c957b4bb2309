"""One hypothesis profile: the same examples every time, and no clock."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "steady",
    deadline=None,
    max_examples=60,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("explore", parent=settings.get_profile("steady"), derandomize=False)
settings.load_profile("steady")
