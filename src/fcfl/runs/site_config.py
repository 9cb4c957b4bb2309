"""The run config of a run over sites: the keys of ``[tool.flwr.app.config]``."""

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
from fcfl.runs import options
from fcfl.runs.many_runs import COMPARED, check_compared, check_sweep
from fcfl.runs.settings import Experiment
from fcfl.sites.messages import Terms
from fcfl.sites.settings import Config, ConfigValue

COMMANDS = ("train", "compare", "sweep", "negotiate")
FOR_SITES = tuple(name for name in COMPARED if METHODS[name].traits.over_sites)
TABLE = "sites"  # the table in the settings of a run over sites
_OTHERWISE: dict[str, tuple[object, str]] = {  # defaults and help that differ from `fcfl train`
    "policy": (
        None,
        "Absolute path of a policy file at the server, instead of metric, budget, ratio and scope.",
    ),
    "method": (
        "sqp",
        f"One of {', '.join(FOR_SITES)}. Methods other than sqp need hundreds of exchanges.",
    ),
    "rounds": (
        (200, 200),
        "Maximum number of rounds per stage. In a comparison, methods of one stage get the sum.",
    ),
    "l2": (0.003, "Weight of |params|²/2 in every loss. auto: choose it by leave-one-out losses."),
    "objective": (
        10.0,
        "max: the largest client loss. mean: the mean loss. A number: a smooth maximum, close to "
        "the mean if the number is large. auto: choose it by leave-one-out losses.",
    ),
}
_OF_RUN = (  # settings of `fcfl train` that apply over sites, in the order of the run config
    *("label", "sensitive", "positive", "drop", "drop_unlabelled", "seed", "test_size"),
    *("metric", "budget", "relative_budget", "ratio", "scope", "policy", "confidence"),
    *("max_accuracy_loss", "max_rate_shift", "pooling", "new_rows"),
    *("min_group_rows", "method", "published", "step_size", "rounds", "options"),
    *("l2", "objective", "loss", "threshold", "curvature", "protects"),
    *("starts", "privacy"),
)
_OF_SQP = ("rounds", "l2", "objective")  # settings whose defaults in `_OTHERWISE` are for sqp
_OF_COMMAND = {
    "methods": ("compare",),
    "budgets": ("sweep", "negotiate"),
    "relative": ("sweep",),
    "by": ("negotiate",),
    "most": ("negotiate",),
}  # keys that apply to some commands only
_NEGOTIATED = (
    *("command", "budgets", "by", "most", "sites", "nodes", "label", "sensitive", "positive"),
    *("drop", "drop_unlabelled", "seed", "test_size", "metric", "min_group_rows", "l2"),
    *("objective", "loss", "module", "site_timeout", "resume", "overwrite", "out"),
)  # the only keys of a negotiation
_WHERE = "the run config"


def _check_absolute(name: str, path: str | Path) -> None:
    if not Path(path).is_absolute():
        raise ValueError(
            f"`{name}` must be an absolute path, got {str(path)!r}, because the server's app runs "
            "in its own folder."
        )


