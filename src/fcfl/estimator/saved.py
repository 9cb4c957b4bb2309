"""Write a fitted classifier to a folder with the files of a run, and read it.

``classifier.json`` holds what a run's files lack: parameters, rules, groups and audit. A run of the
command line has no such file. A classifier read from its folder encodes tables as the run did and
has no `FCFLClassifier.audit_`.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fcfl._files import replace_file, write_json
from fcfl._types import ClientId
from fcfl.audit.auditing import Audit, GroupScores, Part
from fcfl.audit.verdicts import Disparity, Forecast, GroupCount
from fcfl.errors import DataError
from fcfl.federation.checkpoint import History
from fcfl.federation.serialise import Serialiser, plain
from fcfl.methods.method import RoundInfo
from fcfl.methods.registry import METHODS
from fcfl.models.linear import load_model
from fcfl.models.loss import LOSSES, as_loss
from fcfl.models.model import MODEL, Inputs, read_model_file, whole_model
from fcfl.results import HISTORY, RESULT, Result, read_run
from fcfl.rules import Difference, Ratio, Rule

_KIND = "fcfl-classifier-4"
_FILE = "classifier.json"
_STATE = Serialiser(
    Any,
    also=(
        *(Difference, Ratio, RoundInfo, Audit, Part, Disparity, Forecast, GroupCount, GroupScores),
        *(registered.method for registered in METHODS.values()),
        *LOSSES.values(),
    ),
)
_LEARNED = ("rules_", "levels_", "audit_", "n_features_in_")


def write_classifier(classifier: Any, folder: Path) -> None:
    """Write the classifier; of a torch module only the weights, not the architecture."""
    settings = {**classifier.get_params(deep=False), "model": None}
    if isinstance(settings["budget"], list):
        settings["budget"] = tuple(settings["budget"])
    if type(settings["method"]) not in (str, *_STATE.classes.values()):  # a class of the caller
        settings["method"] = settings["method"].name
    loss = as_loss("loss", settings["loss"])
    if type(loss) not in LOSSES.values():
        raise ValueError(f"`loss` must be one of fcfl's own to be saved, got {loss!r}.")
    learned = {name: getattr(classifier, name) for name in _LEARNED if hasattr(classifier, name)}
    names = getattr(classifier, "feature_names_in_", None)
    state = plain({"settings": settings, "learned": learned}, _STATE.classes)
    feature_names = None if names is None else names.tolist()
    content = {"kind": _KIND, "feature_names": feature_names, "state": state}
    folder.mkdir(parents=True, exist_ok=True)
    model, params = classifier._trained()
    model.write(params, folder, _inputs_of(classifier))
    with History(folder / HISTORY) as rounds:
        for info in classifier.history_:
            rounds.append(info)
    replace_file(folder / _FILE, (json.dumps(content, indent=1) + "\n").encode())
    write_json(folder / RESULT, classifier.result_)  # written last: it marks the folder as complete


def _inputs_of(classifier: Any) -> Inputs:
    """Return the description of `X`: plain numbers, or the columns of the run read by `load`."""
    negative, positive = classifier.classes_.tolist()
    if classifier.schema_ is not None:
        inputs = Inputs(classifier.schema_, (negative, positive))
    else:
        numbered = [f"x{i}" for i in range(classifier.n_features_in_)]
        names = getattr(classifier, "feature_names_in_", numbered)
        inputs = Inputs.plain(map(str, names), (negative, positive))
    column = classifier._client_column
    return replace(inputs, thresholds=classifier.thresholds_, client_column=column)


def read_classifier(cls: Any, folder: Path, model: Any) -> Any:
    """Read a classifier; ``model`` provides the architecture of a torch module."""
    path = folder / MODEL
    if not path.exists():
        raise DataError(f"There is no classifier in {str(folder)!r}: it has no {MODEL}.")
    content = read_model_file(path)
    _check_module(content, folder, model)
    with whole_model(path):
        inputs = Inputs.from_json(content)
    run = read_run(folder)
    if run.result is None:
        raise DataError(f"There is no classifier in {str(folder)!r}: it has no {RESULT}.")
    own = folder / _FILE
    classifier = _from_own_file(cls, own, model) if own.exists() else _from_run(cls, run.result)
    classifier.classes_ = np.array(inputs.labels)
    classifier._take_result(run.result, run.history)
    classifier.schema_ = None if inputs.is_plain else inputs.schema
    classifier.thresholds_, classifier._client_column = inputs.thresholds, inputs.client_column
    if classifier.schema_ is not None:
        names = [column.name for column in inputs.schema.columns]
        classifier.feature_names_in_ = np.array(names, dtype=object)
        classifier.n_features_in_ = len(names)
    if model is None:
        saved = load_model(folder)
        classifier._take_params(saved.params)
        if not own.exists():
            classifier.loss, classifier.threshold = saved.model.loss, saved.model.threshold
    else:
        from fcfl.models.torch_module import TorchModule

        read = TorchModule(model).read(folder)
        classifier.module_, classifier.threshold = read.module, read.threshold
    return classifier


def _check_module(content: dict[str, Any], folder: Path, model: Any) -> None:
    """Raise unless ``model`` is given for a network, and only for a network."""
    is_network = content["kind"] == "fcfl-torch-1"
    where = f"The classifier in {str(folder)!r}"
    if is_network and model is None:
        raise ValueError(
            f"{where} is a network and needs `model`, a module of the same architecture: "
            f"FCFLClassifier.load({str(folder)!r}, model=module)."
        )
    if not is_network and model is not None:
        raise ValueError(f"{where} is linear and takes no `model`.")


def _from_own_file(cls: Any, path: Path, model: Any) -> Any:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["kind"] != _KIND:
            raise DataError(f"{str(path)!r} holds a {content['kind']!r}, not a {_KIND!r}.")
        state = _STATE.restore(content["state"])
        classifier = cls(**{**state["settings"], "model": model})
        for name, value in state["learned"].items():
            setattr(classifier, name, value)
        if content["feature_names"] is not None:
            classifier.feature_names_in_ = np.array(content["feature_names"], dtype=object)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{str(path)!r} is not a whole classifier ({error}).") from None
    return classifier


def _from_run(cls: Any, result: Result) -> Any:
    """Return a classifier with the settings of a run by the command line."""
    rules = tuple(rules_of_result(result))
    classifier = cls(
        budget=rules or None,
        method=result.method,
        l2=result.l2,
        objective=result.objective,
        min_group_rows=None if result.audit is None else result.audit.min_group_rows,
        thresholds="common" if result.thresholds is None else "group",
        random_state=result.seed or 0,
    )
    classifier.rules_ = rules
    classifier.levels_ = _levels(result)
    return classifier


def rules_of_result(result: Result) -> Iterator[Rule]:
    """Yield the rules of a result, with every client's budget."""
    kinds: dict[str, type[Difference] | type[Ratio]] = {"difference": Difference, "ratio": Ratio}
    budgets: dict[tuple[str, str, str], dict[ClientId | None, float]] = {}
    for client, part in (*result.clients.items(), (None, result.overall)):
        for entry in part.train.disparities:
            found = budgets.setdefault((entry.rule, entry.metric, entry.attribute), {})
            if entry.budget is not None:
                found[client] = entry.budget
    for (kind, metric, attribute), found in budgets.items():
        rule: Any = kinds[kind]
        of_all_rows = found.pop(None, None)
        if found or of_all_rows is None:
            yield rule(metric, attribute, found or None)
        if of_all_rows is not None:
            yield rule(metric, attribute, of_all_rows, "global")


def _levels(result: Result) -> dict[str, tuple[str, ...]]:
    levels: dict[str, dict[str, None]] = {}
    for client in result.clients.values():
        for entry in client.train.disparities:
            groups = levels.setdefault(entry.attribute, {})
            groups.update(dict.fromkeys(group.group for group in entry.groups))
    return {attribute: tuple(groups) for attribute, groups in levels.items()}
