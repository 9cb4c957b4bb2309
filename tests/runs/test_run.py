"""One run against hand computation: everything a result says, from model.json and the table."""

import json
import math

import numpy as np
import pandas as pd
import pytest

from fcfl.data.rows import Dialect
from fcfl.errors import CheckpointError, DataError, FCFLError
from fcfl.federation.checkpoint import checkpoint_path, load_checkpoint, previous_path
from fcfl.methods.two_stage import TwoStageState
from fcfl.models.linear import load_model
from fcfl.runs import Experiment, run_experiment
from fcfl.runs.predicting import Predictions, predict_file
from hospital import result_of, stays, weights_of, written

TABLE = {"client": "hospital", "label": "died", "sensitive": ("race",), "min_group_rows": 1}
RESULT_KEYS = {
    "method", "status", "message", "rounds", "evaluations", "bytes_from_clients",
    "seconds", "kkt_residual", "l2", "objective", "selection", "seed", "fcfl_version",
    "worst_client", "clients", "global",
}  # fmt: skip
PART_KEYS = {
    "loss", "accuracy", "accuracy_interval", "balanced_accuracy", "balanced_accuracy_interval",
    "disparities", "selected", "positives",
}  # fmt: skip
DISPARITY_KEYS = {
    "metric", "attribute", "rule", "value", "smooth", "low", "high", "budget", "verdict", "price",
    "smallest_verifiable",
}  # fmt: skip
STATUSES = {"converged", "stopped", "infeasible", "failed"}


def run_on(tmp_path, frame=None, suffix=".csv", told=None, **options):
    """Train a short while and return the finished run."""
    frame = stays() if frame is None else frame
    table = written(frame, tmp_path / f"stays{suffix}")
    settings = {**TABLE, "method": "two-stage", "rounds": (20, 20), **options}
    on_message = (lambda sentence: None) if told is None else told.append
    return run_experiment(
        Experiment(str(table), **settings), tmp_path / "run", on_message=on_message
    )


def logits_by_hand(folder, frame):
    """The model's logit of every row, from the text of model.json alone."""
    model = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    weights = model["weights"]

    def logit(row):
        total = weights["(intercept)"]
        for column in model["schema"]["columns"]:
            name, cell = column["name"], row[column["name"]]
            if pd.isna(cell):
                total += weights.get(f"{name} missing", 0.0)
            elif column["kind"] == "number":
                total += weights[name] * (cell - column["mean"]) / column["scale"]
            else:
                total += weights.get(f"{name}={cell}", 0.0)
        return total

    return np.array([logit(row) for _, row in frame.iterrows()])


