"""What can be judged beside others: all rows together, and clients with enough people."""

import pytest

from fcfl.results.many_runs import ENOUGH, judge
from simulated import client, judged, parsed, result

LARGE = (("a", 200, 60), ("b", 200, 50))


def one(value, groups=LARGE, budget=0.05, accuracy=0.8, rule="difference"):
    return client(judged(value, 0.0, 0.3, budget, "undetermined", groups=groups, rule=rule),
                  accuracy=accuracy)  # fmt: skip


def test_a_client_of_few_people_decides_nothing():
    clients = {
        "north": one(0.01, accuracy=0.8),
        "south": one(0.04, accuracy=0.7),
        "west": one(0.08, accuracy=0.9),
        "harbour": one(0.5, groups=(("a", 9, 8), ("b", 9, 2)), accuracy=0.1),
    }
    together = judged(0.03, 0.01, 0.06, None, "unconstrained", groups=(("a", 1, 1),))
    found = judge(parsed(result(clients, [together])))
    assert found.too_small == ("harbour",) and found.clients == ("north", "south", "west")
    assert (found.median, found.largest, found.lowest_accuracy) == (0.04, 0.08, 0.7)
    assert (found.all_rows, found.low, found.high) == (0.03, 0.01, 0.06)
    assert (found.kept, found.n_budgets, found.keeps) == (2, 3, "2/3")


@pytest.mark.parametrize(("rows", "counts"), [(ENOUGH, True), (ENOUGH - 1, False)])
def test_every_group_needs_enough_people(rows, counts):
    clients = {"a": one(0.1), "b": one(0.2, groups=(("a", 500, 1), ("b", rows, 1)))}
    assert ("b" in judge(parsed(result(clients))).clients) == counts


def test_one_group_alone_cannot_be_judged():
    alone = client(judged(None, None, None, 0.1, "undetermined", groups=(("a", 500, 1),)))
    assert judge(parsed(result({"a": one(0.1), "b": alone}))).too_small == ("b",)


def test_where_nobody_has_enough_everybody_counts():
    few = (("a", 5, 1), ("b", 5, 1))
    found = judge(parsed(result({"a": one(0.1, groups=few), "b": one(0.3, groups=few)})))
    assert (found.largest, found.too_small) == (0.3, ())


def test_a_ratio_is_kept_from_above_and_is_no_difference():
    found = judge(parsed(result({"a": one(0.9, rule="ratio", budget=0.8)})))
    assert (found.kept, found.largest) == (1, None)