@dataclass(frozen=True)
class SitesConfig:
    """A checked run config: an experiment, and settings of runs over sites only."""

    experiment: Experiment
    _: KW_ONLY
    sites: Annotated[tuple[ClientId, ...], options.Written("NAME,…", read=options.read_sites)]
    """Names of all sites, separated by commas. The run waits until all of them are connected."""
    out: Annotated[
        Path, options.Written("FOLDER", read=lambda _, text: Path(text)), _check_absolute
    ]
    """Absolute path of the folder to write at the server."""
    command: Annotated[str, options.one_of(COMMANDS)] = "train"
    """Command to run: train, compare, sweep or negotiate."""
    methods: Annotated[
        tuple[str, ...],
        options.Written(
            help=f"compare: methods, separated by commas. Default: {', '.join(FOR_SITES)}."
        ),
    ] = ()
    """Methods to compare."""
    budgets: tuple[float, ...] = ()
    """sweep: budgets to train with. negotiate: budgets to combine."""
    relative: tuple[float, ...] = ()
    """sweep: budgets as shares of each site's disparity without budgets, instead of budgets."""
    by: VotingRule = "nash"
    """negotiate: voting rule that decides."""
    most: Annotated[int, check_count] = MOST
    """negotiate: maximum number of combinations to train. For each, sites send exact counts of
    decisions."""
    nodes: Annotated[
        Mapping[ClientId, int] | None, options.Written("NAME=ID,…", read=options.read_nodes)
    ] = None
    """Flower: node of each site, NAME=ID, as listed by `flwr supernode list`. Other nodes cannot
    use the site's name."""
    module: str | None = None
    """Torch module to train instead of a linear model, as package.module:function. It must be
    installed at the server and at all sites."""
    lookahead: tuple[float, ...] | None = None
    """Lengths of shorter steps to evaluate in the same exchange as the full step. Default: as
    in-process."""
    site_timeout: Annotated[float, options.Written("SECONDS"), check_positive] = 600.0
    """Maximum time to wait for a site's response, in seconds."""
    max_age: Annotated[int, check_count] = 0
    """Maximum number of rounds for which an absent site's last report is used."""
    resume: bool = False
    """Continue from the last checkpoint in out."""
    overwrite: bool = False
    """Replace a run with other settings in out."""

    def __post_init__(self) -> None:
        options.check_fields(self, "-")
        unbound = [site for site in self.sites if self.nodes and site not in self.nodes]
        if unbound:
            raise ValueError(
                f"`nodes` must name a node for every site or be left out; {unbound[0]!r} has none. "
                "`flwr supernode list` lists nodes."
            )
        for name, commands in _OF_COMMAND.items():
            default = options.settings_of(SitesConfig)[name].default
            if self.command not in commands and getattr(self, name) != default:
                allowed = " or ".join(map(repr, commands))
                raise ValueError(f"`{name}` belongs to command {allowed}, got {self.command!r}.")
        for name in self.methods:
            check_compared(name)
        for name in (self.experiment.method, *self.methods):
            if not METHODS[name].traits.over_sites:
                raise ValueError(
                    f"`method` must be one of {', '.join(FOR_SITES)} over sites, got {name!r}, "
                    "which requests quantities that sites do not send."
                )
        self._check_command()

    def _check_command(self) -> None:
        """Raise `ValueError` if the settings do not fit the command."""
        if self.command == "compare":
            self.experiment.check_not_private("comparison")
            if self.experiment.method != "sqp":
                raise ValueError(
                    "`method` must be left out in a comparison, which has `methods`, got "
                    f"{self.experiment.method!r}."
                )
        if self.command == "negotiate":
            Procedure(self.budgets or None, self.by, self.most)
        if self.command == "sweep":
            if bool(self.budgets) == bool(self.relative):
                raise ValueError("A sweep requires either `budgets` or `relative`.")
            values, relative = self.swept
            check_sweep(self.experiment, values, relative=relative)

    @classmethod
    def from_run_config(cls, config: Config) -> "SitesConfig":
        """Return the checked settings of a run config; empty text stands for the default."""
        check_keys(config, CONFIG, _WHERE)
        given = {one.name: _read(one, config.get(key, CONFIG[key][0])) for key, one in KEYS.items()}
        if given["command"] == "negotiate":
            for key, one in KEYS.items():
                if one.name not in _NEGOTIATED and given[one.name] != _default_of(one):
                    raise ValueError(
                        f"`{key}` must be left out in a negotiation, got {given[one.name]!r}: sqp "
                        "trains all combinations, with budgets for differences."
                    )
        if not given["label"] or not given["sensitive"]:
            raise ValueError("`label` and `sensitive` must name columns of every site's table.")
        if given["policy"] is not None:
            _check_absolute("policy", given["policy"])
        own = {name: given.pop(name) for name in options.settings_of(cls)}
        if given["privacy"] is not None:
            given["method"] = "private"
        if given["method"] != "sqp":
            unset = [name for name in _OF_SQP if given[name] == _OTHERWISE[name][0]]
            given |= dict.fromkeys(unset)
        if own["command"] == "compare":
            own["methods"] = own["methods"] or FOR_SITES
            if given["rounds"] == _OTHERWISE["rounds"][0]:
                given["rounds"] = None  # the default of each method
        return cls(Experiment(table=f"{TABLE} {', '.join(own['sites'])}", **given), **own)

    @property
    def written(self) -> Path:
        """Return the path of the file that is written at the end of the run."""
        names = {"compare": COMPARISON, "negotiate": NEGOTIATION}
        return self.out / names.get(self.command, RESULT)

    @property
    def swept(self) -> tuple[tuple[float, ...], bool]:
        """Return the budgets of a sweep, and whether they are relative."""
        return self.budgets or self.relative, bool(self.relative)

    @property
    def procedure(self) -> Procedure:
        """Return the procedure of a negotiation."""
        return Procedure(self.budgets or None, self.by, self.most)

    @property
    def terms(self) -> Terms:
        """Return the terms that a site needs for its introduction."""
        run = self.experiment
        return Terms(
            *(str(run.label), run.sensitive, run.drop, run.positive, run.test_size, run.seed),
            drop_unlabelled=run.drop_unlabelled,
        )

    def make_method(self, experiment: Experiment) -> Any:
        """Return the method of an experiment, with ``lookahead`` if given."""
        method = experiment.make_method()
        if self.lookahead is None or not hasattr(method, "lookahead"):
            return method
        return replace(method, lookahead=self.lookahead)


