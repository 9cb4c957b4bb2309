"""The hypothesis profile, the tiers of tests, and their markers.

`pytest` runs the tests without any of these markers, `pytest --all` everything but ``deployment``,
and ``pytest -m EXPRESSION`` what it names.
"""

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

WHEN_ASKED = {
    "deployment": "real processes and their faults, minutes each: make test-deployment",
    "pages": "blocks of the documentation that take seconds each: make docs-check",
    "thorough": "more than a second each, and faster tests cover the same: make test-all",
}


def pytest_addoption(parser):
    parser.addoption("--all", action="store_true", help="run every tier but deployment")


def pytest_configure(config):
    for name, meaning in WHEN_ASKED.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")


def pytest_collection_modifyitems(config, items):
    if config.option.markexpr:
        return
    left_out = ["deployment"] if config.option.all else WHEN_ASKED
    slow = [item for item in items if any(map(item.get_closest_marker, left_out))]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]
