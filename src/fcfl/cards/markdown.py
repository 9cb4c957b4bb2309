"""Markdown tables whose cells cannot break out of them."""

from collections.abc import Iterable, Sequence

from fcfl.report.words import plain


def md(text: str) -> str:
    """Text that is not taken for Markdown or HTML."""
    escaped = plain(text).replace("\\", "\\\\")
    for character in "|<>*_`[]#":
        escaped = escaped.replace(character, f"\\{character}")
    return escaped


def md_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; the first column is text, the others are numbers."""
    lines = ["| " + " | ".join(headings) + " |"]
    lines.append("| --- |" + " ---: |" * (len(headings) - 1))
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def count(value: int | None) -> str:
    """A count, or that it is hidden."""
    return "hidden" if value is None else f"{value:,}"


def share(value: float | None, digits: int = 3) -> str:
    """A rate or ratio, a dash where there is none."""
    return "–" if value is None else f"{value:.{digits}f}"