def run_config(given: Mapping[str, object]) -> dict[str, ConfigValue]:
    """Return a run config from values by field, as Flower's types: numbers, truth values, text."""
    return {key: _write(given[one.name]) for key, one in KEYS.items() if one.name in given}


def parse_settings(pairs: Iterable[str]) -> dict[str, ConfigValue]:
    """Return a partial run config from ``key=value`` texts."""
    settings: dict[str, ConfigValue] = {}
    for pair in pairs:
        key, equals, text = (part.strip() for part in pair.partition("="))
        if not equals:
            raise ValueError(f"`set` must be KEY=VALUE, got {pair!r}.")
        check_keys([key], KEYS, _WHERE)
        settings[key] = _write(_read(KEYS[key], text))
    return settings


def config_text(given: Config, *, without: Collection[str] = ()) -> str:
    """Return the whole run config as TOML, with each key's help as a comment above it."""
    return "".join(
        f"# {meaning}\n{tomli_w.dumps({key: given.get(key, default)})}"
        for key, (default, meaning) in CONFIG.items()
        if key not in without
    )


def write_app(folder: Path, files: Mapping[str, str], *, overwrite: bool) -> None:
    """Write the files of an app; raise `FCFLError` if one exists and not ``overwrite``."""
    if folder.exists() and not folder.is_dir():
        raise FCFLError(f"An app requires a folder, but {str(folder)!r} is a file.")
    present = [name for name in files if (folder / name).exists()]
    if present and not overwrite:
        raise FCFLError(
            f"{str(folder / present[0])!r} already exists. Choose another folder, or pass "
            "`--overwrite`."
        )
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")


def _read(one: options.Setting, value: object) -> Any:
    """Return one value of a run config; empty text stands for the default, if there is one."""
    value = value.strip() if isinstance(value, str) else value
    if value == "" and one.default is not MISSING:
        return _default_of(one)
    return one.from_toml(value)


def _default_of(one: options.Setting) -> Any:
    default = None if one.default is MISSING else one.default
    return _OTHERWISE.get(one.name, (default, ""))[0]


def _help_of(one: options.Setting) -> str:
    return _OTHERWISE.get(one.name, (None, one.help))[1]


def _write(value: object) -> ConfigValue:
    if isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, Mapping):
        return options.write_pairs(value)
    if isinstance(value, (tuple, list)):
        return ",".join(map(str, value))
    return "" if value is None else str(value)


def _keys() -> dict[str, options.Setting]:
    """Return the fields of all keys in order, from the sites to the folder."""
    run = options.settings_of(Experiment)
    sites, out, *own = options.settings_of(SitesConfig).values()
    swept = [one.name for one in own].index("module")
    ordered = (sites, *own[:swept], *(run[name] for name in _OF_RUN), *own[swept:], out)
    return {one.key: one for one in ordered}


KEYS = _keys()
CONFIG: dict[str, tuple[ConfigValue, str]] = {
    key: (_write(_default_of(one)), _help_of(one)) for key, one in KEYS.items()
}
"""Default, as Flower's type, and help of each key, from the fields of the settings."""
