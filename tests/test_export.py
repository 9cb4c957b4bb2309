"""Exported models predict what the run predicts, on every row there is."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from fcfl.data import Category, Number, Schema, load_adult_frames
from fcfl.export import INTERCEPT, THRESHOLD, coefficient_table, model_as
from fcfl.models.linear import Linear, SavedModel, cells_of, load_model
from fcfl.models.model import Inputs
from hospital import fcfl, only_error

ort = pytest.importorskip("onnxruntime", reason="needs the extra export, and onnxruntime")
skops = pytest.importorskip("skops.io", reason="needs the extra export")


@pytest.fixture(scope="module")
def adult(tmp_path_factory):
    """A run on Adult, and all 48,842 rows of it (45,222 of them complete)."""
    folder = tmp_path_factory.mktemp("adult") / "run"
    outcome = fcfl(
        "train", "adult-5", "--sensitive", "sex", "--method", "fedavg", "--rounds", "30",
        "--l2", "0.001", "--out", folder,
    )  # fmt: skip
    assert outcome.exit_code == 0, outcome.output
    rows = pd.concat(load_adult_frames(), ignore_index=True)
    return load_model(folder), rows, folder


def by_onnx(content, cells):
    session = ort.InferenceSession(content, providers=["CPUExecutionProvider"])
    labels, scores = session.run(None, {name: column[:, None] for name, column in cells.items()})
    return labels, scores[:, 1]


def by_skops(content, cells):
    assert set(skops.get_untrusted_types(data=content)) <= {"numpy.dtype"}
    pipeline = skops.loads(content, trusted=["numpy.dtype"])
    frame = pd.DataFrame(cells)
    return pipeline.predict(frame), pipeline.predict_proba(frame)[:, 1]


def by_table(table, cells):
    """The sum that the table describes, by hand."""
    logits = np.zeros(len(next(iter(cells.values()))))
    for line in table.itertuples():
        if line.column == INTERCEPT and line.kind == "intercept":
            logits += line.coefficient
            continue
        if line.column == THRESHOLD and line.kind == "threshold":
            continue
        column = pd.Series(cells[line.column])
        empty = column.isna() | (column == "")
        if line.kind == "number":
            logits += np.where(empty, 0, line.coefficient * (column - line.mean) / line.scale)
        else:
            logits += line.coefficient * (empty if line.kind == "missing" else column == line.level)
    return np.array(logits)


@pytest.mark.parametrize("form", ["onnx", "skops"])
def test_every_adult_row_has_the_same_label_and_probability_elsewhere(adult, form):
    model, rows, _ = adult
    assert len(rows) == 48842
    logits = model.logits(rows)
    run = by_onnx if form == "onnx" else by_skops
    labels, scores = run(model_as(model, form), cells_of(model.inputs, rows))
    assert (labels == model.answers(logits)).all()
    assert np.abs(scores - expit(logits)).max() <= 1e-12


def test_the_coefficient_table_alone_gives_every_adult_rows_logit(adult):
    model, rows, folder = adult
    outcome = fcfl("export", folder, "--to", "csv")
    assert outcome.exit_code == 0, outcome.output
    table = pd.read_csv(folder / "model.csv", keep_default_na=False, na_values={"mean": [""]})
    table["mean"], table["scale"] = pd.to_numeric(table["mean"]), pd.to_numeric(table["scale"])
    by_hand = by_table(table, cells_of(model.inputs, rows))
    assert np.abs(by_hand - model.logits(rows)).max() <= 1e-12


AWKWARD = Inputs(
    Schema(
        (
            Number("label", 1e6, 1e-3, True),
            Number("plain", 0.0, 1.0),
            Category("probabilities", ("=x", "é<script>", "unknown"), True),
            Category("one", ("only",)),
        )
    ),
    (0, 1),
)


@pytest.mark.parametrize("labels", [(0, 1), ("no", "ja, ä"), (False, True), (0.5, 1.5)])
@pytest.mark.parametrize("form", ["onnx", "skops", "csv"])
def test_empty_cells_unseen_levels_and_odd_names_go_along(form, labels):
    inputs = Inputs(AWKWARD.schema, labels)
    params = np.array([0.5, -2.0, 0.1, 1.0, 2.0, 3.0, -1.0, 0.7, -0.2])
    model = SavedModel(Linear(8), params, inputs)
    frame = pd.DataFrame(
        {
            "label": [1e6, None, 1e6 + 0.01, None],
            "plain": [0.0, 1.0, None, -1.0],
            "probabilities": ["=x", None, "unseen", " unknown "],
            "one": ["only", "only", "other", None],
        }
    )
    cells = cells_of(inputs, frame)
    if form == "csv":
        assert by_table(coefficient_table(model), cells) == pytest.approx(model.logits(frame))
        return
    run = by_onnx if form == "onnx" else by_skops
    found, scores = run(model_as(model, form), cells)
    assert found.tolist() == model.answers(model.logits(frame)).tolist()
    assert scores == pytest.approx(model.scores(frame), abs=1e-12)


@pytest.mark.parametrize("form", ["onnx", "skops"])
def test_a_logit_of_exactly_zero_is_selected_everywhere(form):
    model = SavedModel(Linear(1), np.array([1.0, 0.0]), Inputs.plain(["x"], ("no", "yes")))
    cells = {"x": np.array([0.0, -1e-300, 1e-300])}
    labels, _ = (by_onnx if form == "onnx" else by_skops)(model_as(model, form), cells)
    assert labels.tolist() == ["yes", "no", "yes"]


def test_the_command_writes_beside_the_model(adult):
    _, _, folder = adult
    outcome = fcfl("export", folder, "--to", "onnx")
    assert outcome.exit_code == 0
    assert f"Written to {folder / 'model.onnx'}" in outcome.stdout
    assert (folder / "model.onnx").read_bytes() == model_as(load_model(folder), "onnx")


def test_unsupported_models_are_rejected(adult, tmp_path):
    assert "There is no model at" in only_error(fcfl("export", tmp_path, "--to", "csv"))
    nowhere = tmp_path / "no" / "m.csv"
    outcome = fcfl("export", adult[2], "--to", "csv", "--out", nowhere)
    assert "`--out` must be a file in an existing folder" in only_error(outcome)
