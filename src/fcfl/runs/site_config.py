"""The config of a run over sites: the keys of ``[tool.flwr.app.config]``."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import KW_ONLY, MISSING, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import tomli_w

from fcfl._checks import check_count, check_keys, check_positive
from fcfl._types import ClientId
from fcfl.errors import FCFLError
from fcfl.methods.registry import METHODS
from fcfl.negotiation.negotiating import MOST, Procedure
from fcfl.results import COMPARISON, NEGOTIATION, RESULT
from fcfl.results.negotiation import VotingRule
from fcfl.runs.many_runs import COMPARED, check_compared, check_sweep
from fcfl.runs.options import (
    Setting,
    Written,
    check_fields,
    one_of,
    read_nodes,
    read_sites,
    settings_of,
    write_pairs,
)
from fcfl.runs.settings import Experiment
from fcfl.sites.messages import Terms
from fcfl.sites.settings import Config, ConfigValue

COMMANDS = ("train", "compare", "sweep", "negotiate")
FOR_SITES = tuple(name for name in COMPARED if METHODS[name].traits.over_sites)
TABLE = "sites"  # stands for a table in the settings of a run whose rows are elsewhere
_OTHERWISE: dict[str, tuple[object, str]] = {  # defaults and help where `fcfl train` has others
    "policy": (None, "Absolute path of a policy file at the server, instead of the four above."),
    "method": (
        "sqp",
        f"One of {', '.join(FOR_SITES)}; the others than sqp take hundreds of exchanges or more.",
    ),
    "rounds": (
        (200, 200),
        "Maximum number of rounds of each stage; a comparison's methods of one stage have the sum.",
    ),
    "l2": (0.003, "Weight of |params|²/2 in every loss; auto: chosen by leave-one-out losses."),
    "objective": (
        10.0,
        "max: the largest loss; mean: the mean loss; a number: a smooth maximum, near the mean "
        "when large; auto: chosen by leave-one-out losses.",
    ),
}
_OF_RUN = (  # settings of `fcfl train` that a run over sites has, in the order of its config
    *("label", "sensitive", "positive", "drop", "drop_unlabelled", "seed", "test_size"),
    *("metric", "budget", "relative_budget", "ratio", "scope", "policy", "confidence"),
    *("max_accuracy_loss", "max_rate_shift", "pooling", "new_rows"),
    *("min_group_rows", "method", "published", "step_size", "rounds", "options"),
    *("l2", "objective", "loss", "threshold", "curvature", "protects"),
    *("starts", "privacy"),
)
_OF_SQP = ("rounds", "l2", "objective")  # whose defaults in `_OTHERWISE` are those of the method
_OF_COMMAND = {
    "methods": ("compare",),
    "budgets": ("sweep", "negotiate"),
    "relative": ("sweep",),
    "by": ("negotiate",),
    "most": ("negotiate",),
}  # keys that only some commands have
_NEGOTIATED = (
    *("command", "budgets", "by", "most", "sites", "nodes", "label", "sensitive", "positive"),
    *("drop", "drop_unlabelled", "seed", "test_size", "metric", "min_group_rows", "l2"),
    *("objective", "loss", "module", "site_timeout", "resume", "overwrite", "out"),
)  # the only keys of a negotiation
_WHERE = "the run config"


def _check_absolute(name: str, path: str | Path) -> None:
    if not Path(path).is_absolute():
        raise ValueError(
            f"`{name}` must be an absolute path, got {str(path)!r}: the server's app runs in a "
            "folder of its own."
        )


@dataclass(frozen=True)
class SitesConfig:
    """A checked run config: an experiment, and the settings that only a run over sites has."""

    experiment: Experiment
    _: KW_ONLY
    sites: Annotated[tuple[ClientId, ...], Written("NAME,…", read=read_sites)]
    """Names of all sites, separated by commas; the run waits for every one of them."""
    out: Annotated[Path, Written("FOLDER", read=lambda _, text: Path(text)), _check_absolute]
    """Absolute path of the folder to write at the server."""
    command: Annotated[str, one_of(COMMANDS)] = "train"
    """What to do, as the command of the same name: train, compare, sweep, negotiate."""
    methods: Annotated[
        tuple[str, ...],
        Written(
            help=f"compare: methods, separated by commas; by default all: {', '.join(FOR_SITES)}."
        ),
    ] = ()
    """The methods."""
    budgets: tuple[float, ...] = ()
    """sweep: budgets to train under, one after another; negotiate: those to combine."""
    relative: tuple[float, ...] = ()
    """sweep: instead, shares of the disparity each site has without budgets."""
    by: VotingRule = "nash"
    """negotiate: the rule whose winner is written."""
    most: Annotated[int, check_count] = MOST
    """negotiate: combinations trained at most; each costs a site about one of its counts."""
    nodes: Annotated[Mapping[ClientId, int] | None, Written("NAME=ID,…", read=read_nodes)] = None
    """Flower: each site's node, NAME=ID, by `flwr supernode list`; no other may use its name."""
    module: str | None = None
    """A torch module instead of a linear model, as package.module:function, which is installed
    at the server and at every site."""
    lookahead: tuple[float, ...] | None = None
    """Shorter steps to request beside the full one; by default as in-process."""
    site_timeout: Annotated[float, Written("SECONDS"), check_positive] = 600.0
    """Seconds to wait for a site in a round."""
    max_age: Annotated[int, check_count] = 0
    """Rounds for which the last report of an absent site stays in force."""
    resume: bool = False
    """Continue from the last checkpoint in out."""
    overwrite: bool = False
    """Replace a run with other settings in out."""

    def __post_init__(self) -> None:
        check_fields(self, "-")
        unbound = [site for site in self.sites if self.nodes and site not in self.nodes]
        if unbound:
            raise ValueError(
                f"`nodes` must have the node of every site, or of none; {unbound[0]!r} has none. "
                "`flwr supernode list` shows them."
            )
        for name, commands in _OF_COMMAND.items():
            default = settings_of(SitesConfig)[name].default
            if self.command not in commands and getattr(self, name) != default:
                allowed = " or ".join(map(repr, commands))
                raise ValueError(f"`{name}` belongs to command {allowed}, got {self.command!r}.")
        for name in self.methods:
            check_compared(name)
        for name in (self.experiment.method, *self.methods):
            if not METHODS[name].traits.over_sites:
                raise ValueError(
                    f"`method` {name!r} does not run over sites: it requests more than they send. "
                    f"Choose of {', '.join(FOR_SITES)}, or train where all rows are in one place."
                )
        self._check_command()

    def _check_command(self) -> None:
        """Raise `ValueError` if the command lacks what it needs."""
        if self.command == "compare":
            self.experiment.check_not_private("comparison")
            if self.experiment.method != "sqp":
                raise ValueError(
                    "`method` must be left out in a comparison, whose methods are in `methods`, "
                    f"got {self.experiment.method!r}."
                )
        if self.command == "negotiate":
            Procedure(self.budgets or None, self.by, self.most)
        if self.command == "sweep":
            if bool(self.budgets) == bool(self.relative):
                raise ValueError("A sweep needs `budgets` or `relative`, and not both.")
            values, relative = self.swept
            check_sweep(self.experiment, values, relative=relative)

    @classmethod
    def from_run_config(cls, config: Config) -> "SitesConfig":
        """Read what Flower gives to the server app; empty text stands for the default."""
        check_keys(config, CONFIG, _WHERE)
        given = {one.name: _read(one, config.get(key, CONFIG[key][0])) for key, one in KEYS.items()}
        if given["command"] == "negotiate":
            for key, one in KEYS.items():
                if one.name not in _NEGOTIATED and given[one.name] != _default_of(one):
                    raise ValueError(
                        f"`{key}` must be left out in a negotiation, got {given[one.name]!r}: "
                        "combinations are trained by sqp with budgets for differences, each from "
                        "its beginning."
                    )
        if not given["label"] or not given["sensitive"]:
            raise ValueError("`label` and `sensitive` must name columns of every site's table.")
        if given["policy"] is not None:
            _check_absolute("policy", given["policy"])
        own = {name: given.pop(name) for name in settings_of(cls)}
        if given["privacy"] is not None:
            given["method"] = "private"
        if given["method"] != "sqp":
            unset = [name for name in _OF_SQP if given[name] == _OTHERWISE[name][0]]
            given |= dict.fromkeys(unset)
        if own["command"] == "compare":
            own["methods"] = own["methods"] or FOR_SITES
            if given["rounds"] == _OTHERWISE["rounds"][0]:
                given["rounds"] = None  # each method has its own
        return cls(Experiment(table=f"{TABLE} {', '.join(own['sites'])}", **given), **own)

    @property
    def written(self) -> Path:
        """The file whose presence marks the end of the run."""
        names = {"compare": COMPARISON, "negotiate": NEGOTIATION}
        return self.out / names.get(self.command, RESULT)

    @property
    def swept(self) -> tuple[tuple[float, ...], bool]:
        """The values of a sweep, and whether they are shares."""
        return self.budgets or self.relative, bool(self.relative)

    @property
    def procedure(self) -> Procedure:
        """The procedure of a negotiation."""
        return Procedure(self.budgets or None, self.by, self.most)

    @property
    def terms(self) -> Terms:
        """What a site needs before it can introduce itself."""
        run = self.experiment
        return Terms(
            *(str(run.label), run.sensitive, run.drop, run.positive, run.test_size, run.seed),
            drop_unlabelled=run.drop_unlabelled,
        )

    def make_method(self, experiment: Experiment) -> Any:
        """Return the method, with a look-ahead if one is given."""
        method = experiment.make_method()
        if self.lookahead is None or not hasattr(method, "lookahead"):
            return method
        return replace(method, lookahead=self.lookahead)


