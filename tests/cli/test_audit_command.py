"""`fcfl audit` and `fcfl report` as a person, or a CI job, uses them."""

import json

import numpy as np
import pandas as pd
import pytest

from fcfl.audit import difference_interval
from hospital import COLUMNS, SHORT, fcfl, only_error, result_of, stays, written

ROLES = ("--client", "branch", "--label", "y", "--prediction", "yhat", "--sensitive", "sex")
COUNTS = {  # (rows, selected) of f and m in each branch
    "north": ((1000, 500), (1000, 505)),
    "south": ((1000, 300), (1000, 600)),
    "tiny": ((10, 5), (8, 4)),
}


def predictions(counts=COUNTS):
    """Rows with exactly these counts; every third answer is wrong."""
    rows = [
        (branch, sex, int(i < selected))
        for branch, groups in counts.items()
        for sex, (n, selected) in zip("fm", groups, strict=True)
        for i in range(n)
    ]
    frame = pd.DataFrame(rows, columns=["branch", "sex", "yhat"])
    frame["y"] = np.where(np.arange(len(frame)) % 3 == 0, 1 - frame["yhat"], frame["yhat"])
    frame["score"] = np.where(frame["yhat"] == 1, 0.5, 0.4999)
    return frame


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return written(predictions(), tmp_path_factory.mktemp("audit") / "predictions.csv")


def verdicts(folder, part="test"):
    return {
        name: [entry["verdict"] for entry in client[part]["disparities"]]
        for name, client in result_of(folder)["clients"].items()
    }


def failures(outcome):
    return [
        line.removeprefix("failed: ")
        for line in outcome.stderr.splitlines()
        if line.startswith("failed: ")
    ]


# --- what it finds ----------------------------------------------------------------------------


def test_an_audit_writes_a_result_and_a_page_and_states_what_it_found(table, tmp_path):
    outcome = fcfl("audit", table, *ROLES, "--budget", 0.1, "--out", tmp_path / "a")
    assert outcome.exit_code == 0, outcome.output
    assert verdicts(tmp_path / "a") == {
        "north": ["met"], "south": ["exceeded"], "tiny": ["undetermined"],
    }  # fmt: skip
    said = " ".join(outcome.stdout.split())
    known = (
        "1 of 3 budgets shown to be met on audited rows, 1 exceeded, 1 has too few people to tell."
    )
    assert known in said
    page = (tmp_path / "a" / "report.html").read_text(encoding="utf-8")
    assert "south: budget 0.1 exceeded on 2,000 rows (smallest group 1,000)" in page
    assert f"<h1>{known}</h1>" in page


def test_the_result_keeps_the_contract_and_states_that_nothing_was_trained(table, tmp_path):
    fcfl("audit", table, *ROLES, "--budget", 0.1, "--out", tmp_path / "a")
    result = result_of(tmp_path / "a")
    assert (result["method"], result["status"]) == ("audit", "audited")
    assert result.keys() >= {
        "message", "rounds", "evaluations", "bytes_from_clients", "seconds", "kkt_residual", "l2",
        "objective", "selection", "seed", "fcfl_version", "worst_client", "clients", "global",
        "audit", "settings", "data", "versions", "notes",
    }  # fmt: skip
    assert result["audit"]["confidence"] == 0.95
    assert "all 3 comparisons" in result["audit"]["statement"]
    assert len(result["data"]["sha256"]) == 64
    for client in result["clients"].values():
        assert client["rows"]["train"] == 0
        assert client["train"]["disparities"] == []
        low, high = client["test"]["accuracy_interval"]
        assert low < client["test"]["accuracy"] < high
    assert result["worst_client"]["test_accuracy"] == min(
        client["test"]["accuracy"] for client in result["clients"].values()
    )


def test_the_intervals_are_those_of_the_counts(table, tmp_path):
    fcfl("audit", table, *ROLES, "--simultaneous", "none", "--confidence", 0.9,
         "--out", tmp_path / "a")  # fmt: skip
    result = result_of(tmp_path / "a")
    for name, ((n_f, k_f), (n_m, k_m)) in COUNTS.items():
        (entry,) = result["clients"][name]["test"]["disparities"]
        low, high = difference_interval(k_m, n_m, k_f, n_f, alpha=0.1)
        assert entry["value"] == pytest.approx(abs(k_m / n_m - k_f / n_f))
        assert entry["low"] == pytest.approx(max(low, -high, 0))
        assert entry["high"] == pytest.approx(max(high, -low))
        assert entry["verdict"] == "unconstrained"
    assert "90 %" in result["audit"]["statement"]


