"""Write cards: documents about a run or an audit, rendered from a template for each kind.

Every expression in a template is escaped: Markdown and HTML syntax in Markdown templates, markup
and control characters in XML templates.
"""

import tomllib
from collections.abc import Mapping
from datetime import date
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, TypeAlias

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fcfl._checks import did_you_mean
from fcfl._files import read_json
from fcfl.audit.predictions import CellCounts
from fcfl.errors import DataError, FCFLError
from fcfl.models.linear import load_model
from fcfl.models.model import MODEL
from fcfl.report import words
from fcfl.report.words import claims_of, rows_called
from fcfl.results import CELLS, RESULT, Result, read_run

from .rate_tables import FOUR_FIFTHS, RateTables, Sum, hidden_sums, rate_tables, tables_of_result

Kind: TypeAlias = Literal["ll144", "chai", "annex-iv", "skops"]
SUFFIX: dict[Kind, str] = {"ll144": "md", "chai": "xml", "annex-iv": "md", "skops": "md"}
NOT_STATED = "Not stated."
Facts: TypeAlias = Mapping[str, str]
_KEPT = {
    "held-out rows": "rows held out of training, chosen at random within each client",
    "training rows": "the training rows, because no rows were held out",
    "audited rows": "the rows of the audited table",
}


def make_card(folder: Path, kind: Kind, facts: Facts, min_cell: int, today: date) -> str:
    """Return the card of a run or an audit; counts from 1 to ``min_cell - 1`` are hidden."""
    result = read_run(folder).result
    if result is None:
        raise DataError(f"There is no {RESULT} in {str(folder)!r} to make a card of.")
    template = f"{kind}.{SUFFIX[kind]}"
    known = result.versions or {"fcfl": result.fcfl_version}
    versions = ", ".join(f"{name} {version}" for name, version in known.items())
    content = {
        "result": result,
        "part": result.judged_part,
        "everyone": [*result.clients.items(), ("", result.overall)],
        "claims": claims_of(result),
        "client_rows": client_rows(result, min_cell),
        "tables": _tables(folder, result, min_cell, is_required=kind == "ll144"),
        "columns": _columns(folder) if kind == "skops" else (),
        "facts": facts,
        "fact": lambda key: facts.get(key, NOT_STATED),
        "min_cell": min_cell,
        "today": today.isoformat(),
        "standing": words.standing(result),
        "how_tested": how_tested(result),
        "versions": f"{versions}; rows SHA-256 {result.data.sha256}" if result.data else versions,
    }
    environment = _environment(is_xml=SUFFIX[kind] == "xml")
    return environment.get_template(template).render(content).strip() + "\n"


def how_tested(result: Result) -> str:
    """Describe the tested rows, the intervals and the verdicts."""
    statement = "" if result.audit is None else f" {result.audit.statement}"
    selected = words.threshold_sentence(result) or "Decisions are taken from the audited table."
    return (
        f"Tested on {_KEPT[rows_called(result)]}, at {len(result.clients)} clients. "
        f"{selected}{statement} A budget is met if the whole interval is within it, exceeded if "
        "the whole interval is beyond it, and undetermined if the interval contains it."
    )


def client_rows(result: Result, min_cell: int) -> dict[str, int | None]:
    """Return the tested rows of each client, and of all as the entry ""; None if hidden."""
    part = result.judged_part
    sizes = {name: client.rows.of(part) for name, client in result.clients.items()}
    sums = [Sum(name, (i,), size) for i, (name, size) in enumerate(sizes.items())]
    sums.append(Sum("", tuple(range(len(sizes))), sum(sizes.values()), is_total=True))
    hidden = hidden_sums(sums, min_cell) if min_cell > 1 else set()
    return {str(one.name): None if one.name in hidden else one.value for one in sums}


def _tables(folder: Path, result: Result, min_cell: int, *, is_required: bool) -> RateTables | None:
    """Return the rate tables of the cells or the result; None if there are no selection rates."""
    if (folder / CELLS).exists():
        return rate_tables(read_json(folder / CELLS, CellCounts), min_cell)
    try:
        return tables_of_result(result, min_cell)
    except FCFLError:
        if is_required:
            raise
        return None


def _columns(folder: Path) -> list[str]:
    """Return the input columns of the model; raise if `fcfl export` cannot write the model."""
    if not (folder / MODEL).exists():
        raise FCFLError(f"A skops card describes a model, but {str(folder)!r} has no {MODEL}.")
    model = load_model(folder)
    model.check_decides_by_score()
    return [column.name for column in model.inputs.schema.columns]


# --- facts: a TOML file with entries that are not in a result -------------------------------------


def facts_template(kind: str) -> str:
    """Return the TOML file for a user to fill in, with a comment on each field."""
    return files("fcfl.cards").joinpath(f"templates/{kind}.toml").read_text(encoding="utf-8")


def fields_of(kind: str) -> dict[str, Any]:
    """Return the fields of one kind of card, with empty values."""
    return tomllib.loads(facts_template(kind))


def read_facts(kind: str, path: Path | None) -> Facts:
    """Read facts from a TOML file; raise `DataError` for keys unknown to the card."""
    if path is None:
        return {}
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"There is no file {str(path)!r}. Write one with `--template`.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{str(path)!r} is not TOML: {error}.") from None
    fields = fields_of(kind)
    for key, value in content.items():
        if key not in fields:
            advice = did_you_mean(key, fields)
            raise DataError(f"{str(path)!r} has the unknown key {key!r}. {advice}")
        if not isinstance(value, str):
            raise DataError(f"`{key}` in {str(path)!r} must be text in quotes, got {value!r}.")
    return {key: value.strip() for key, value in content.items() if value.strip()}


# --- escaping -------------------------------------------------------------------------------------


class Raw(str):
    """Markdown text of a template, which is not escaped."""

    __slots__ = ()


def _environment(*, is_xml: bool) -> Environment:
    environment = Environment(
        loader=PackageLoader("fcfl.cards"),
        autoescape=is_xml,
        finalize=_printable if is_xml else markdown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "raw": Raw,
        "count": lambda value: "hidden" if value is None else f"{value:,}",
        "rate": lambda value: "–" if value is None else f"{value:.3f}",
        "interval": words.interval,
    }
    environment.globals |= {"words": words, "FOUR_FIFTHS": FOUR_FIFTHS}
    return environment


def markdown(value: Any) -> str:
    """Escape a value so that it is not interpreted as Markdown or HTML."""
    if isinstance(value, Raw):
        return value
    escaped = words.plain(str(value)).replace("\\", "\\\\")
    for character in "|<>*_`[]#":
        escaped = escaped.replace(character, f"\\{character}")
    return escaped


def _printable(value: Any) -> Any:
    """Remove control characters, which XML does not allow."""
    return value if isinstance(value, Markup) else words.plain(str(value))
