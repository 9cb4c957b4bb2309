"""`--loss`: the model that is written, what it says of its scores, and where it is refused."""

import json

import numpy as np
import pytest

from fcfl.errors import DataError
from fcfl.models.linear import load_model
from fcfl.models.loss import LOSSES
from fcfl.results import read_result
from fcfl.runs import Experiment, run_experiment
from hospital import fcfl, only_error, stays, written

SETTLED = {"client": "hospital", "label": "died", "sensitive": ("race",), "l2": 0.01}


def run_with(folder, loss, **more):
    table = written(stays(300), folder / "stays.csv")
    settings = SETTLED | {"objective": "mean", "loss": loss, **more}
    return run_experiment(Experiment(str(table), **settings), folder / loss)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_loss_is_the_one_minimised_written_and_reported(tmp_path, loss):
    finished = run_with(tmp_path, loss, test_size=0.0)
    model, frame = load_model(finished.folder), stays(300)
    assert model.model.loss == LOSSES[loss]()
    logits = model.inputs.schema.transform(frame) @ model.params[:-1] + model.params[-1]
    losses = model.model.loss.each(logits, (frame["died"] == "yes").to_numpy(float))
    for hospital, rows in frame.groupby("hospital"):
        told = finished.result.clients[hospital].train.loss
        assert told == pytest.approx(losses[rows.index].mean(), rel=1e-9)
    np.testing.assert_allclose(model.scores(frame), model.model.loss.scores(logits))
    assert ((model.answers(logits) == "yes") == (logits >= 0)).all()
    result = read_result(finished.folder / "result.json")
    assert result.settings["loss"] == loss
    said = " ".join(result.notes)
    assert ("width of 0.1" in said and "not probabilities" in said) == (loss == "hinge")


@pytest.mark.parametrize("loss", ["hinge", {"name": "log"}, {"name": "hinge", "width": -1}, {}])
def test_a_model_file_with_a_strange_loss_is_rejected(tmp_path, loss):
    folder = run_with(tmp_path, "hinge").folder
    content = json.loads((folder / "model.json").read_text()) | {"loss": loss}
    (folder / "model.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match="is not a whole model written by fcfl"):
        load_model(folder)


def test_the_command_line_takes_it_and_rejects_others(tmp_path):
    table = written(stays(200), tmp_path / "stays.csv")
    common = ("train", table, "--client", "hospital", "--label", "died", "--sensitive", "race")
    out = ("--l2", 0.01, "--objective", "mean", "--out", tmp_path / "run")
    assert fcfl(*common, "--loss", "hinge", *out).exit_code == 0
    assert load_model(tmp_path / "run").model.loss.name == "hinge"
    assert "`--loss`" in only_error(fcfl(*common, "--loss", "log", *out), code=2)
