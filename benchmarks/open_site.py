"""Sites that answer as clients in one process do, so that both can be compared bit by bit."""

from pathlib import Path

OPEN = """min-group-rows = 1
withhold-below = 1
[limits]
"""


def open_site(name: str, table: Path, cache: Path, more: str = "") -> dict[str, str]:
    """A site's config, with a policy that withholds nothing; ``more`` are further limits."""
    cache.mkdir(parents=True, exist_ok=True)
    policy = cache / "open-policy.toml"
    policy.write_text(OPEN + more, encoding="utf-8")
    return {"name": name, "table": str(table), "cache": str(cache), "policy": str(policy)}
