"""From the folder of tables to one table of stays, ready to train on."""

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd

from fcfl._checks import check_count, did_you_mean
from fcfl._types import Vector
from fcfl.errors import DataError

from . import stays as rows
from .events import (
    CHARTING,
    DAY_ONE,
    INTAKE_OUTPUT,
    KNOWN,
    LAB,
    VARIABLES,
    WITH_LOOK_BACK,
    HourSums,
    Source,
    Window,
    charted_hours,
    hour_sums,
    lab_hours,
    read_events,
    summaries,
)
from .stays import GROUPS, LABELS, RULES, Facts, Mask, Step, Texts, stay_ids
from .tables import NUMBER, TEXT, WHOLE, Frame, OnProgress, Table, find_tables, read_frame

_RACES = {"black": "african american", "hispanic": "hispanic", "asian": "asian"}
LEFT_OUT = {"race": (*_RACES, "other_race"), "gender": ("female",)}  # where it is sensitive


def day_one(
    tables: Mapping[str, Table], stays: Frame, start: Vector, on_progress: OnProgress | None = None
) -> Frame:
    """Return the 82 features: first, last, smallest and largest values, urine, static attributes.

    ``tables`` are nurseCharting, lab, intakeOutput and apachePredVar, ``stays`` those of the
    cohort, ``start`` the minute at which each of them begins.
    """

    def reduced(source: Source, window: Window) -> HourSums:
        events = read_events(tables[source.table], source, stay_ids(stays), on_progress)
        return hour_sums(events, len(source.channels), start, window)

    columns = summaries(charted_hours(reduced(CHARTING, DAY_ONE)), "first", "last", "min", "max")
    columns |= summaries(lab_hours(reduced(LAB, WITH_LOOK_BACK)), "first", "last")
    columns["urine_sum"] = reduced(INTAKE_OUTPUT, DAY_ONE).totals(0)
    columns |= static(stays, tables["apachePredVar"])
    order = [f"{name}_{kind}" for kind in ("first", "last") for name in VARIABLES]
    return pd.DataFrame({name: columns[name] for name in [*order, *columns]})


def static(stays: Frame, predictors: Table) -> dict[str, Vector]:
    """Return sex, age, race and elective surgery, whose missing value is 0."""
    ethnicity = stays["ethnicity"].str.lower()
    races = {name: (ethnicity == value).fillna(False) for name, value in _RACES.items()}
    races["other_race"] = ~ethnicity.isin(list(_RACES.values()))
    surgery = _joined(predictors, ["electivesurgery"], stays)["electivesurgery"]
    return {
        "female": np.asarray(stays["gender"].str.lower() == "female", dtype=np.float64),
        "age": stays["age"].to_numpy(dtype=np.float64),
        **{name: np.asarray(column, dtype=np.float64) for name, column in races.items()},
        "elective_surgery": np.where(np.isnan(surgery), 0.0, surgery),
    }


def apache(tables: Mapping[str, Table], stays: Frame) -> Frame:
    """Return the worst values of day one and chronic conditions; -1 is missing.

    ``tables`` are apacheApsVar, apachePredVar and apachePatientResult.
    """
    columns = _joined(tables["apacheApsVar"], KNOWN["words"]["aps"], stays)
    columns |= _joined(tables["apachePredVar"], KNOWN["words"]["predictors"], stays)
    columns |= _joined(tables["apachePatientResult"], KNOWN["words"]["scores"], stays, "iva")
    return pd.DataFrame(columns | static(stays, tables["apachePredVar"]))


