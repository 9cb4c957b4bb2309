"""The tables of a bias audit under New York City's Local Law 144 (6 RCNY 5-301, 5-302)."""

from collections.abc import Iterator
from datetime import date

from fcfl.cards.facts import Facts, stated
from fcfl.cards.markdown import count, md, md_table, share
from fcfl.cards.rate_tables import SMALL_SHARE, RateLine, RateTable, RateTables
from fcfl.report.words import interval
from fcfl.results import Result

FOUR_FIFTHS = 0.8  # the customary flag of the US agency EEOC
NOT_ADVICE = (
    "This card is computed from counts. It is not legal advice, and not an audit by itself."
)
_HEADINGS = (
    "Category",
    "Applicants",
    "Selected",
    "Selection rate",
    "Impact ratio",
    "95 % interval",
)


def ll144_card(result: Result, tables: RateTables, facts: Facts, least: int, today: date) -> str:
    """The card as Markdown."""
    sections = [
        f"# Bias audit: {md(stated(facts, 'tool_name'))}",
        NOT_ADVICE,
        md_table(("", ""), _about(facts, today)),
        _source(result, facts),
        *(_table(table, facts) for table in tables.tables),
        _reading(tables, least),
    ]
    return "\n\n".join(sections) + "\n"


def _about(facts: Facts, today: date) -> Iterator[tuple[str, str]]:
    for key, what in (
        ("audit_date", "Date of the bias audit"),
        ("auditor", "Independent auditor"),
        ("distribution_date", "Distribution date of the tool"),
        ("data_kind", "Kind of data"),
    ):
        yield what, md(stated(facts, key))
    yield "Card written on", today.isoformat()


def _source(result: Result, facts: Facts) -> str:
    source = f"## Data\n\nSource: {md(stated(facts, 'data_source'))}"
    if result.data is not None:
        source += f" File {md(result.data.table)}, SHA-256 {result.data.sha256}."
    if len(result.clients) > 1:
        names = ", ".join(md(name) for name in result.clients)
        source += (
            f"\n\nData of {len(result.clients)} employers or branches, each of which contributed "
            f"its own: {names}."
        )
    return source


def _table(table: RateTable, facts: Facts) -> str:
    title = " and ".join(md(name) for name in table.attributes)
    kind = "Intersection of " if len(table.attributes) > 1 else ""
    parts = [f"## {kind}{title}", md_table(_HEADINGS, map(_cells, table.lines))]
    parts.append(f"Of unknown category, and in no line: {count(table.unknown)}.")
    if table.small:
        few = md_table(_HEADINGS[:4], (_cells(line)[:4] for line in table.small))
        parts.append(
            f"Under {SMALL_SHARE:.0%} of the data, and left out of impact ratios "
            f"({md(stated(facts, 'small_categories'))}):\n\n{few}"
        )
    if table.best_is_hidden:
        parts.append("The highest rate is hidden; impact ratios are relative to the highest shown.")
    flagged = [
        line
        for line in table.lines
        if line.impact_ratio is not None and line.impact_ratio < FOUR_FIFTHS
    ]
    parts += [_flag(line) for line in flagged]
    return "\n\n".join(parts)


def _cells(line: RateLine) -> tuple[str, ...]:
    return (
        md(line.name),
        count(line.rows),
        count(line.selected),
        share(line.rate),
        share(line.impact_ratio),
        "–" if line.low is None or line.high is None else interval((line.low, line.high)),
    )


def _flag(line: RateLine) -> str:
    """The four-fifths flag, and whether it could be chance."""
    decided = line.high is not None and line.high < FOUR_FIFTHS
    but = "the whole interval is below it" if decided else "the interval reaches it"
    ratio = share(line.impact_ratio)
    return f"{md(line.name)}: impact ratio {ratio} is below four fifths ({but})."


def _reading(tables: RateTables, least: int) -> str:
    text = (
        f"## How to read this\n\nAll rows: {count(tables.total)}. Impact ratio: a category's "
        "selection rate divided by the highest of its table. Intervals are of one ratio each."
    )
    if least > 1:
        text += (
            f" Counts from 1 to {least - 1} are hidden, and others from which they would follow; "
            "`--min-cell 0` shows all."
        )
    if not tables.has_intersections:
        text += (
            " Combinations of attributes were not counted, so there is no table of intersections: "
            "it needs an audit with several `--sensitive` columns."
        )
    return text
