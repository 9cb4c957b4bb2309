"""What is said of columns and clients that are not as they should be."""

import numpy as np
import pandas as pd
import pytest

from fcfl.data import Category, Columns, Schema, federate, summarise
from hospital import fcfl, stays, written


def agreed(cells, **options):
    frame = pd.DataFrame({"age": pd.Series(cells, dtype=object)})
    return Schema.from_statistics({"a": summarise(frame, ["age"])}, **options)


AGES = [str(age) for age in range(30, 90)]
NOTE = (
    "Column 'age' is taken as text because of {}; 60 of {} cells are numbers. If it is a number, "
)


@pytest.mark.parametrize(
    ("others", "because"),
    [
        (["sixty"], "'sixty'"),
        (["<0.5", None, None], "'<0.5'"),
        (["?", "sixty", "unknown"], "'?' and 2 more"),
        (["inf"], "'inf'"),
    ],
)
def test_a_few_cells_that_make_text_of_numbers_are_noted(others, because):
    schema = agreed(AGES + others)
    (note,) = schema.notes
    n_cells = 60 + len([other for other in others if other])
    assert note.startswith(NOTE.format(because, n_cells))
    assert isinstance(schema.columns[0], Category)


def test_the_note_takes_the_place_of_the_advice_on_identifiers():
    (note,) = agreed([*AGES, "sixty"], max_levels=20).notes
    assert note.startswith("Column 'age' has 61 levels; the 20 most frequent are used")
    assert NOTE.format("'sixty'", 61) in note
    assert "identifier" not in note


@pytest.mark.parametrize(
    "cells",
    [
        AGES,  # codes, kept as text
        [*AGES[:9], "sixty"],  # too few numbers to tell
        [*AGES, *["unknown"] * 7],  # less than nine tenths
        [*["0", "1"] * 30, "unknown"],  # two codes and a third
        ["a", "b"] * 30,
    ],
)
def test_other_text_is_not_noted(cells):
    assert agreed(cells).notes == ()


def test_training_shows_the_note(tmp_path):
    frame = stays().astype({"age": object})
    frame.loc[0, "age"] = "sixty"
    table = written(frame, tmp_path / "stays.csv")
    outcome = fcfl(
        "train", table, "--client", "hospital", "--label", "died", "--sensitive", "race",
        "--l2", "0.01", "--test-size", "0", "--method", "two-stage", "--rounds", "1,1",
        "--out", tmp_path / "run",
    )  # fmt: skip
    assert "Column 'age' is taken as text because of 'sixty'; " in " ".join(outcome.output.split())


def test_several_clients_are_clients():
    frame = pd.DataFrame(
        {
            "site": np.repeat(["a", "b", "c"], 20),
            "race": ["x"] * 40 + ["x", "y"] * 10,
            "y": [0, 1] * 30,
            "x": np.arange(60.0),
        }
    )
    columns = Columns(client="site", label="y", sensitive=("race",))
    notes = federate(frame, columns, test_size=0).notes
    assert "Only one group of 'race' among the training rows of clients 'a', 'b'." in notes
