"""One run, from its settings to a folder: `Experiment` says what, `run_experiment` does it."""

from .run import Finished, run_experiment
from .settings import Experiment

__all__ = ["Experiment", "Finished", "run_experiment"]