def test_scores_without_labels_give_the_same_verdicts(table, tmp_path):
    common = ("--client", "branch", "--sensitive", "sex", "--budget", "0.1")
    fcfl("audit", table, *common, "--prediction", "yhat", "--out", tmp_path / "a")
    outcome = fcfl("audit", table, *common, "--prediction", "score", "--threshold", 0.5,
                   "--out", tmp_path / "b")  # fmt: skip
    assert outcome.exit_code == 0, outcome.output
    assert "not known without labels" in " ".join(outcome.stdout.split())
    clients = [result_of(tmp_path / run)["clients"] for run in "ab"]
    assert clients[0] == clients[1]
    assert clients[0]["north"]["test"]["accuracy"] is None


def test_budgets_differ_by_client_and_a_ratio_is_one_more_rule(table, tmp_path):
    fcfl("audit", table, *ROLES, "--budget", "0.1,south=0.5", "--ratio", 0.8,
         "--out", tmp_path / "a")  # fmt: skip
    assert verdicts(tmp_path / "a") == {
        "north": ["met", "met"],
        "south": ["met", "exceeded"],
        "tiny": ["undetermined", "undetermined"],
    }


def test_a_policy_states_what_is_compared(table, tmp_path):
    policy = tmp_path / "policy.toml"
    policy.write_text(
        "min-group-rows = 9\n[[rule]]\nmetric = 'equal_opportunity'\nattribute = 'sex'\n"
        "budget = 0.1\n[rule.clients]\nsouth = 0.9\n"
    )
    outcome = fcfl("audit", table, *ROLES[:6], "--policy", policy, "--out", tmp_path / "a")
    assert outcome.exit_code == 0, outcome.output
    assert "that group is left out of the comparison" in outcome.stderr
    result = result_of(tmp_path / "a")
    (entry,) = result["clients"]["south"]["test"]["disparities"]
    assert (entry["metric"], entry["budget"], entry["verdict"]) == ("equal_opportunity", 0.9, "met")
    (tiny,) = result["clients"]["tiny"]["test"]["disparities"]
    assert (tiny["value"], tiny["verdict"]) == (None, "undetermined")
    assert len(result["data"]["policy_sha256"]) == 64
    assert result["audit"]["min_group_rows"] == 9


def test_hostile_names_stay_text_in_every_output(tmp_path):
    name = "<script>alert(1)</script>[bold]"
    frame = predictions({name: COUNTS["south"], "Zürich 東京 🏥": COUNTS["north"]})
    table = written(frame, tmp_path / "p.csv")
    outcome = fcfl("audit", table, *ROLES, "--budget", 0.1, "--fail-on", "exceeded",
                   "--out", tmp_path / "a")  # fmt: skip
    assert outcome.exit_code == 4
    page = (tmp_path / "a" / "report.html").read_text(encoding="utf-8")
    assert "<script" not in page and "&lt;script&gt;alert(1)&lt;/script&gt;[bold]" in page
    assert "Zürich 東京 🏥" in page
    assert name in outcome.stderr


# --- the gate ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("budget", "fail_on", "code", "failed"),
    [
        (0.1, "exceeded", 4, ["south"]),
        (0.1, "undetermined", 4, ["south", "tiny"]),
        (0.9, "exceeded", 0, []),
        ("north=0.2", "undetermined", 0, []),
    ],
)
def test_the_gate_fails_with_one_line_for_each_failure(
    table, tmp_path, budget, fail_on, code, failed
):
    outcome = fcfl("audit", table, *ROLES, "--budget", budget, "--fail-on", fail_on,
                   "--out", tmp_path / "a")  # fmt: skip
    assert outcome.exit_code == code, outcome.output
    told = failures(outcome)
    assert [line.split("'")[1] for line in told] == failed
    assert result_of(tmp_path / "a")["audit"]["failures"] == told
    assert (tmp_path / "a" / "report.html").exists()


