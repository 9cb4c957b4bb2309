"""A fitted classifier as a folder: one JSON file, and safetensors for a torch module's weights."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from fcfl._files import replace_file
from fcfl.audit import Audit, Estimate, Evidence, PartAudit
from fcfl.errors import DataError
from fcfl.federation.codec import decode, encode
from fcfl.results import result_from_json, result_to_json
from fcfl.rules import Difference, Ratio
from fcfl.server.method import RoundInfo
from fcfl.server.registry import METHODS

_KIND = "fcfl-classifier-2"
_FILE = "classifier.json"
_CLASSES: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        *(Difference, Ratio, RoundInfo, Audit, PartAudit, Estimate, Evidence),
        *(registered.method for registered in METHODS.values()),
    )
}
_LEARNED = ("clients_", "rules_", "levels_", "history_", "audit_", "n_iter_", "n_features_in_")


def write_classifier(classifier: Any, folder: Path) -> None:
    """Write everything but the architecture of a module."""
    settings = {**classifier.get_params(deep=False), "model": None}
    if isinstance(settings["budget"], list):
        settings["budget"] = tuple(settings["budget"])
    if type(settings["method"]) not in (str, *_CLASSES.values()):  # of the caller's own
        settings["method"] = settings["method"].name
    learned = {name: getattr(classifier, name) for name in _LEARNED}
    names = getattr(classifier, "feature_names_in_", None)
    state, _ = encode({"settings": settings, "learned": learned}, _CLASSES)
    content = {
        "kind": _KIND,
        "classes": classifier.classes_.tolist(),
        "feature_names": None if names is None else names.tolist(),
        "params": _params(classifier) if classifier.model is None else None,
        "state": state,
        "result": result_to_json(classifier.result_),
    }
    folder.mkdir(parents=True, exist_ok=True)
    if classifier.model is not None:
        from fcfl.torch import save_module

        save_module(classifier.module_, folder)
    replace_file(folder / _FILE, (json.dumps(content, indent=1) + "\n").encode())


def read_classifier(cls: Any, folder: Path, model: Any) -> Any:
    """Build the classifier again; a module's architecture comes from ``model``."""
    path = folder / _FILE
    if not path.exists():
        raise DataError(f"There is no classifier in {str(folder)!r}: it has no {_FILE}.")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["kind"] != _KIND:
            raise DataError(f"{str(path)!r} holds a {content['kind']!r}, not a {_KIND!r}.")
        state = decode(content["state"], {}, _CLASSES)
        classifier = cls(**{**state["settings"], "model": model})
        for name in _LEARNED:
            setattr(classifier, name, state["learned"][name])
        classifier.classes_ = np.array(content["classes"])
        if content["feature_names"] is not None:
            classifier.feature_names_in_ = np.array(content["feature_names"], dtype=object)
        classifier.result_ = result_from_json(content["result"], str(path))
        classifier.prices_ = classifier.result_.prices
        params = content["params"]
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{str(path)!r} is not a whole classifier ({error}).") from None
    if (params is None) != (model is not None):
        where = f"The classifier in {str(folder)!r}"
        if params is not None:
            raise ValueError(f"{where} is linear and takes no `model`.")
        raise ValueError(
            f"{where} is a network and needs `model`, a module of the same architecture: "
            f"FCFLClassifier.load({str(folder)!r}, model=module)."
        )
    if params is None:
        from fcfl.torch import load_module

        classifier.module_ = load_module(model, folder)
    else:
        classifier._take_params(np.array(params, dtype=np.float64))
    return classifier


def _params(classifier: Any) -> list[float]:
    params: list[float] = np.append(classifier.coef_, classifier.intercept_).tolist()
    return params
