import numpy as np
import pandas as pd
import pytest

from fcfl.data import dirichlet_clients

SEX = np.repeat(["Female", "Male"], [400, 800])


def test_every_client_has_enough_of_every_value():
    for seed in range(20):
        clients = dirichlet_clients(SEX, 5, 0.5, seed)
        table = pd.crosstab(clients, SEX)
        assert list(table.index) == [f"client-{i}" for i in range(1, 6)]
        assert table.to_numpy().min() >= 10 and table.to_numpy().sum() == SEX.size


def test_deterministic_given_the_seed():
    first, again, other = (dirichlet_clients(SEX, 4, 0.5, seed) for seed in (0, 0, 1))
    assert (first == again).all() and (first != other).any()


def test_small_concentration_gives_unlike_clients():
    def spread(concentration):
        clients = dirichlet_clients(SEX, 5, concentration, 0, min_rows=1)
        return pd.Series(SEX == "Male").groupby(clients).mean().std()

    assert spread(0.3) > 3 * spread(1000.0)


def test_names_sort_as_numbers():
    names = sorted(set(dirichlet_clients(SEX, 12, 100.0, 0)))
    assert names[0] == "client-01" and names[-1] == "client-12"


def test_one_client_gets_everything():
    assert set(dirichlet_clients(SEX, 1, 0.5, 0)) == {"client-1"}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((SEX, 50, 0.5, 0), "`min_rows` .* 50 clients, got 10"),
        ((SEX, 40, 0.01, 0), "value 'Female'"),
        ((SEX, 0, 0.5, 0), "`n_clients` must be at least 1, got 0"),
        ((SEX, 2, 0.0, 0), "`concentration` must be a positive number"),
    ],
)
def test_impossible_partitions(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        dirichlet_clients(*arguments)
