"""Run training: settings (`Experiment`), and the folder that `run_experiment` writes."""

from .run import Finished, run_experiment
from .settings import Experiment

__all__ = ["Experiment", "Finished", "run_experiment"]
