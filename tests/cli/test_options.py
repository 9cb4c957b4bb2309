"""A field of the settings is an option: its name, help, default, text and check are said once."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from fcfl._checks import check_positive
from fcfl.cli.options import Options, command, was_given
from fcfl.runs.option_fields import (
    FLAG,
    Kind,
    check_fields,
    check_table_keys,
    number,
    option,
    plain_table,
    read_table,
    words,
)
from hospital import fcfl


@dataclass(frozen=True)
class Tea:
    table: str = option("Where it is served.", argument=True)
    kind: str | None = option("Its name.", default=None, group="Leaves")
    minutes: float = option(
        "How long.", Kind("", number, check_positive), default=3.0, group="Water"
    )
    with_what: tuple[str, ...] = option("Beside it.", Kind("", words), default=())
    milk: bool = option("With milk.", FLAG, default=False)

    def __post_init__(self) -> None:
        check_fields(self)


served = []
app = typer.Typer()


@command(app)
def tea(
    settings: Annotated[Tea | None, Options(Tea, without_table="Or nowhere.")],
    cups: Annotated[int, typer.Option(help="How many.")] = 1,
) -> None:
    """Make tea."""
    served.append((settings, cups, was_given("minutes")))


@command(app)
def wait(given: Annotated[Mapping[str, object], Options(Tea, "Water", as_given=True)]) -> None:
    """Wait."""
    served.append(given)


def run(*arguments):
    served.clear()
    return CliRunner().invoke(app, arguments)


def test_options_become_settings():
    assert run("tea", "garden").exit_code == 0
    assert served == [(Tea("garden"), 1, False)]
    run("tea", "garden", "--minutes", "5", "--with-what", "cake, jam", "--milk", "--cups", "2")
    assert served == [(Tea("garden", None, 5.0, ("cake", "jam"), True), 2, True)]


def test_without_the_table_there_are_no_settings():
    run("tea")
    assert served == [(None, 1, False)]


def test_what_is_given_can_be_told_from_defaults():
    run("wait")
    assert served == [{}]
    run("wait", "--minutes", "3")
    assert served == [{"minutes": 3.0}]
    assert run("wait", "--milk").exit_code == 2


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("soon", "`minutes` must be a number, got 'soon'."), ("0", "`minutes` must be a positive")],
)
def test_a_bad_value_is_wrong_usage_told_in_one_line(text, sentence):
    outcome = run("tea", "garden", "--minutes", text)
    assert outcome.exit_code == 2 and outcome.stderr.startswith(f"error: {sentence}")
    assert len(outcome.stderr.splitlines()) == 1 and not served


def test_help_has_groups_defaults_and_the_sentence_about_the_table():
    shown = run("tea", "--help").output
    for text in ("Leaves", "Water", "default: 3.0", "Where it is served. Or nowhere.", "--debug"):
        assert text in shown


def test_the_same_fields_are_keys_of_a_file():
    table = plain_table(Tea("garden", minutes=4.0))
    assert table == {"table": "garden", "minutes": 4.0, "with-what": (), "milk": False}
    assert Tea(**read_table(Tea, {"table": "x", "minutes": "2", "with_what": ["a,b"]})) == Tea(
        "x", None, 2.0, ("a,b",)
    )
    with pytest.raises(ValueError, match=r"Unknown key `sugar` in 'tea\.toml'\. Known: 'table', "):
        check_table_keys(Tea, {"sugar": 1}, "'tea.toml'")
    with pytest.raises(ValueError, match=r"The key `table` is missing in 'tea\.toml'\."):
        check_table_keys(Tea, {"milk": True}, "'tea.toml'")


def test_training_options_are_shown_in_groups():
    shown = fcfl("train", "--help").stdout
    places = [shown.index(f"─ {group} ─") for group in ("Data", "Budgets", "Training")]
    assert places == sorted(places)
