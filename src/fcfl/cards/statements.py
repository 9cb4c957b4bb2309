"""Sentences and tables about a result that several cards share."""

from collections.abc import Iterator

from fcfl.cards.markdown import count, md, share
from fcfl.cards.suppression import Sum, hidden_sums
from fcfl.report.claims import Claim, claims_of, rows_called
from fcfl.report.words import interval, threshold_sentence
from fcfl.results import Result

CLIENT_HEADINGS = ("Client", "Rows", "Accuracy", "95 % interval", "Balanced accuracy")
CLAIM_HEADINGS = ("Client", "Rule", "Value", "Interval", "Budget", "Verdict")


def client_rows(result: Result, least: int) -> dict[str, int | None]:
    """Judged rows of every client, and of all as the entry ""; small ones are None."""
    part = result.judged_part
    sizes = {name: client.rows.of(part) for name, client in result.clients.items()}
    sums = [Sum(name, (i,), size) for i, (name, size) in enumerate(sizes.items())]
    everybody = Sum(("all",), tuple(range(len(sizes))), sum(sizes.values()), is_total=True)
    hidden = hidden_sums([*sums, everybody], least) if least > 1 else set()
    rows: dict[str, int | None] = {
        name: None if name in hidden else size for name, size in sizes.items()
    }
    return rows | {"": None if everybody.name in hidden else everybody.value}


def client_table(result: Result, least: int) -> Iterator[tuple[str, ...]]:
    """Accuracy of every client and of all rows together."""
    rows, part = client_rows(result, least), result.judged_part
    for name, client in (*result.clients.items(), ("", result.overall)):
        found = client.part(part)
        yield (
            md(name) or "all rows",
            count(rows[name]),
            share(found.accuracy),
            interval(found.accuracy_interval),
            share(found.balanced_accuracy),
        )


def claim_table(result: Result) -> Iterator[tuple[str, ...]]:
    """Every disparity with its interval, its budget and the verdict."""
    for claim in claims_of(result):
        yield (
            md(claim.client),
            md(claim.entry.title),
            share(claim.entry.value),
            interval(claim.entry.interval),
            "–" if claim.entry.budget is None else f"{claim.entry.budget:g}",
            claim.verdict,
        )


def claim_json(claim: Claim) -> dict[str, object]:
    """The same as plain data."""
    return {
        "value": claim.entry.value,
        "low": claim.entry.low,
        "high": claim.entry.high,
        "budget": claim.entry.budget,
        "verdict": claim.verdict,
    }


def how_tested(result: Result) -> str:
    """What the rows are, and what intervals and verdicts mean."""
    statement = "" if result.audit is None else f" {result.audit.statement}"
    selected = threshold_sentence(result) or "Decisions are those of the table."
    kept = {
        "held-out rows": "rows that were held out of training, chosen at random within each client",
        "training rows": "the rows of training: nothing was held out",
        "audited rows": "the rows of the audited table",
    }[rows_called(result)]
    return (
        f"Tested on {kept}, {len(result.clients)} clients. {selected}{statement} A budget is met "
        "if the whole interval is within it, exceeded if the whole interval is beyond it, and "
        "undetermined otherwise."
    )


def versions_of(result: Result) -> str:
    """What computed the result, on which rows."""
    known = result.versions or {"fcfl": result.fcfl_version}
    text = ", ".join(f"{name} {version}" for name, version in known.items())
    return text if result.data is None else f"{text}; rows SHA-256 {result.data.sha256}"
