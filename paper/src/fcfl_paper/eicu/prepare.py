"""From the folder of tables to one table of stays, ready to train on."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from fcfl._checks import check_count, did_you_mean
from fcfl.errors import DataError

from .cohort import RULES, Facts, Mask, Step, failures, follow, small_clients
from .events import CHARTING, INTAKE_OUTPUT, LAB
from .features import LEFT_OUT, apache, day_one
from .labels import GROUPS, LABELS, UNKNOWN_REGION, Texts, hospital, region
from .source_tables import Frame, OnProgress, Table, find_tables
from .stays import (
    Span,
    first_care_limitation,
    heart_rate_span,
    predicted_mortality,
    read_stays,
    unit_span,
)

FEATURES = ("day1", "day1-all", "apache")
MIN_STAYS = {"hospital": 1500, "region": 1}

_ALWAYS = ("patient", "apachePatientResult", "apachePredVar")
_CHARTS = ("nurseCharting", "lab", "intakeOutput", "carePlanGeneral")
_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Options:
    """What is predicted from what, for whom, and between which groups.

    Parameters
    ----------
    features : "day1" (53 inputs of the first 24 h: last, smallest and largest values), "day1-all"
        (the same and first values, 82 in all) or "apache" (worst values of day one that APACHE
        keeps; needs neither nurseCharting nor lab)
    label : "los7" (hospital stay above 7 days) or "mortality" (died in hospital or unit)
    client : "hospital" or "region"
    min_stays : clients with fewer stays are left out; by default 1500 for hospitals, 1 for regions
    sensitive : "race", "gender" or both; the columns they are derived from are not used as inputs
    """

    features: str = "day1"
    label: str = "los7"
    client: str = "hospital"
    min_stays: int | None = None
    sensitive: tuple[str, ...] = ("race",)

    def __post_init__(self) -> None:
        _check_word("features", self.features, FEATURES)
        _check_word("label", self.label, LABELS)
        _check_word("client", self.client, MIN_STAYS)
        if self.min_stays is not None:
            check_count("min_stays", self.min_stays)
        if not self.sensitive or len(set(self.sensitive)) < len(self.sensitive):
            raise ValueError(f"`sensitive` must be race, gender or both, got {self.sensitive!r}.")
        for name in self.sensitive:
            _check_word("sensitive", name, GROUPS)

    @property
    def smallest_client(self) -> int:
        """Fewest stays of a client."""
        return MIN_STAYS[self.client] if self.min_stays is None else self.min_stays


@dataclass(frozen=True, slots=True)
class Prepared:
    """The table of stays, the rules that led to it, and notes for the user.

    ``frame`` has the client, the label, the sensitive columns and the features, no ids and no
    times. ``n_read`` is the number of stays before the first rule.
    """

    frame: Frame
    options: Options
    n_read: int
    flow: tuple[Step, ...]
    notes: tuple[str, ...]

    @property
    def features(self) -> list[str]:
        """Names of the features."""
        roles = {self.options.client, self.options.label, *self.options.sensitive}
        return [name for name in self.frame.columns if name not in roles]


def prepare(folder: Path, options: Options, on_progress: OnProgress | None = None) -> Prepared:
    """Read the tables in ``folder``, apply the cohort rules, and build the features.

    Parameters
    ----------
    folder : path
    options : Options
    on_progress : called with the share of each large table read so far
    """
    tables = find_tables(folder, needed_tables(options), ("carePlanGeneral",))
    _check_columns(tables, options)
    facts = gather(tables, options, on_progress)
    client = _clients(tables, facts.stays, options)
    groups = {name: GROUPS[name](facts.stays) for name in options.sensitive}
    kept, flow = select(facts, client, groups, options)
    stays = facts.stays[kept].reset_index(drop=True)
    if options.features == "apache":
        features = apache(tables, stays)
    else:
        features = day_one(tables, stays, facts.span.start[kept], on_progress=on_progress)
    roles = {options.client: client[kept], options.label: facts.label[kept].astype(np.int64)}
    roles |= {name: codes[kept] for name, codes in groups.items()}
    frame = pd.concat([pd.DataFrame(roles), _inputs(features, options)], axis=1)
    notes = _notes(facts, flow, frame, options)
    return Prepared(frame, options, len(facts.stays), flow, notes)


def needed_tables(options: Options) -> dict[str, str]:
    """Tables the options need, and how the message goes on where one is missing."""
    download = f"which --features {options.features} needs. Download it into the folder"
    needed = dict.fromkeys(_ALWAYS, download)
    if options.features == "apache":
        needed["apacheApsVar"] = download
    else:
        needed |= dict.fromkeys(_CHARTS, f"{download}, or use --features apache")
    if options.client == "region":
        needed["hospital"] = "which --client region needs. Download it into the folder"
    return needed


def _check_columns(tables: Mapping[str, Table], options: Options) -> None:
    """Report a renamed column before minutes of reading, not after."""
    columns = {"apachePredVar": ["electivesurgery"]}
    if options.features != "apache":
        columns |= {source.table: list(source.columns) for source in (CHARTING, LAB, INTAKE_OUTPUT)}
    if options.client == "region":
        columns["hospital"] = ["hospitalid", "region"]
    for name, needed in columns.items():
        for column in needed:
            tables[name].spelling(column)


def gather(
    tables: Mapping[str, Table], options: Options, on_progress: OnProgress | None = None
) -> Facts:
    """Read what the rules need to know about each stay."""
    stays = read_stays(tables["patient"])
    prediction = predicted_mortality(tables["apachePatientResult"], stays)
    plans = tables.get("carePlanGeneral")
    limit = first_care_limitation(plans, stays) if plans else None
    charted = options.features != "apache"
    if charted:
        span = _charted_span(tables["nurseCharting"], stays, on_progress)
    else:
        span = unit_span(stays)
    return Facts(stays, span, charted, prediction, limit, LABELS[options.label](stays))


def _charted_span(charting: Table, stays: Frame, on_progress: OnProgress | None) -> Span:
    """A first pass over the table: which hours belong to day one is only known after it."""
    if on_progress is None:
        return heart_rate_span(charting, stays)
    return heart_rate_span(
        charting, stays, lambda table, share: on_progress(f"{table}: times", share)
    )


def select(
    facts: Facts, client: Texts, groups: Mapping[str, Texts], options: Options
) -> tuple[Mask, tuple[Step, ...]]:
    """Apply every rule: the published ones, then the size of a client, then unknown groups."""
    removals = failures(facts)
    words = {rule.name: rule.words for rule in RULES}
    n_stays = len(facts.stays)
    in_cohort, _ = follow(n_stays, removals, words)
    smallest = options.smallest_client
    removals["client"] = small_clients(client, in_cohort, smallest)
    words["client"] = f"{options.client} with fewer than {smallest} stays left"
    for name, texts in groups.items():
        removals[name] = np.array([text is None for text in texts])
        words[name] = {"race": "ethnicity missing", "gender": "gender not known"}[name]
    kept, flow = follow(n_stays, removals, words)
    if not kept.any():
        raise DataError(_describe_empty_cohort(flow, client, in_cohort, options))
    return kept, flow


def _clients(tables: Mapping[str, Table], stays: Frame, options: Options) -> Texts:
    return hospital(stays) if options.client == "hospital" else region(stays, tables["hospital"])


def _inputs(features: Frame, options: Options) -> Frame:
    """The features without the sensitive columns themselves."""
    dropped = {name for attribute in options.sensitive for name in LEFT_OUT[attribute]}
    if options.features == "day1":
        dropped |= {name for name in features.columns if name.endswith("_first")}
    return features.drop(columns=[name for name in features.columns if name in dropped])


def _check_word(name: str, word: str, known: Collection[str]) -> None:
    if word not in known:
        raise ValueError(
            f"`{name}` must be one of {', '.join(known)}, got {word!r}. {did_you_mean(word, known)}"
        )


def _describe_empty_cohort(
    flow: tuple[Step, ...], client: Texts, in_cohort: Mask, options: Options
) -> str:
    last = next(step for step in flow if step.left == 0)
    if last.rule != "client":
        return f"No stay is left after the rule '{last.words}', which removed {last.removed}."
    sizes = pd.Series(client[in_cohort]).value_counts()
    return (
        f"No {options.client} has at least {options.smallest_client} stays left; the largest, "
        f"{sizes.index[0]!r}, has {sizes.iloc[0]}. Lower --min-stays"
        + (", or use --client region." if options.client == "hospital" else ".")
    )


def _notes(facts: Facts, flow: tuple[Step, ...], frame: Frame, options: Options) -> tuple[str, ...]:
    notes = []
    if not facts.charted:
        notes.append(
            "Feature set apache reads no heart rates: a stay begins with unit admission and ends "
            "with unit discharge."
        )
    if facts.limit is None:
        notes.append("There is no table carePlanGeneral: stays with limited care are not removed.")
    for step in flow:
        if step.rule in options.sensitive and step.removed:
            notes.append(f"{_stays(step.removed)} left out: {step.words}.")
    if options.client == "region" and (frame["region"] == UNKNOWN_REGION).any():
        count = int((frame["region"] == UNKNOWN_REGION).sum())
        notes.append(f"{_stays(count)} of hospitals without a region form client 'unknown'.")
    return (*notes, *_describe_gaps(frame))


def _describe_gaps(frame: Frame) -> list[str]:
    """Name the features no stay has, and those most stays lack."""
    share = frame.isna().mean()
    empty = [name for name in share.index if share[name] == 1]
    rare = share[(share > 0.5) & (share < 1)].sort_values(ascending=False, kind="stable")
    notes = [f"No stay has a value of {_some(empty)}."] if empty else []
    listed = [f"{name} {100 * value:.0f} %" for name, value in rare.items()]
    return notes + ([f"Missing in more than half of the stays: {_some(listed)}."] if listed else [])


def _stays(count: int) -> str:
    return "1 stay" if count == 1 else f"{count} stays"


def _some(items: list[str]) -> str:
    more = len(items) - _SHOWN
    return ", ".join(items[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
