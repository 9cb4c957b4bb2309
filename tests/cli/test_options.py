"""A field of the settings is an option: name, help, choices, default and check are written once."""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, ClassVar, Literal, get_args, get_type_hints

import pytest

from fcfl._checks import check_positive
from fcfl.cli.settings import takes
from fcfl.runs.options import (
    Written,
    check_fields,
    plain_table,
    read_table,
    settings_of,
)
from hospital import fcfl, only_error, stays, written


@dataclass(frozen=True)
class Leaves:
    GROUP: ClassVar = "Leaves"

    table: str
    """Where it is served."""
    _: KW_ONLY
    kind: Literal["green", "black"] | None = None
    """Its
    name."""
    secret: int = 0


@dataclass(frozen=True)
class Tea(Leaves):
    GROUP: ClassVar = "Water"

    _: KW_ONLY
    minutes: Annotated[float | Literal["long"], Written("MIN")] = 3.0
    """How long."""
    degrees: Annotated[float | None, check_positive] = None
    """How warm."""
    with_what: tuple[str, ...] = ()
    """Beside it."""
    milk: bool = False
    """With milk."""

    def __post_init__(self) -> None:
        check_fields(self)


def test_a_field_with_a_docstring_is_an_option():
    known = settings_of(Tea)
    assert list(known) == ["table", "kind", "minutes", "degrees", "with_what", "milk"]
    assert {one.group for one in known.values()} == {"Leaves", "Water"}
    assert known["kind"].help == "Its name." and known["kind"].choices == ("green", "black")
    assert known["with_what"].key == "with-what" and known["milk"].is_flag


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("minutes", "2", 2.0),
        ("minutes", ".5", 0.5),
        ("minutes", "long", "long"),
        ("with_what", "cake, jam", ("cake", "jam")),
        ("milk", "true", True),
        ("kind", "green", "green"),
    ],
)
def test_text_is_read_by_the_type(name, text, value):
    assert settings_of(Tea)[name].read(text) == value


@pytest.mark.parametrize(("name", "text"), [("minutes", "soon"), ("milk", "yes"), ("degrees", "")])
def test_text_of_another_type_is_an_error(name, text):
    with pytest.raises(ValueError, match=f"`{name}`"):
        settings_of(Tea)[name].read(text)


@pytest.mark.parametrize(
    "wrong", [{"kind": "red"}, {"degrees": 0.0}, {"milk": 1}, {"with_what": "cake"}]
)
def test_values_are_checked(wrong):
    (name,) = wrong
    with pytest.raises(ValueError, match=f"`{name}`"):
        Tea("garden", **wrong)


def test_the_same_fields_are_keys_of_a_file():
    table = plain_table(Tea("garden", minutes=4.0))
    assert table == {"table": "garden", "minutes": 4.0, "with-what": (), "milk": False}
    given = {"table": "x", "minutes": "2", "with_what": ["a,b"]}
    assert Tea(**read_table(Tea, given, "")) == Tea("x", minutes=2.0, with_what=("a,b",))
    with pytest.raises(ValueError, match="`sugar`"):
        read_table(Tea, {"sugar": 1}, "'tea.toml'")
    with pytest.raises(ValueError, match="`table`"):
        read_table(Tea, {"milk": True}, "'tea.toml'")


def test_a_command_takes_fields_by_name_or_group():
    @takes(Tea, "Leaves", "milk")
    def serve(given):
        """Make tea."""

    options, _ = get_args(get_type_hints(serve, include_extras=True)["given"])
    assert list(options.__annotations__) == ["kind", "milk"]


def test_training_options_are_shown_in_groups():
    shown = fcfl("train", "--help").stdout
    places = [shown.index(f"─ {group} ─") for group in ("Data", "Budgets", "Training")]
    assert places == sorted(places)


def test_names_in_errors_and_notes_are_those_that_were_typed(tmp_path):
    table = written(stays().assign(code=range(240)), tmp_path / "t.csv")
    told = only_error(fcfl("train", table, "--max-levels", "many"), 2)
    assert "`--max-levels`" in told and "max_levels" not in told
    told = only_error(fcfl("train", table, "--budget", "north=2"), 2)
    assert "`--budget north=…`" in told
    assert "TABLE" in only_error(fcfl("audit", "--client", "a", "--prediction", "b"), 2)
    assert "--prediction" in only_error(fcfl("audit", table, "--client", "a"), 2)
    assert "--set" in only_error(fcfl("nvflare", "up", tmp_path, "--sites", "a=b", "--set"), 2)


@pytest.mark.parametrize("budget", ["5%", "hospital=5%", "0.1,north=5 %"])
def test_a_budget_may_be_a_percentage(tmp_path, budget):
    assert "no file" in only_error(
        fcfl(
            "train",
            tmp_path / "t.csv",
            "--budget",
            budget,
            "--client",
            "a",
            "--label",
            "b",
            "--sensitive",
            "c",
        )
    )


def test_of_an_option_given_twice_the_last_counts(tmp_path):
    told = only_error(fcfl("train", tmp_path / "t.csv", "--seed", "x", "--seed", "1"), 2)
    assert "--seed" not in told


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["compare", "adult", "--seeds", "0"], "--seeds"),
        (["demo", "--seed", "x"], "--seed"),
        (["card", "run", "--kind", "foo"], "--kind"),
        (["card", "run"], "--kind"),
        (["export"], "RUN"),
        (["train", "t.csv", "--client"], "--client"),
        (["train", "t.csv", "--bugdet", "1"], "--budget"),
        (["flower", "nwe"], '"new"'),
        (["predict", "run", "t.csv", "more"], "more"),
    ],
)
def test_what_the_library_rejects_is_one_line_that_names_it(words, named):
    assert named in only_error(fcfl(*words), 2)
