"""Cards by kind: read a folder, write the text."""

from datetime import date
from importlib.util import find_spec
from pathlib import Path

from fcfl._files import read_json
from fcfl.audit.predictions import CellCounts
from fcfl.cards.annex_iv import annex_iv_card
from fcfl.cards.chai import chai_card
from fcfl.cards.facts import Facts
from fcfl.cards.ll144 import ll144_card
from fcfl.cards.rate_tables import RateTables, rate_tables, tables_of_result
from fcfl.errors import DataError, FCFLError
from fcfl.results import Result, read_run
from fcfl.results.files import CELLS, RESULT

SUFFIX = {"ll144": "md", "chai": "xml", "annex-iv": "md", "skops": "md"}


def make_card(folder: Path, kind: str, facts: Facts, least: int, today: date) -> str:
    """The card of a run or an audit; counts under ``least`` are hidden."""
    result = read_run(folder).result
    if result is None:
        raise DataError(f"There is no {RESULT} in {str(folder)!r} to make a card of.")
    if kind == "ll144":
        return ll144_card(result, _tables(folder, result, least), facts, least, today)
    try:
        tables = _tables(folder, result, least)
    except FCFLError:
        tables = None  # the other cards do without rates by group
    if kind == "chai":
        return chai_card(result, tables, facts, least, today)
    if kind == "annex-iv":
        return annex_iv_card(result, tables, facts, least, today)
    if find_spec("skops") is None:
        raise FCFLError("A skops card needs skops. Install it: pip install 'fcfl[export]'.")
    from fcfl.cards.skops_card import skops_card

    return skops_card(folder, result, tables, facts, least, today)


def _tables(folder: Path, result: Result, least: int) -> RateTables:
    path = folder / CELLS
    if path.exists():
        return rate_tables(read_json(path, CellCounts), least)
    return tables_of_result(result, least)