# --- bad input --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--fail-on", "exceeded"), "`--fail-on`"),
        (("--sensitive", ","), "`--sensitive`"),
        (("--budget", "x"), "`--budget`"),
        (("--budget", "2"), "`--budget`"),
        (("--ratio", "1.5"), "`--ratio`"),
        (("--metric", "parity"), "`--metric`"),
        (("--confidence", "95"), "`--confidence`"),
        (("--simultaneous", "holm"), "`--simultaneous`"),
        (("--budget", "0.1", "--fail-on", "met"), "`--fail-on`"),
        (("--min-group-rows", "0"), "`--min-group-rows`"),
        (("--policy", "p.toml", "--budget", "0.1"), "Give `--policy` or `--budget`, not both."),
        (
            ("--policy", "p.toml", "--metric", "equalized_odds"),
            "Give `--policy` or `--metric`, not",
        ),
    ],
)
def test_bad_options_are_wrong_usage(table, options, sentence):
    assert only_error(fcfl("audit", table, *ROLES, *options), code=2).startswith(sentence)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            ("--sensitive", "sx"),
            "`--sensitive`",
        ),
        (("--prediction", "score"), "If these are scores, pass `--threshold`."),
        (("--budget", "nord=0.1"), "'nord'"),
        (("--policy", "none.toml"), "Cannot read the policy 'none.toml'"),
    ],
)
def test_what_does_not_fit_the_table_is_reported_and_nothing_is_written(
    table, tmp_path, options, sentence
):
    roles = dict(zip(ROLES[::2], ROLES[1::2], strict=True)) | dict([options])
    flat = [word for pair in roles.items() for word in pair]
    told = only_error(fcfl("audit", table, *flat, "--out", tmp_path / "a"))
    assert sentence in told
    assert not (tmp_path / "a").exists()


def test_tables_that_cannot_be_read_are_reported(tmp_path):
    assert "There is no file" in only_error(fcfl("audit", tmp_path / "no.csv", *ROLES))
    (tmp_path / "empty.csv").write_text("branch,sex,yhat,y\n")
    assert "has no rows" in only_error(fcfl("audit", tmp_path / "empty.csv", *ROLES))
    told = only_error(fcfl("audit", tmp_path, *ROLES))
    assert "must end in .csv" in told


def test_a_training_run_is_not_overwritten_by_an_audit(table, tmp_path):
    stay = written(stays(), tmp_path / "stays.csv")
    fcfl("train", stay, *COLUMNS, "--method", "fedavg", "--rounds", 5, "--out", tmp_path / "run")
    before = (tmp_path / "run" / "result.json").read_bytes()
    told = only_error(fcfl("audit", table, *ROLES, "--out", tmp_path / "run"))
    assert "holds a training run" in told
    assert (tmp_path / "run" / "result.json").read_bytes() == before
    (tmp_path / "file").write_text("")
    assert "must be a folder" in only_error(
        fcfl("audit", table, *ROLES, "--out", tmp_path / "file")
    )


# --- report -----------------------------------------------------------------------------------


def test_a_page_is_drawn_again_from_the_files(table, tmp_path):
    fcfl("audit", table, *ROLES, "--budget", 0.1, "--out", tmp_path / "a")
    page = tmp_path / "a" / "report.html"
    first = page.read_bytes()
    page.unlink()
    outcome = fcfl("report", tmp_path / "a")
    assert outcome.exit_code == 0
    assert page.read_bytes() == first
    assert outcome.stdout.splitlines()[-1] == f"Written to {page}"


def test_several_folders_are_compared_on_the_screen_and_on_one_page(table, tmp_path):
    for name, budget in (("loose", 0.9), ("tight", 0.1)):
        fcfl("audit", table, *ROLES, "--budget", budget, "--out", tmp_path / name)
    out = tmp_path / "both.html"
    outcome = fcfl("report", tmp_path / "loose", tmp_path / "tight", "--out", out)
    assert outcome.exit_code == 0, outcome.output
    lines = {line.split()[0]: line.split() for line in outcome.stdout.splitlines() if line}
    assert lines["loose"][-3:] == ["3", "0", "0"]
    assert lines["tight"][-3:] == ["1", "1", "1"]
    text = out.read_text(encoding="utf-8")
    assert "2 runs compared" in text and "--budget" in text


def test_a_report_of_nothing_is_reported(tmp_path):
    assert "it has no result.json" in only_error(fcfl("report", tmp_path))
    (tmp_path / "result.json").write_text(json.dumps({"status": "audited"}))
    assert "`method`" in only_error(fcfl("report", tmp_path))


def test_a_training_result_has_intervals_and_verdicts_everywhere(tmp_path):
    table = written(stays(600), tmp_path / "stays.csv")
    fcfl("train", table, *COLUMNS, *SHORT, "--method", "two-stage", "--budget", 0.2, "--scope",
         "both", "--out", tmp_path / "run")  # fmt: skip
    result = result_of(tmp_path / "run")
    for who in [*result["clients"].values(), result["global"]]:
        for part in (who["train"], who["test"]):
            for share in ("accuracy", "balanced_accuracy"):
                low, high = part[f"{share}_interval"]
                assert low <= part[share] <= high
            for entry in part["disparities"]:
                assert 0 <= entry["low"] <= entry["value"] <= entry["high"] <= 1
                assert entry["verdict"] in ("met", "exceeded", "undetermined")
                assert 0 < entry["smallest_verifiable"] < 1
