"""One run, from its settings (`Experiment`) to a folder (`run_experiment`)."""

from .run import Finished, run_experiment
from .settings import Experiment

__all__ = ["Experiment", "Finished", "run_experiment"]
