"""Format a result as a few lines of text, and as an HTML table for notebooks."""

from collections.abc import Iterator

from .findings import findings_of, warnings_of
from .result import ClientResult, PartName, Result

MAX_LINES = 8  # disparities shown in text
MAX_ROWS = 40  # disparities shown in a notebook
MAX_NAME = 30  # characters of a client's name
_HEADINGS = ("client", "rows", "selected", "accuracy", "disparity", "value", "budget", "verdict")
_TEMPLATE = """\
<div class="fcfl-result">
<p><b>{{ head }}</b>{% for line in findings %}<br>{{ line }}{% endfor %}</p>
<table>
<caption>Decisions on {{ rows }}</caption>
<thead><tr>{% for name in headings %}<th scope="col">{{ name }}</th>{% endfor %}</tr></thead>
<tbody>{% for line in lines %}
<tr><th scope="row">{{ line[0] }}</th>
{% for cell in line[1:] %}<td>{{ cell }}</td>{% endfor %}</tr>{% endfor %}</tbody>
</table>
{% if more %}<p>{{ more }}</p>{% endif %}
</div>"""


def as_text(result: Result) -> str:
    """Return a heading, findings, and a line for each disparity of the first clients."""
    lines = list(_lines(result))
    shown = [_HEADINGS, *lines[:MAX_LINES]] if lines else []
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    table = [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        for line in shown
    ]
    text = [_head(result), *_findings(result), *table, f"  {_more(len(lines) - MAX_LINES)}"]
    return "\n".join(line.rstrip() for line in text if line.strip())


def as_html(result: Result) -> str:
    """Return the heading, findings and disparities as HTML; every cell is escaped."""
    from jinja2 import Environment, StrictUndefined

    lines = list(_lines(result))
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(_TEMPLATE)
    return template.render(
        head=_head(result),
        findings=_findings(result),
        rows="held-out rows" if result.judged_part == "test" else "training rows",
        headings=_HEADINGS,
        lines=lines[:MAX_ROWS],
        more=_more(len(lines) - MAX_ROWS),
    )


def _more(left: int) -> str:
    return f"… and {left} more lines: see `clients`." if left > 0 else ""


def _head(result: Result) -> str:
    facts, n_clients = [result.method, result.status], len(result.clients)
    if result.exchanges.total:
        facts.append(f"{result.exchanges.total:,} exchanges")
    facts.append("1 client" if n_clients == 1 else f"{n_clients:,} clients")
    return ", ".join(facts)


def _findings(result: Result) -> list[str]:
    return [one.stated for one in (*findings_of(result), *warnings_of(result))]


def _lines(result: Result) -> Iterator[tuple[str, ...]]:
    """Yield the cells of each disparity: clients in order, then all rows together."""
    for name, who in result.everybody.items():
        yield from _lines_of(name, who, result.judged_part)


def _lines_of(name: str, client: ClientResult, part: PartName) -> Iterator[tuple[str, ...]]:
    judged, rows = client.part(part), client.rows.of(part)
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name)
    shown = shown if len(shown) <= MAX_NAME else f"{shown[: MAX_NAME - 1]}…"
    share = None if judged.selected is None or not rows else judged.selected / rows
    first: tuple[str, ...] = (shown, f"{rows:,}", _number(share), _number(judged.accuracy))
    if not judged.disparities:
        yield (*first, "", "", "", "")
    for entry in judged.disparities:
        budget = "–" if entry.budget is None else f"{entry.budget:.4g}"
        yield (*first, entry.title, _number(entry.value), budget, entry.verdict)
        first = ("", "", "", "")


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
