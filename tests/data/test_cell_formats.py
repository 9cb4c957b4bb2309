"""Numbers as people write them, dialects, labels by meaning, and levels that look alike."""

import time

import numpy as np
import pandas as pd
import pytest

from fcfl.data import Columns, federate, read_table
from fcfl.data.cells import look_alikes, written_numbers
from fcfl.data.lint import on_command_line, without_advice
from fcfl.data.roles import label_pair, labelled_rows
from fcfl.data.rows import dialect_of
from fcfl.errors import DataError


def read(tmp_path, content, **options):
    path = tmp_path / "t.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_table(path, **options)


# --- numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "decimal", "numbers"),
    [
        (["1", "2.5", "-3e2"], ".", [1, 2.5, -300]),
        (["12%", "5.5 %", "-1%"], ".", [0.12, 0.055, -0.01]),
        (["12,5%", "1.000%"], ",", [0.125, 10]),
        (["1,000.50", "7"], ".", [1000.5, 7]),
        (["1,234,567", "-1,000"], ".", [1234567, -1000]),
        (["1.234.567", "12"], ".", [1234567, 12]),
        (["1.000,50", "7"], ".", [1000.5, 7]),
        (["1.000", "950"], ",", [1000, 950]),
        (["1.000", "950"], ".", [1, 950]),
        (["1.5", "2,5"], ",", None),
        (["1.5", "2.25"], ",", [1.5, 2.25]),
        (["1,000", "950"], ",", [1, 950]),
        (["2,5", "3,75"], ".", [2.5, 3.75]),
        (["1 000", "2\u00a0500,5", "3\u202f000"], ",", [1000, 2500.5, 3000]),
        (["1'000.5", "12"], ".", [1000.5, 12]),
        (["1,00", "1,0000", "1,000"], ".", [1, 1, 1]),
        (["1,2,3", "1"], ".", None),
        (["12%", "5"], ".", None),
        (["inf", "1"], ".", None),
        (["2020-01-31", "1"], ".", None),
        ([], ".", None),
        (["%"], ".", None),
    ],
)
def test_words_that_are_numbers(words, decimal, numbers):
    found, _ = written_numbers(words, decimal)
    assert numbers is None if found is None else found.tolist() == pytest.approx(numbers)


@pytest.mark.parametrize(
    ("words", "decimal", "is_noted"),
    [
        (["1", "2.5"], ".", False),
        (["1,5", "2"], ",", False),
        (["1.5", "2"], ",", True),
        (["1,5", "2"], ".", True),
        (["1.000,5"], ",", True),
        (["5%"], ".", True),
    ],
)
def test_only_unusual_numbers_have_an_example(words, decimal, is_noted):
    assert (written_numbers(words, decimal)[1] is not None) == is_noted


def test_written_numbers_are_noted_with_an_example_and_an_option(tmp_path):
    content = 'p,i,w\n12%,"1,000.50",a\n?,900,"1,5"\n'
    frame = read(tmp_path, content)
    assert frame["p"].tolist()[0] == 0.12 and frame["i"].tolist() == [1000.5, 900]
    assert frame["w"].tolist() == ["a", "1,5"]
    note = frame.attrs["notes"][-1]
    assert "'12%' is 0.12" in note and "`categorical=['p', 'i']`" in note
    kept = read(tmp_path, content, text=("p", "i"))
    assert kept["i"].tolist() == ["1,000.50", "900"]


def test_text_that_a_file_declares_stays_text(tmp_path):
    words = {"code": ["01", "02"], "p": ["5%", "6%"], "q": ["1", "?"]}
    pd.DataFrame(words).to_parquet(tmp_path / "t.parquet")
    frame = read_table(tmp_path / "t.parquet")
    assert frame["code"].tolist() == ["01", "02"] and frame["p"].tolist() == [0.05, 0.06]
    assert frame["q"].tolist()[0] == 1


def test_reading_is_linear_in_the_rows(tmp_path):
    """32 times the rows, nearly all of them distinct, in less than 1.3 · 32 times the time."""
    rng = np.random.default_rng(0)
    seconds = []
    for n_rows in (15_000, 480_000):
        words = [f"{value:.6f}".replace(".", ",") for value in rng.normal(size=n_rows)]
        words[7] = "?"
        content = "x;y\n" + "".join(f"{word};{i % 2}\n" for i, word in enumerate(words))
        (tmp_path / "t.csv").write_text(content)
        spent = []
        for _ in range(3):
            began = time.process_time()
            frame = read_table(tmp_path / "t.csv")
            spent.append(time.process_time() - began)
        seconds.append(min(spent))
        assert frame["x"].isna().sum() == 1
    assert seconds[1] < 1.3 * 32 * seconds[0] and seconds[1] < 3


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "encoding", "separator", "decimal"),
    [
        (b"a,b\n1,2\n", "utf-8", ",", "."),
        (b"a;b\n1,5;2\n", "utf-8", ";", ","),
        (b"a;b\n1.000,5;2\n", "utf-8", ";", ","),
        (b"a;b\n1.5;2\n", "utf-8", ";", "."),
        (b"a\tb\n1,5\t2\n", "utf-8", "\t", ","),
        ("\ufeffa|b\n".encode(), "utf-8-sig", "|", "."),
        ("a;b\n1,5;2\n".encode("utf-16"), "utf-16", ";", ","),
    ],
)
def test_dialects(tmp_path, content, encoding, separator, decimal):
    (tmp_path / "t.csv").write_bytes(content)
    found = dialect_of(tmp_path / "t.csv")
    assert (found.encoding, found.separator, found.decimal) == (encoding, separator, decimal)