def facts_by_hand(logits, died, race):
    """Loss, accuracies and both demographic parity differences."""
    hard, smooth = logits >= 0, 1 / (1 + np.exp(-10 * logits))
    right = hard == died
    groups = [race == name for name in sorted(set(race))]
    return {
        "loss": float(np.mean(np.log1p(np.exp(logits)) - died * logits)),
        "accuracy": float(right.mean()),
        "balanced_accuracy": float((right[died].mean() + right[~died].mean()) / 2),
        "value": abs(float(hard[groups[0]].mean() - hard[groups[1]].mean())),
        "smooth": abs(float(smooth[groups[0]].mean() - smooth[groups[1]].mean())),
        "groups": [(int(group.sum()), int(hard[group].sum())) for group in groups],
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run without test rows, so that the whole table is training rows."""
    return run_on(tmp_path_factory.mktemp("whole"), test_size=0.0, budget=0.05)


def test_the_numbers_of_a_result_are_those_of_the_model_on_the_table(whole):
    frame, result = stays(), result_of(whole.folder)
    logits, died = logits_by_hand(whole.folder, frame), (frame["died"] == "yes").to_numpy()
    hospital, race = frame["hospital"].to_numpy(), frame["race"].to_numpy()
    parts = {name: hospital == name for name in ("north", "south", "west")}
    told = {name: client["train"] for name, client in result["clients"].items()}
    parts["everyone"], told["everyone"] = hospital != "", result["global"]["train"]
    assert parts.keys() == told.keys()
    for name, rows in parts.items():
        expected = facts_by_hand(logits[rows], died[rows], race[rows])
        (entry,) = told[name]["disparities"]
        for key in ("loss", "accuracy", "balanced_accuracy"):
            assert told[name][key] == pytest.approx(expected[key], rel=1e-9)
        for key in ("value", "smooth"):
            assert entry[key] == pytest.approx(expected[key], abs=1e-9)
        assert [(group["rows"], group["selected"]) for group in entry["groups"]] == expected[
            "groups"
        ]
        assert entry["budget"] == (None if name == "everyone" else 0.05)
    worst = max(result["clients"], key=lambda name: told[name]["loss"])
    assert result["worst_client"]["name"] == worst
    assert result["worst_client"]["train_loss"] == told[worst]["loss"]


def test_a_result_without_test_rows_states_nothing_about_them(whole):
    result = result_of(whole.folder)
    assert result["worst_client"]["test_accuracy"] is None
    for client in result["clients"].values():
        assert client["rows"]["test"] == 0
        assert client["test"]["accuracy"] is None
        assert client["test"]["disparities"][0]["value"] is None


def test_a_result_has_every_key_of_the_contract(tmp_path):
    run_on(tmp_path, budget=0.05)
    result = result_of(tmp_path / "run")
    assert result.keys() >= RESULT_KEYS
    assert result["status"] in STATUSES
    assert result["rounds"].keys() == {"stage1", "stage2"}
    assert result["evaluations"].keys() == {"value", "gradient", "curvature"}
    assert result["worst_client"].keys() == {"name", "train_loss", "test_accuracy"}
    assert result["clients"].keys() == {"north", "south", "west"}
    parts = [result["global"][part] for part in ("train", "test")]
    for client in result["clients"].values():
        assert client.keys() == {"rows", "train", "test"}
        assert sum(client["rows"].values()) == 80
        parts += [client["train"], client["test"]]
    for part in parts:
        assert part.keys() - {"scores"} == PART_KEYS  # scores are told of all clients together
        for entry in part["disparities"]:
            assert entry.keys() >= DISPARITY_KEYS
            assert 0 <= entry["value"] <= 1


def test_the_history_has_one_line_for_each_round(whole):
    result = result_of(whole.folder)
    lines = (whole.folder / "history.jsonl").read_text(encoding="utf-8").splitlines()
    rounds = [json.loads(line) for line in lines]
    assert [line["round"] for line in rounds] == list(range(1, sum(result["rounds"].values()) + 1))
    assert [line["stage"] for line in rounds] == sorted(line["stage"] for line in rounds)
    assert result["evaluations"]["gradient"] == len(rounds)


def test_a_run_is_repeated_bit_for_bit(whole, tmp_path):
    run_on(tmp_path, test_size=0.0, budget=0.05)
    assert weights_of(tmp_path / "run") == weights_of(whole.folder)


def test_csv_and_parquet_give_the_same_model(whole, tmp_path):
    run_on(tmp_path, suffix=".parquet", test_size=0.0, budget=0.05)
    assert weights_of(tmp_path / "run") == weights_of(whole.folder)


# --- the model file -------------------------------------------------------------------------------


def test_a_model_survives_its_file(whole, tmp_path):
    model = load_model(whole.folder)
    model.model.write(model.params, tmp_path, model.inputs)
    assert (tmp_path / "model.json").read_bytes() == (whole.folder / "model.json").read_bytes()
    again = load_model(tmp_path / "model.json")
    assert again.params.tobytes() == model.params.tobytes()
    assert again.inputs == model.inputs
    assert (again.inputs.labels, again.inputs.label_column) == (("no", "yes"), "died")


def test_scores_are_the_probabilities_training_reports(whole):
    frame = stays()
    model = load_model(whole.folder)
    scores = model.scores(frame)
    assert scores == pytest.approx(1 / (1 + np.exp(-logits_by_hand(whole.folder, frame))))
    died = (frame["died"] == "yes").to_numpy()
    entropy = -np.where(died, np.log(scores), np.log1p(-scores))
    for name, client in result_of(whole.folder)["clients"].items():
        here = (frame["hospital"] == name).to_numpy()
        assert entropy[here].mean() == pytest.approx(client["train"]["loss"], rel=1e-9)
    answers = model.answers(model.logits(frame))
    assert list(answers == "yes") == list(scores >= 0.5)


def test_features_with_the_same_name_keep_their_own_weights(tmp_path):
    frame = stays().rename(columns={"age": "ward=x", "sex": "age missing"})
    frame["ward"] = frame["ward"].replace("icu", "x=y")
    frame["ward=x"] = np.where(frame["ward=x"] > 60, "y", "z")
    frame["(intercept)"] = np.arange(len(frame)) % 7
    finished = run_on(tmp_path, frame)
    model = load_model(finished.folder)
    assert len(set(model.inputs.schema.feature_names)) < model.inputs.schema.n_features
    assert (
        len(weights_of(finished.folder)) == model.params.size == model.inputs.schema.n_features + 1
    )


def test_level_01_is_predicted_as_trained_where_no_text_is_near(tmp_path):
    frame = stays()
    finished = run_on(tmp_path, frame)
    table = written(frame[frame["ward"] == "07"], tmp_path / "ward-07.csv")
    expected = load_model(finished.folder).scores(frame[frame["ward"] == "07"])
    assert predict_file(finished.folder, table).table["score"].tolist() == expected.tolist()


@pytest.mark.parametrize("words", [("true", "false"), ("TRUE", "FALSE")])
def test_truth_values_are_predicted_as_trained(tmp_path, words):
    frame = stays()
    frame["smokes"] = np.where(np.arange(len(frame)) % 3 == 0, *words)
    finished = run_on(tmp_path, frame, test_size=0.0)
    weights = weights_of(finished.folder)
    assert {"smokes=True", "smokes=False"} <= weights.keys()
    smokers = frame[frame["smokes"] == words[0]]
    table = written(smokers, tmp_path / "smokers.csv")
    scores = predict_file(finished.folder, table).table["score"]
    loaded = load_model(finished.folder)
    assert scores.tolist() == loaded.scores(smokers.assign(smokes=True)).tolist()


def test_predictions_that_cannot_be_written_leave_nothing(tmp_path):
    found = Predictions(stays(), (), 0, "", Dialect())
    with pytest.raises(OSError, match=r"."):
        found.write(tmp_path / "nowhere" / "p.csv")
    (tmp_path / "p.csv").mkdir()
    with pytest.raises(OSError, match=r"."):
        found.write(tmp_path / "p.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["p.csv"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda text: text[: len(text) // 2], "is not a whole model written by fcfl"),
        (lambda text: "[]", "is not a whole model written by fcfl"),
        (lambda text: text.replace('"label":', '"lbl":'), "is not a whole model.*no 'label'"),
        (lambda text: text.replace("fcfl-linear-1", "x"), "holds a model of unknown kind 'x'"),
        (lambda text: text.replace('"age":', '"age":NaN,"age2":'), "weights do not fit its schema"),
        (lambda text: text.replace('"weights":', '"weights":5,"w":'), "is not a whole model"),
    ],
)
def test_a_torn_model_is_reported(whole, tmp_path, change, sentence):
    text = (whole.folder / "model.json").read_text(encoding="utf-8")
    (tmp_path / "model.json").write_text(change(text), encoding="utf-8")
    with pytest.raises(DataError, match=sentence):
        load_model(tmp_path)


# --- rules ----------------------------------------------------------------------------------------


def violations(result, key="smooth"):
    """Every violation on training rows that the result tells of, by smooth rates or decisions."""
    found = []
    for part in [*result["clients"].values(), result["global"]]:
        for entry in part["train"]["disparities"]:
            if entry["budget"] is not None and entry[key] is not None:
                gap = entry[key] - entry["budget"]
                found.append(-gap if entry["rule"] == "ratio" else gap)
    return found


@pytest.mark.parametrize(
    ("options", "n_budgets"),
    [
        ({"budget": {"north": 0.01, "west": 0.5}}, 2),
        ({"budget": {"*": 0.05, "west": 0.01}}, 3),
        ({"ratio": 0.8, "budget": 0.05}, 6),
        ({"ratio": 0.9, "scope": "both", "budget": 0.1}, 8),
        ({"budget": 0.02, "sensitive": ("race", "sex")}, 6),
        ({"budget": 0.05, "metric": "equalized_odds"}, 3),
        ({"budget": 0.05, "published": True}, 3),
        ({"budget": 0.01, "method": "fedavg", "rounds": (60,)}, 3),
    ],
    ids=str,
)
def test_budgets_are_met_exactly_when_decisions_keep_them(tmp_path, options, n_budgets):
    finished = run_on(tmp_path, **options)
    found = violations(result_of(finished.folder), "value")
    assert len(found) == n_budgets
    assert finished.budgets_met == (max(found) <= 1e-9)
    feasible_from_the_start = not options.keys() & {"start", "published", "method"}
    smooth = violations(result_of(finished.folder))
    assert max(smooth) <= 1e-6 or not feasible_from_the_start


def test_met_are_decisions_where_smooth_rates_state_otherwise(tmp_path):
    """Of one table: two-stage leaves smooth rates inside and decisions not, sqp goes on."""
    frame = stays(n_rows=600, seed=1)
    smooth_only = run_on(tmp_path, frame, budget=0.02)
    result = result_of(smooth_only.folder)
    assert max(violations(result)) <= 1e-6 < max(violations(result, "value"))
    assert not smooth_only.budgets_met
    (tmp_path / "sqp").mkdir()
    plain = {"rounds": None, "confidence": 0, "starts": 1, "l2": 0.01, "objective": "max"}
    held = run_on(tmp_path / "sqp", frame, budget=0.02, method="sqp", **plain)
    result = result_of(held.folder)
    assert max(violations(result, "value")) <= 1e-9 and max(violations(result)) > 1e-4
    assert held.budgets_met


def test_three_groups_are_compared_pairwise(tmp_path):
    finished = run_on(tmp_path, stays(races=("asian", "black", "white")), budget=0.02)
    assert max(violations(result_of(finished.folder))) <= 1e-6
    for client in result_of(finished.folder)["clients"].values():
        (entry,) = client["train"]["disparities"]
        rates = [group["selected"] / group["rows"] for group in entry["groups"]]
        assert len(rates) == 3
        assert entry["value"] == pytest.approx(max(rates) - min(rates))


def test_relative_budgets_are_shares_of_the_measured_disparities(tmp_path):
    told = []
    finished = run_on(
        tmp_path, told=told, relative_budget=0.8, sensitive=("race", "sex"), rounds=(60, 20)
    )
    (tmp_path / "plain").mkdir()
    plain = run_on(tmp_path / "plain", sensitive=("race", "sex"), rounds=(60, 20))
    before, after = result_of(plain.folder)["clients"], result_of(finished.folder)["clients"]
    for name in before:
        entries = [result[name]["train"]["disparities"] for result in (before, after)]
        for unconstrained, entry in zip(*entries, strict=True):
            assert unconstrained["attribute"] == entry["attribute"]
            assert entry["budget"] == pytest.approx(0.8 * unconstrained["value"], rel=1e-12)
            assert entry["smooth"] <= entry["budget"] + 1e-6
    assert any("Budgets for sex are 0.8 of the disparity" in note for note in told)


def test_the_synthetic_problem_reaches_its_constrained_optimum(tmp_path):
    experiment = Experiment("synthetic", budget=0.5, method="two-stage", rounds=(400, 10))
    finished = run_experiment(experiment, tmp_path / "run")
    train = result_of(finished.folder)["clients"]["synthetic"]["train"]
    optimum = 1 - math.exp(-((2 - math.sqrt(-math.log1p(-0.5))) ** 2))
    assert finished.budgets_met
    assert train["loss"] == pytest.approx(optimum, abs=1e-3)
    assert violations(result_of(finished.folder)) == [train["disparities"][0]["smooth"] - 0.5]
    params = (finished.folder / "params.txt").read_text().split()
    assert len(params) == 20


# --- the folder -----------------------------------------------------------------------------------


def test_bad_input_leaves_the_folder_as_it_was(tmp_path):
    with pytest.raises(DataError, match="`client` must be a column"):
        run_on(tmp_path, client="nowhere")
    assert not (tmp_path / "run").exists()
    run_on(tmp_path)
    before = {path: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    with pytest.raises(FCFLError, match="holds a run with other settings"):
        run_on(tmp_path, budget=0.1)
    assert {path: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before


def test_a_new_run_forgets_the_checkpoints_of_the_old_one(tmp_path):
    first = run_on(tmp_path, rounds=(5, 5))
    assert checkpoint_path(first.folder).exists()
    previous_path(first.folder).write_bytes(checkpoint_path(first.folder).read_bytes())
    experiment = Experiment(str(tmp_path / "stays.csv"), **TABLE, method="two-stage", rounds=(6, 6))

    def stop(info, share):
        assert not previous_path(first.folder).exists()
        assert load_checkpoint(first.folder, TwoStageState).progress.state.rounds == (1, 0)
        raise KeyboardInterrupt

    with pytest.raises(FCFLError, match="Stopped after round 1"):
        run_experiment(experiment, first.folder, overwrite=True, on_round=stop)
    assert not (first.folder / "result.json").exists()
    resumed = run_experiment(experiment, first.folder, resume=True)
    assert sum(resumed.result.rounds.values()) > 10


def test_another_method_with_its_rounds_is_not_resumed(tmp_path):
    run_on(tmp_path, rounds=(5, 5))
    other = Experiment(str(tmp_path / "stays.csv"), **TABLE, method="fedavg", rounds=(5,))
    with pytest.raises(FCFLError, match="method is 'two-stage', got 'fedavg'"):
        run_experiment(other, tmp_path / "run", resume=True)


def test_resuming_nothing_is_rejected(tmp_path):
    with pytest.raises(CheckpointError, match="There is no run to resume in"):
        run_experiment(Experiment("synthetic"), tmp_path / "run", resume=True)
