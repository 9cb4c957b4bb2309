"""A site's own file: its name, its tables, its policy."""

import hashlib
import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

import msgspec

from fcfl._files import parse_toml
from fcfl._types import ClientId
from fcfl.errors import DataError
from fcfl.policy import Policy, PrivacyBudget, read_policy, read_table
from fcfl.rules import Rule

ConfigValue: TypeAlias = bool | int | float | str
Config: TypeAlias = Mapping[str, ConfigValue]
"""The type of Flower's node config and run config."""


class SiteSettings(
    msgspec.Struct, frozen=True, dict=True, rename="kebab", forbid_unknown_fields=True
):
    """A site's file, or the node config of its SuperNode. All paths are absolute."""

    name: ClientId
    table: Path
    test_table: Path | None = None
    policy: Path | None = None
    cache: Path | None = None
    ledger: Path | None = None

    def __post_init__(self) -> None:
        if not self.name.strip() or self.name != self.name.strip():
            raise ValueError(
                f"`name` must be non-empty, without spaces at its ends, got {self.name!r}."
            )

    @classmethod
    def from_node_config(cls, config: Config) -> "SiteSettings":
        """Read the node config that was passed to the SuperNode as ``--node-config``."""
        return read_table(cls, dict(config), "the site's node config")

    @classmethod
    def from_file(cls, path: Path) -> "SiteSettings":
        """Read the TOML file with the settings of a site."""
        where = f"the site's file {str(path)!r}"
        return read_table(cls, parse_toml(path.read_bytes(), where), where)

    @cached_property
    def read_policy(self) -> Policy:
        """The site's policy; its defaults withhold rare levels and small groups."""
        if self.policy is None:
            return Policy()
        policy = read_policy(self.policy, of_site=True)
        if policy.groups:
            raise DataError(
                f"In policy {str(self.policy)!r}: `groups` belongs to the server's policy; the "
                "groups compared must be the same at all sites. Use `min-group-rows` here."
            )
        return policy

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules that the site requires, with its own budgets only."""
        return self.read_policy.rules([self.name])

    @property
    def privacy(self) -> PrivacyBudget | None:
        """The site's privacy budget; with a budget the site sends noisy sums only."""
        return self.read_policy.privacy

    @property
    def ledger_folder(self) -> Path:
        """The folder of the site's journal, which must outlast restarts."""
        if self.ledger is not None:
            return self.ledger
        if self.privacy is not None:
            raise DataError(
                "`ledger` must be set in the site's file if its policy has [privacy], so that "
                "clearing a cache does not delete the record of the budget spent. Example: "
                "ledger = '/srv/fcfl/ledger'"
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