def test_spaces_around_names_are_not_part_of_them(tmp_path):
    for content in (" site , x \na,1\n", '" site "," x "\na,1\n', " site , x \n a, 1\n"):
        frame = read(tmp_path, content, text=("site",))
        assert frame.to_dict("list") == {"site": ["a"], "x": [1]}


def test_newlines_in_quotes_across_blocks_and_quotes_never_closed(tmp_path):
    n_rows = 200_000
    rows = "".join(f'{i},"line\n{i % 7}"\n' for i in range(n_rows))
    frame = read(tmp_path, "a,b\n" + rows)
    assert frame["a"].tolist() == list(range(n_rows)) and frame["b"].nunique() == 7
    with pytest.raises(DataError, match="quote in row 200,001 is never closed"):
        read(tmp_path, "a,b\n" + rows + '1,"x\n2,y\n')
    assert read(tmp_path, 'a,b\n1,5" tall\n')["b"].tolist() == ['5" tall']


# --- labels and levels ----------------------------------------------------------------------------

ROLES = Columns("site", "y", ("sex",))


@pytest.mark.parametrize(
    ("negative", "positive"),
    [
        ("no", "Yes"),
        ("denied", "approved"),
        ("rejected", "approved"),
        ("False", "True"),
        ("not approved", "approved"),
        ("non-smoker", "smoker"),
        ("unemployed", "employed"),
        ("nein", "ja"),
        ("control", "case"),
        ("9", "10"),
        ("-1", "1"),
        ("alpha", "beta"),
    ],
)
def test_the_positive_label_is_chosen_by_meaning(negative, positive):
    for values in ((negative, positive), (positive, negative)):
        assert label_pair(values, ROLES) == (negative, positive)


def table(**columns):
    rng = np.random.default_rng(0)
    sexes, labels = rng.choice(["f", "m"], 60), rng.choice(["alpha", "beta"], 60)
    plain = {"site": ["a", "b"] * 30, "sex": sexes, "x": rng.normal(size=60), "y": labels}
    return pd.DataFrame({**plain, **columns})


def test_an_arbitrary_positive_label_is_noted_with_the_option_that_chooses():
    (note,) = federate(table(), ROLES).notes
    assert "'beta'" in note and "`positive=`" in note
    note = federate(table(y=np.where(table()["y"] == "beta", "Yes", "no ")), ROLES).notes[0]
    assert "'Yes' is the positive value" in note and "`positive=`" not in note


def test_levels_that_look_alike_are_named():
    assert look_alikes(["a", "b", "a b"]) == ""
    assert look_alikes(["New  York", "new york", "b"]).startswith(
        "'New  York' and 'new york' differ"
    )
    assert look_alikes(["Zu\u0308rich", "Zürich"])
    notes = federate(
        table(site=["a", "A"] * 30, sex=["f", "F", "m"] * 20, w=["er", "ER", "icu"] * 20), ROLES
    ).notes
    for pair in ("'A' and 'a'", "'F' and 'f'", "'ER' and 'er'"):
        assert any(pair in note for note in notes), pair


def test_rows_without_a_label_are_left_out_and_counted():
    labels = pd.Series(["yes", "no"] * 30).mask(np.arange(60) < 7)
    kept = labelled_rows(table(y=labels), "y")
    assert len(kept) == 53 and "7 rows" in kept.attrs["notes"][0]
    assert federate(kept, ROLES).labels == ("no", "yes")
    with pytest.raises(DataError, match="'y' is empty in every row"):
        labelled_rows(table(y=None), "y")


def test_options_in_notes_are_python_or_command_line():
    note = "Left out: 'a b', 'c' (`keep=['a b', 'c']` uses them, `max_levels=` more)."
    assert on_command_line(note) == (
        "Left out: 'a b', 'c' (`--keep 'a b,c'` uses them, `--max-levels` more)."
    )
    assert without_advice(note) == "Left out: 'a b', 'c'."


# --- codes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_codes_are_told_from_counts_ages_and_amounts(seed):
    from fcfl.data.lint import may_be_codes

    rng = np.random.default_rng(seed)
    listed = rng.choice(np.arange(1, 1000), 300, replace=False)
    weights = rng.pareto(1.5, 300) + 0.05
    codes = {
        "diagnosis": rng.choice(listed, 20_000, p=weights / weights.sum()),
        "drg": rng.choice(listed, 20_000),
        "ward": rng.choice(listed[:40] * 100, 20_000),
        "zip": rng.integers(10_000, 99_999, 20_000),
    }
    numbers = {
        "age": rng.integers(18, 95, 20_000),
        "days": rng.geometric(0.1, 20_000),
        "visits": np.where(rng.random(20_000) < 0.001, 5_000, rng.poisson(30, 20_000)),
        "gain": np.where(rng.random(20_000) < 0.9, 0, rng.choice(listed * 37, 20_000)),
        "income": rng.lognormal(10, 1, 20_000).round(),
        "rounded": 500 * rng.poisson(80, 20_000),
        "year": rng.integers(1960, 2020, 20_000),
        "lab": rng.normal(size=20_000),
        "weight": rng.normal(80, 15, 20_000).round(1),
    }
    found = {
        name: may_be_codes(pd.Series(values, name=name))
        for name, values in {**codes, **numbers}.items()
    }
    assert [name for name, is_code in found.items() if is_code] == list(codes)
