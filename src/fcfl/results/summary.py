"""A result in a few lines of text, and as a table for notebooks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .findings import findings_of, warnings_of
from .result import ClientResult, PartName, Result

MOST_LINES = 8  # of clients and their disparities, in text
MOST_ROWS = 40  # in a notebook
_LONGEST = 30  # characters of a client's name
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


@dataclass(frozen=True)
class Summary:
    """A heading, findings, and a line for each disparity of each client."""

    head: str
    findings: tuple[str, ...]
    part: PartName
    lines: tuple[tuple[str, ...], ...]

    @property
    def text(self) -> str:
        """The summary in at most a dozen lines."""
        shown = [_HEADINGS, *self.lines[:MOST_LINES]] if self.lines else []
        widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
        table = [
            "  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
            for line in shown
        ]
        more = self._more(MOST_LINES)
        every = [self.head, *self.findings, *table, *([f"  {more}"] if more else [])]
        return "\n".join(line.rstrip() for line in every)

    @property
    def html(self) -> str:
        """The summary as a table; every cell is escaped."""
        from jinja2 import Environment, StrictUndefined

        template = Environment(autoescape=True, undefined=StrictUndefined).from_string(_TEMPLATE)
        return template.render(
            head=self.head,
            findings=self.findings,
            rows="held-out rows" if self.part == "test" else "training rows",
            headings=_HEADINGS,
            lines=self.lines[:MOST_ROWS],
            more=self._more(MOST_ROWS),
        )

    def _more(self, most: int) -> str:
        left = len(self.lines) - most
        return f"… and {left} more lines: see `clients`." if left > 0 else ""


def summary_of(result: Result) -> Summary:
    """Return the summary of a result, the clients in its order and all rows together last."""
    part, n_clients = result.judged_part, len(result.clients)
    lines = [line for name, who in result.everybody.items() for line in _lines(name, who, part)]
    facts = [result.method, result.status]
    if result.exchanges.total:
        facts.append(f"{result.exchanges.total:,} exchanges")
    facts.append("1 client" if n_clients == 1 else f"{n_clients:,} clients")
    findings = tuple(one.stated for one in (*findings_of(result), *warnings_of(result)))
    return Summary(", ".join(facts), findings, part, tuple(lines))


def _lines(name: str, client: ClientResult, part: PartName) -> Iterator[tuple[str, ...]]:
    judged, rows = client.part(part), client.rows.of(part)
    share = None if judged.selected is None or not rows else judged.selected / rows
    first: Sequence[str] = (_plain(name), f"{rows:,}", _number(share), _number(judged.accuracy))
    if not judged.disparities:
        yield (*first, "", "", "", "")
    for entry in judged.disparities:
        budget = "–" if entry.budget is None else f"{entry.budget:.4g}"
        yield (*first, entry.title, _number(entry.value), budget, entry.verdict)
        first = ("", "", "", "")


def _plain(name: str) -> str:
    """Return a name of at most 30 characters, without those that would break the line."""
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name)
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 1]}…"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