def run_config(given: Mapping[str, object]) -> dict[str, ConfigValue]:
    """Return values by field as Flower carries them: numbers, truth values, text."""
    return {key: _write(given[one.name]) for key, one in KEYS.items() if one.name in given}


def parse_settings(pairs: Iterable[str]) -> dict[str, ConfigValue]:
    """Read ``key=value`` texts as a part of a run config."""
    settings: dict[str, ConfigValue] = {}
    for pair in pairs:
        key, equals, text = (part.strip() for part in pair.partition("="))
        if not equals:
            raise ValueError(f"`set` must be KEY=VALUE, got {pair!r}.")
        check_keys([key], KEYS, _WHERE)
        settings[key] = _write(_read(KEYS[key], text))
    return settings


def config_text(given: Config, *, without: Collection[str] = ()) -> str:
    """Return the whole run config as TOML, each key below its meaning."""
    return "".join(
        f"# {meaning}\n{tomli_w.dumps({key: given.get(key, default)})}"
        for key, (default, meaning) in CONFIG.items()
        if key not in without
    )


def write_app(folder: Path, files: Mapping[str, str], *, overwrite: bool) -> None:
    """Write the files of an app; raise `FCFLError` if one exists and may not be replaced."""
    if folder.exists() and not folder.is_dir():
        raise FCFLError(f"{str(folder)!r} is a file; an app needs a folder.")
    present = [name for name in files if (folder / name).exists()]
    if present and not overwrite:
        raise FCFLError(
            f"{str(folder / present[0])!r} already exists. Choose another folder, or pass "
            "`--overwrite`."
        )
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")


