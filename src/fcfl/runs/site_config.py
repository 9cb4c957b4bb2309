"""A run over sites as its config says it: the keys of ``[tool.flwr.app.config]``."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fcfl._checks import check_count, check_positive, did_you_mean
from fcfl._types import ClientId
from fcfl.runs.settings import Experiment, parse_budget
from fcfl.federation.messages import Terms
from fcfl.server.sqp.sqp import SQP

TABLE = "sites"  # stands for a table in the settings of a run whose rows are elsewhere

CONFIG: dict[str, tuple[Any, str]] = {
    "sites": ("", "names of all sites, with commas; the run waits for every one of them"),
    "label": ("", "column to predict; it has two values"),
    "sensitive": ("", "columns whose groups are compared, with commas"),
    "positive": ("", "label that counts as 1; empty: the larger number or last text"),
    "drop": ("", "columns to leave out, with commas"),
    "metric": (
        "demographic_parity",
        "demographic_parity, equal_opportunity or equalized_odds",
    ),
    "budget": ("", "largest difference of group rates: 0.05, or 0.05,north=0.1; empty: none"),
    "ratio": ("", "smallest ratio of group rates: 0.8 is the four-fifths rule; empty: none"),
    "scope": ("client", "client: at each site; global: on all rows together; both"),
    "policy": ("", "absolute path of a policy file at the server, instead of the four above"),
    "l2": (0.003, "weight of |params|²/2 in every loss; choose it in a rehearsal"),
    "objective": ("10", "max: the largest loss; a number: a smooth maximum, large is the mean"),
    "curvature": ("auto", "exact: sites send their part of the Hessian; lbfgs; auto: by size"),
    "lookahead": ("0.5,0.2,0.05,0.01", "shorter steps asked for beside the full one"),
    "rounds": ("200,200", "most rounds of each stage"),
    "seed": (0, "seed of the split into training and held-out rows"),
    "test-size": (0.3, "share of each site's rows to hold out"),
    "site-timeout": (600.0, "seconds to wait for a site in a round"),
    "max-age": (0, "rounds for which the last report of an absent site stays in force"),
    "out": ("", "absolute path of the folder to write at the server"),
    "resume": (False, "go on from the last checkpoint in out"),
    "overwrite": (False, "replace a run with other settings in out"),
}
"""Key, default, and what it means: the one list that the app folder and its checks are made of."""


@dataclass(frozen=True)
class SitesConfig:
    """A run config, checked."""

    experiment: Experiment
    sites: tuple[ClientId, ...]
    lookahead: tuple[float, ...]
    site_timeout: float
    max_age: int
    folder: Path
    resume: bool
    overwrite: bool

    @classmethod
    def from_run_config(cls, config: Mapping[str, Any]) -> "SitesConfig":
        """Read what Flower gives to the server app; empty text is as good as nothing."""
        for key in config:
            if key not in CONFIG:
                raise ValueError(f"`{key}` is no key of a run. {did_you_mean(key, CONFIG)}")
        given = {key: config.get(key, default) for key, (default, _) in CONFIG.items()}
        sites = site_names("sites", given["sites"])
        return cls(
            experiment=_experiment(given, sites),
            sites=sites,
            lookahead=tuple(_number("lookahead", part) for part in _words(given["lookahead"])),
            site_timeout=check_positive("site-timeout", given["site-timeout"]),
            max_age=check_count("max-age", given["max-age"]),
            folder=_absolute("out", given["out"]),
            resume=_truth("resume", given["resume"]),
            overwrite=_truth("overwrite", given["overwrite"]),
        )

    @property
    def terms(self) -> Terms:
        """What a site must know before it can say anything."""
        run = self.experiment
        return Terms(str(run.label), run.sensitive, run.drop, run.positive, run.test_size, run.seed)

    def make_method(self) -> SQP:
        """The fast method; no other is made for rounds of seconds."""
        method = self.experiment.make_method()
        assert isinstance(method, SQP)
        return SQP(
            objective=method.objective,
            curvature=method.curvature,
            rounds=method.rounds,
            lookahead=self.lookahead,
        )


def _experiment(given: Mapping[str, Any], sites: tuple[ClientId, ...]) -> Experiment:
    label = _text("label", given["label"])
    sensitive = _words(given["sensitive"])
    if not label or not sensitive:
        raise ValueError("`label` and `sensitive` must name columns of every site's table.")
    budget, ratio = str(given["budget"]).strip(), str(given["ratio"]).strip()
    policy = str(given["policy"]).strip()
    rounds = tuple(int(_number("rounds", part)) for part in _words(given["rounds"]))
    return Experiment(
        table=f"{TABLE} {', '.join(sites)}",
        label=label,
        sensitive=sensitive,
        positive=str(given["positive"]).strip() or None,
        drop=_words(given["drop"]),
        metric=_text("metric", given["metric"]),
        budget=parse_budget(budget) if budget else None,
        ratio=_number("ratio", ratio) if ratio else None,
        scope=given["scope"],
        policy=str(_absolute("policy", policy)) if policy else None,
        l2=_settled("l2", given["l2"]),
        objective=_settled("objective", given["objective"], "max"),
        curvature=given["curvature"],
        rounds=rounds,
        seed=check_count("seed", given["seed"]),
        test_size=_number("test-size", given["test-size"]),
    )


def _settled(key: str, value: Any, *words: str) -> Any:
    """A number or a word; what takes cross-validation cannot be had here."""
    if isinstance(value, str) and value in words:
        return value
    if value == "auto":
        raise ValueError(
            f"`{key}` must be a number over Flower, got 'auto': cross-validation needs thousands "
            "of rounds. Choose it in a rehearsal with `fcfl train`."
        )
    return _number(key, value)


def _number(key: str, value: Any) -> float:
    try:
        if isinstance(value, bool):
            raise ValueError
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"`{key}` must be a number, got {value!r}.") from None


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"`{key}` must be text in quotes, got {value!r}.")
    return value.strip()


def _truth(key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"`{key}` must be true or false, got {value!r}.")
    return value


def _words(value: Any) -> tuple[str, ...]:
    return tuple(word.strip() for word in str(value).split(",") if word.strip())


def site_names(key: str, value: Any) -> tuple[ClientId, ...]:
    """Names given with commas, sorted; there is at least one, and each is there once."""
    names = _words(value)
    if not names:
        raise ValueError(f'`{key}` must name the sites of the run: {key}="north,south".')
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"`{key}` must name every site once, got {twice[0]!r} twice.")
    return tuple(sorted(names))


def _absolute(key: str, value: Any) -> Path:
    path = Path(str(value))
    if not path.is_absolute():
        raise ValueError(
            f"`{key}` must be an absolute path, got {value!r}: Flower runs an app in a folder "
            "of its own."
        )
    return path
