"""Declared columns, and a split that depends on each row alone."""

import numpy as np
import pytest

from fcfl.data.private_rows import read_declared, split_by_content
from fcfl.errors import DataError
from helpers import TWO_ATTRIBUTES, simulated_data

WHOLE = """
label = ["no", "yes"]
[groups]
sex = ["f", "m"]
[numbers]
age = [40, 15.5]
[categories]
ward = ["icu", "er"]
"""


def declared(folder, text):
    (folder / "schema.toml").write_text(text)
    return read_declared(folder / "schema.toml")


def test_a_file_declares_labels_groups_and_columns(tmp_path):
    found = declared(tmp_path, WHOLE)
    assert found.labels == ("no", "yes") and found.levels == {"sex": ("f", "m")}
    assert found.schema.feature_names == ("age", "ward=icu", "ward=er")
    assert found.schema.columns[0].scale == 15.5


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('["no", "yes"]', '["no"]', "`label` .* two values"),
        ("[40, 15.5]", "[40, 0]", "`numbers.age` .* positive scale"),
        ('["icu", "er"]', '["icu", "icu"]', "`categories.ward` .* different texts"),
        ('["f", "m"]', '["f"]', "`groups.sex` .* different texts"),
        ("[numbers]", "[number]", "numbers"),
        ("label =", "label", "is not TOML"),
    ],
)
def test_what_does_not_fit_is_told_by_its_key(tmp_path, old, new, sentence):
    with pytest.raises(DataError, match=sentence):
        declared(tmp_path, WHOLE.replace(old, new))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"nowhere\.toml"):
        read_declared(tmp_path / "nowhere.toml")


def test_where_a_row_goes_depends_on_that_row_alone():
    data = simulated_data(0, n_rows=400, levels=TWO_ATTRIBUTES, n_features=6)
    data.X[:] += np.random.default_rng(1).standard_normal(data.X.shape)
    whole = {tuple(row) for row in split_by_content(data, 0.3, 5)[1].X}
    some = data.take(np.arange(0, 400, 3)[::-1])
    train, test = split_by_content(some, 0.3, 5)
    assert {tuple(row) for row in test.X} == whole & {tuple(row) for row in some.X}
    assert train.n_rows + test.n_rows == some.n_rows
    assert 0.2 < len(whole) / 400 < 0.4
    assert {tuple(row) for row in split_by_content(data, 0.3, 6)[1].X} != whole
    assert split_by_content(data, 0.0, 5)[1].n_rows == 0
