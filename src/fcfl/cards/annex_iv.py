"""A section for the technical documentation under the EU AI Act, Annex IV point 2(g)."""

from datetime import date

from fcfl.cards.facts import Facts, stated
from fcfl.cards.ll144 import NOT_ADVICE
from fcfl.cards.markdown import count, md, md_table, share
from fcfl.cards.rate_tables import RateTables
from fcfl.cards.statements import (
    CLAIM_HEADINGS,
    CLIENT_HEADINGS,
    claim_table,
    client_table,
    how_tested,
    versions_of,
)
from fcfl.report.words import standing
from fcfl.results import Result


def annex_iv_card(
    result: Result, tables: RateTables | None, facts: Facts, least: int, today: date
) -> str:
    """Validation and testing: procedures, data, metrics, potentially discriminatory impacts."""
    people = [name.strip() for name in facts.get("responsible_persons", "").split(",")]
    signing = [(md(name) or "Name: ________", "", "") for name in people]
    data = "" if result.data is None else f" Table {md(result.data.table)}."
    sections = [
        f"# Validation and testing (Annex IV, 2(g)): {md(stated(facts, 'system_name'))}",
        NOT_ADVICE,
        f"Provider: {md(stated(facts, 'provider'))} Tests: {md(stated(facts, 'testing_dates'))} "
        f"Section written on {today.isoformat()}.",
        f"## Procedures and data\n\n{how_tested(result)}{data} "
        f"Characteristics: {md(stated(facts, 'test_data'))}",
        "## Accuracy and robustness\n\n"
        + md_table(CLIENT_HEADINGS, client_table(result, least))
        + "\n\nEach client is a data holder of its own: how accuracy differs between them says how "
        "robust it is to where rows come from.",
        f"## Potentially discriminatory impacts\n\n{md(standing(result))}\n\n"
        + md_table(CLAIM_HEADINGS, claim_table(result)),
    ]
    if tables is not None:
        sections += [_groups(tables, least)]
    sections += [
        f"## Versions\n\n{md(versions_of(result))}",
        "## Signed\n\n" + md_table(("Responsible person", "Date", "Signature"), signing),
    ]
    return "\n\n".join(sections) + "\n"


def _groups(tables: RateTables, least: int) -> str:
    parts = ["### Rates by group, all clients together"]
    for table in tables.tables:
        lines = [
            (md(line.name), count(line.rows), count(line.selected), share(line.rate))
            for line in (*table.lines, *table.small)
        ]
        heading = " and ".join(md(name) for name in table.attributes)
        parts.append(md_table((heading, "Rows", "Selected", "Rate"), lines))
    if least > 1:
        parts.append(
            f"Counts from 1 to {least - 1}, and those that would give them away, are hidden."
        )
    return "\n\n".join(parts)
