"""A site's own file: its name, its tables, its policy."""

import hashlib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

from fcfl._checks import check_keys
from fcfl._types import ClientId
from fcfl.errors import DataError
from fcfl.policy import MIN_GROUP_ROWS, WITHHOLD_BELOW, Policy, PrivacyBudget
from fcfl.policy_file import read_policy
from fcfl.rules import Rule

ConfigValue: TypeAlias = bool | int | float | str
Config: TypeAlias = Mapping[str, ConfigValue]
"""A node config or a run config, as Flower carries it."""

CLOSED = Policy((), {}, MIN_GROUP_ROWS, "", "", WITHHOLD_BELOW)
"""That of a site without a policy file."""

KEYS = ("name", "table", "test-table", "policy", "cache", "ledger")


@dataclass(frozen=True)
class SiteSettings:
    """A site's node config, checked. Paths are absolute: an app runs in a folder of Flower's."""

    name: ClientId
    table: Path
    test_table: Path | None = None
    policy: Path | None = None
    cache: Path | None = None
    ledger: Path | None = None

    @classmethod
    def from_node_config(cls, config: Config) -> "SiteSettings":
        """Read what ``--node-config`` gave to the SuperNode."""
        check_keys(config, KEYS, "the site's node config", DataError)
        name = config.get("name")
        if not isinstance(name, str) or not name.strip() or name != name.strip():
            raise DataError(f"`name` must be the site's name, text in quotes, got {name!r}.")
        if config.get("table") is None:
            raise DataError("`table` must be the path of the site's CSV, Parquet or xlsx file.")
        places = {
            key.replace("-", "_"): _absolute(key, config[key]) for key in KEYS[1:] if key in config
        }
        return cls(name, **places)

    @classmethod
    def from_file(cls, path: Path) -> "SiteSettings":
        """Read a site's file, the one that is given to the node."""
        try:
            config = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise DataError(f"{str(path)!r} is not TOML: {error}.") from None
        return cls.from_node_config(config)

    @cached_property
    def read_policy(self) -> Policy:
        """The site's policy; without a file, and where the file sets nothing, it is closed."""
        if self.policy is None:
            return CLOSED
        policy = read_policy(self.policy, of_site=True)
        if policy.groups:
            raise DataError(
                f"Policy {str(self.policy)!r}: `groups` belongs to the server's policy; the groups "
                "compared must be the same at all sites. Use `min-group-rows` here."
            )
        return policy

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules that the site requires, with its own budgets only."""
        return self.read_policy.rules([self.name])

    @property
    def privacy(self) -> PrivacyBudget | None:
        """With a budget the site answers with noisy sums and nothing else."""
        return self.read_policy.privacy

    @property
    def ledger_folder(self) -> Path:
        """The folder of the site's journal, which must outlast restarts."""
        if self.ledger is not None:
            return self.ledger
        if self.privacy is not None:
            raise DataError(
                "`ledger` must be in this site's file beside [privacy] in its policy: who clears a "
                "cache must not clear what was spent. Example: ledger = '/srv/fcfl/ledger'"
            )
        if self.cache is not None:
            return self.cache / "ledger"
        base = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
        return base / "fcfl" / hashlib.sha256(self.name.encode()).hexdigest()[:12]

    @property
    def cache_folder(self) -> Path:
        """The folder of encoded rows, readable by this account only."""
        if self.cache is not None:
            return self.cache
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fcfl"


def _absolute(key: str, value: object) -> Path:
    if not isinstance(value, str) or not Path(value).is_absolute():
        raise DataError(f"`{key}` must be an absolute path in quotes, got {value!r}.")
    return Path(value)
