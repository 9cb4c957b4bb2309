"""A model card as skops writes it: Markdown with fixed sections."""

from collections.abc import Sequence
from datetime import date
from pathlib import Path

import pandas as pd
from skops.card import Card

from fcfl.cards.facts import Facts, stated
from fcfl.cards.markdown import count, md, share
from fcfl.cards.rate_tables import RateTables
from fcfl.cards.statements import (
    CLAIM_HEADINGS,
    CLIENT_HEADINGS,
    claim_table,
    client_table,
    how_tested,
    versions_of,
)
from fcfl.errors import FCFLError
from fcfl.export.sklearn_pipeline import sklearn_pipeline
from fcfl.models.model_file import MODEL
from fcfl.models.saved_model import load_model
from fcfl.report.words import standing
from fcfl.results import Result


def skops_card(
    folder: Path, result: Result, tables: RateTables | None, facts: Facts, least: int, today: date
) -> str:
    """The card of a run's model, exported as a scikit-learn pipeline."""
    if not (folder / MODEL).exists():
        raise FCFLError(f"A skops card is about a model, and {str(folder)!r} has no {MODEL}.")
    model = load_model(folder)
    model.check_decides_by_score()
    card = Card(sklearn_pipeline(model), model_diagram=False)
    about = f"{md(stated(facts, 'model_name'))} {md(standing(result))}"
    card.add(
        **{
            "Model description": about,
            "Model description/Intended uses & limitations": md(stated(facts, "intended_uses")),
            "Model Card Authors": md(stated(facts, "authors")),
            "Model Card Contact": md(stated(facts, "contact")),
            "Citation": f"Computed by {md(versions_of(result))}. Written on {today.isoformat()}.",
            "License": md(stated(facts, "license")),
            "Evaluation": how_tested(result),
        }
    )
    card.add_table(
        **{
            "Evaluation/Accuracy": _frame(CLIENT_HEADINGS, list(client_table(result, least))),
            "Evaluation/Disparities": _frame(CLAIM_HEADINGS, list(claim_table(result))),
        }
    )
    for table in () if tables is None else tables.tables:
        name = " and ".join(map(md, table.attributes))
        lines = [
            (md(line.name), count(line.rows), count(line.selected), share(line.rate))
            for line in (*table.lines, *table.small)
        ]
        found = _frame((name, "Rows", "Selected", "Rate"), lines)
        card.add_table(**{f"Evaluation/Rates by {name}": found})
    text: str = card.render()
    return text


def _frame(headings: tuple[str, ...], lines: Sequence[tuple[str, ...]]) -> pd.DataFrame:
    return pd.DataFrame(lines, columns=list(headings))
