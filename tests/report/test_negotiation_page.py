"""The page of a negotiation: everything that was trained stands in it, and nothing else runs."""

import base64
import hashlib
import json
import re
from dataclasses import replace

import pytest

from fcfl._files import read_json, write_json
from fcfl.negotiation.negotiating import costs_around
from fcfl.negotiation.voting import elect_by_all, worth_a_vote
from fcfl.policy import Choices, Preference, read_policy
from fcfl.report.negotiation import headline, render_negotiation
from fcfl.results.negotiation import Negotiation, Offer, View
from fcfl.rules import Difference
from fcfl.runs.many_runs import policy_text

BAD = "<script>alert(1)</script>"
CLIENTS = ("north", "süd", BAD)
LADDER = (0.2, 0.1, 0.05)


def simulated(clients=CLIENTS):
    """A negotiation in which tighter budgets lower disparity and accuracy, a client at a time."""

    def view(level, others):
        accuracy = 0.85 - 0.01 * level - 0.003 * others
        return View(accuracy, 0.4 + 0.01 * level, 0.18 - 0.06 * level, (0.7, 0.9), (0.0, 0.3))

    offers = []
    levels = [(i, i, i) for i in range(3)] + [(0, 1, 1), (1, 0, 1), (1, 1, 0), (2, 1, 1)]
    for combination in levels:
        total = sum(combination)
        views = {c: view(k, total - k) for c, k in zip(clients, combination, strict=True)}
        budgets = {c: LADDER[k] for c, k in zip(clients, combination, strict=True)}
        offers.append(Offer(budgets, views, dict.fromkeys(clients, 0.1), True, "the same for all"))
    alone = {c: View(0.8, 0.5, 0.1) for c in clients}
    voted = worth_a_vote(offers)

    def cast(client):
        views = tuple(offers[i].views[client].figures for i in voted)
        walk_away = (alone[client].figures,)
        return Preference().cast_ballot(Choices(views, walk_away, walk_away))

    ballots = {client: cast(client) for client in clients}
    elections = elect_by_all(ballots)
    agreed = voted[elections[0].winner]
    return Negotiation(
        table="stays.csv", clients=clients, budgets=LADDER, part="test",
        metric="demographic_parity", attributes=("race",), min_group_rows=30, l2=0.003,
        objective="max", offers=tuple(offers), on_ballot=voted, alone=alone, ballots=ballots,
        elections=elections, decided_by="nash", agreed=agreed,
        costs=costs_around(offers, agreed, LADDER), command="fcfl train stays.csv",
    )  # fmt: skip


def test_without_a_script_all_combinations_stand_in_a_table():
    page = render_negotiation(simulated())
    table = page[page.index('id="all-combinations"') :]
    rows = re.findall(r"<tr><th scope=\"row\">\d+</th>.*?</tr>", table, re.S)
    assert len(rows) == len(simulated().offers)
    assert '<section id="try" aria-labelledby="try-it" hidden>' in page


def test_only_our_own_script_may_run_and_nothing_is_loaded():
    page = render_negotiation(simulated())
    assert BAD not in page and "http" not in re.sub(r"http-equiv", "", page)
    scripts = re.findall(r"<script>(.*?)</script>", page, re.S)
    assert len(scripts) == 1
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page).group(1)
    assert f"script-src 'sha256-{digest}';" in policy.replace("&#39;", "'")
    assert "default-src 'none'" in policy.replace("&#39;", "'")


def test_the_script_is_given_every_combination():
    page, found = render_negotiation(simulated()), simulated()
    embedded = r'<script type="application/json" id="offers">(.*?)</script>'
    data = json.loads(re.search(embedded, page, re.S).group(1))
    assert data["clients"] == list(CLIENTS)
    for given, offer in zip(data["offers"], found.offers, strict=True):
        assert [LADDER[level] for level in given["levels"]] == list(offer.budgets.values())
        assert given["views"][0][0] == f"{offer.views['north'].accuracy:.3f}"


def test_winners_ballots_costs_and_who_would_leave_are_told():
    found = simulated()
    page = render_negotiation(found)
    for heading in ("The agreement", "Who wins under which rule", "Whose budget costs whom"):
        assert heading in page
    for rule in ("Approval", "Borda", "Nash bargaining"):
        assert rule in page
    assert page.count("*</td>") == sum(sum(b.approves) for b in found.ballots.values())
    assert headline(found).startswith("Budgets of 0.05 could be agreed on (Nash bargaining)")
    left = replace(found.election("nash"), would_leave=("north",))
    split = replace(found, elections=(*found.elections[:2], left))
    assert "than its own model" in headline(split)
    assert "1 of 3 clients would leave" in render_negotiation(split)


def test_why_nash_has_no_winner_is_told():
    found = simulated()
    none = replace(found.election("nash"), winner=None)
    lost = replace(found, elections=(*found.elections[:2], none))
    assert "none: in every combination" in render_negotiation(lost)
    kept = {c: replace(ballot, gains=()) for c, ballot in found.ballots.items()}
    silent = replace(lost, ballots=kept)
    assert "none: some client does not report its gains" in render_negotiation(silent)


def test_a_negotiation_survives_its_file(tmp_path):
    found = simulated()
    write_json(tmp_path / "negotiation.json", found)
    assert read_json(tmp_path / "negotiation.json", Negotiation) == found


def test_the_policy_file_says_what_was_agreed(tmp_path):
    found = simulated()
    (tmp_path / "agreed.toml").write_text(policy_text(found), encoding="utf-8")
    policy = read_policy(tmp_path / "agreed.toml")
    agreed = found.offers[found.agreed].budgets
    assert policy.rules(CLIENTS) == (Difference("demographic_parity", "race", dict(agreed)),)
    assert policy.min_group_rows == 30


def test_costs_are_what_changes_for_everybody_a_step_looser():
    found = simulated()
    here = found.offers[found.agreed]
    for cost in found.costs:
        assert cost.relaxed > cost.budget == here.budgets[cost.client]
        relaxed = {**here.budgets, cost.client: cost.relaxed}
        there = next(offer for offer in found.offers if offer.budgets == relaxed)
        for client in CLIENTS:
            change = there.views[client].accuracy - here.views[client].accuracy
            assert cost.accuracy[client] == pytest.approx(change)