def _joined(
    table: Table, names: list[str], stays: Frame, version: str | None = None
) -> dict[str, Vector]:
    """Return columns of a table with one row per stay, in the order of ``stays``; -1 is NaN."""
    kinds = {"patientunitstayid": WHOLE, **dict.fromkeys(names, NUMBER)}
    frame = read_frame(table, kinds | ({"apacheversion": TEXT} if version else {}))
    if version:
        frame = frame[frame["apacheversion"].str.strip().str.lower() == version]
    frame = frame.drop_duplicates("patientunitstayid").set_index("patientunitstayid")
    matched = frame.reindex(stay_ids(stays))[names]
    return {name: matched[name].mask(matched[name] == -1).to_numpy(np.float64) for name in names}


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

    ``on_progress`` is called with the share of each large table read so far.
    """
    tables = find_tables(folder, needed_tables(options), ("carePlanGeneral",))
    _check_columns(tables, options)
    facts = gather(tables, options, on_progress)
    if options.client == "hospital":
        client = rows.hospital(facts.stays)
    else:
        client = rows.region(facts.stays, tables["hospital"])
    groups = {name: GROUPS[name](facts.stays) for name in options.sensitive}
    kept, flow = select(facts, client, groups, options)
    stays = facts.stays[kept].reset_index(drop=True)
    if options.features == "apache":
        features = apache(tables, stays)
    else:
        features = day_one(tables, stays, facts.span.start[kept], on_progress)
    roles = {options.client: client[kept], options.label: facts.label[kept].astype(np.int64)}
    roles |= {name: codes[kept] for name, codes in groups.items()}
    frame = pd.concat([pd.DataFrame(roles), _inputs(features, options)], axis=1)
    notes = _notes(facts, flow, frame, options)
    return Prepared(frame, options, len(facts.stays), flow, notes)


def needed_tables(options: Options) -> dict[str, str]:
    """Return the tables needed, each with the end of the message where it is missing."""
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
    """Read what the rules need to know about each stay.

    Of the charts it takes a pass of its own: which hours are of day one is only known after it.
    """
    stays = rows.read_stays(tables["patient"])
    prediction = rows.predicted_mortality(tables["apachePatientResult"], stays)
    plans = tables.get("carePlanGeneral")
    limit = rows.first_care_limitation(plans, stays) if plans else None
    charted, label = options.features != "apache", LABELS[options.label](stays)
    if charted:
        told = on_progress and partial(_first_pass, on_progress)
        span = rows.heart_rate_span(tables["nurseCharting"], stays, told)
    else:
        span = rows.unit_span(stays)
    return Facts(stays, span, charted, prediction, limit, label)


def _first_pass(on_progress: OnProgress, table: str, share: float) -> None:
    on_progress(f"{table}: times", share)


def select(
    facts: Facts, client: Texts, groups: Mapping[str, Texts], options: Options
) -> tuple[Mask, tuple[Step, ...]]:
    """Apply every rule: the published ones, then the size of a client, then unknown groups."""
    removals = rows.failures(facts)
    words = {rule.name: rule.words for rule in RULES}
    n_stays = len(facts.stays)
    in_cohort, _ = rows.follow(n_stays, removals, words)
    smallest = options.smallest_client
    removals["client"] = rows.small_clients(client, in_cohort, smallest)
    words["client"] = f"{options.client} with fewer than {smallest} stays left"
    for name, texts in groups.items():
        removals[name] = np.array([text is None for text in texts])
        words[name] = {"race": "ethnicity missing", "gender": "gender not known"}[name]
    kept, flow = rows.follow(n_stays, removals, words)
    if not kept.any():
        raise DataError(_describe_empty_cohort(flow, client, in_cohort, options))
    return kept, flow


def _inputs(features: Frame, options: Options) -> Frame:
    """Return the features without the sensitive columns themselves."""
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
    unknown = options.client == "region" and frame["region"] == rows.UNKNOWN_REGION
    if count := int(np.sum(unknown)):
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


def cohort_path(out: Path) -> Path:
    """Return the file of the cohort flow: ``stays.cohort.json`` for ``stays.parquet``."""
    return out.with_suffix(".cohort.json")


def check_out(out: Path) -> None:
    """Check that the file can be written, before hours of reading."""
    if out.suffix.lower() != ".parquet":
        raise ValueError(f"`out` must end in .parquet, got {str(out)!r}.")
    if not out.parent.is_dir():
        raise DataError(f"There is no folder {str(out.parent)!r} to write to. Make it first.")
    if out.is_dir():
        raise DataError(f"`out` must be a file, got the folder {str(out)!r}.")


@dataclass(frozen=True, slots=True)
class ClientCounts:
    """Rows, label rate and, for each sensitive attribute, group sizes of one client."""

    name: str
    rows: int
    positive_rate: float
    groups: Mapping[str, Mapping[str, int]]


def client_counts(prepared: Prepared) -> list[ClientCounts]:
    """Return the counts of each client, the largest first."""
    options, frame, counts = prepared.options, prepared.frame, []
    for name, own in frame.groupby(options.client, sort=True):
        sizes = {one: own[one].value_counts().sort_index().items() for one in options.sensitive}
        groups = {one: {str(group): int(n) for group, n in of} for one, of in sizes.items()}
        counts.append(ClientCounts(str(name), len(own), float(own[options.label].mean()), groups))
    return sorted(counts, key=lambda client: (-client.rows, client.name))


def cohort_record(prepared: Prepared) -> dict[str, object]:
    """Counts only, as plain JSON values: options, flow, clients, notes."""
    options = prepared.options
    return {
        "schema": 1,
        "fcfl_version": version("fcfl"),
        "features": options.features,
        "label": options.label,
        "client": options.client,
        "min_stays": options.smallest_client,
        "sensitive": list(options.sensitive),
        "stays_read": prepared.n_read,
        "flow": [asdict(step) for step in prepared.flow],
        "clients": [asdict(client) for client in client_counts(prepared)],
        "inputs": prepared.features,
        "notes": list(prepared.notes),
    }


def write_prepared(prepared: Prepared, out: Path) -> Path:
    """Write the table and its cohort record; if interrupted or out of space, neither is touched."""
    check_out(out)
    beside = cohort_path(out)
    drafts = {path: path.with_name(f".draft-{path.name}") for path in (out, beside)}
    try:
        prepared.frame.to_parquet(drafts[out], index=False)
        text = json.dumps(cohort_record(prepared), indent=1, ensure_ascii=False)
        drafts[beside].write_text(text + "\n", encoding="utf-8")
        for path, draft in drafts.items():
            with open(draft, "rb+") as file:
                os.fsync(file.fileno())
            os.replace(draft, path)
    except BaseException:
        for draft in drafts.values():
            draft.unlink(missing_ok=True)
        raise
    return beside
