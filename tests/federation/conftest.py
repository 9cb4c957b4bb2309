"""Tests of minutes run when they are asked for: ``pytest -m deployment``."""


def pytest_configure(config):
    config.addinivalue_line("markers", "deployment: real processes and their faults, minutes each")


def pytest_collection_modifyitems(config, items):
    if config.option.markexpr:
        return
    slow = [item for item in items if item.get_closest_marker("deployment")]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]