def _read(one: Setting, value: object) -> Any:
    """Return one value of a run config; empty text is the default where there is one."""
    value = value.strip() if isinstance(value, str) else value
    if value == "" and one.default is not MISSING:
        return _default_of(one)
    return one.from_toml(value)


def _default_of(one: Setting) -> Any:
    default = None if one.default is MISSING else one.default
    return _OTHERWISE.get(one.name, (default, ""))[0]


def _help_of(one: Setting) -> str:
    return _OTHERWISE.get(one.name, (None, one.help))[1]


def _write(value: object) -> ConfigValue:
    if isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, Mapping):
        return write_pairs(value)
    if isinstance(value, (tuple, list)):
        return ",".join(map(str, value))
    return "" if value is None else str(value)


def _keys() -> dict[str, Setting]:
    """Return every key with its field, the sites first and the folder last."""
    run = settings_of(Experiment)
    sites, out, *own = settings_of(SitesConfig).values()
    swept = [one.name for one in own].index("module")
    ordered = (sites, *own[:swept], *(run[name] for name in _OF_RUN), *own[swept:], out)
    return {one.key: one for one in ordered}


KEYS = _keys()
CONFIG: dict[str, tuple[ConfigValue, str]] = {
    key: (_write(_default_of(one)), _help_of(one)) for key, one in KEYS.items()
}
"""Key, default as Flower carries it, and what it means: made from the settings' own fields."""
