"""Directed latent variable models with discrete latents, trained jointly with an inference network (NVIL)."""

from importlib.metadata import version as _version

from nvil import exact, layers, optimisers
from nvil.contracts import Estimator, Inference, Model, Pair, Parameters
from nvil.errors import TrainingError, UsageError
from nvil.estimators import nvil, reinforce
from nvil.evaluation import Evaluation, evaluate
from nvil.models import chain, sbn
from nvil.training import Best, Report, TrainState, fit

__version__ = _version("nvil")

__all__ = [
    "Best",
    "Estimator",
    "Evaluation",
    "Inference",
    "Model",
    "Pair",
    "Parameters",
    "Report",
    "TrainState",
    "TrainingError",
    "UsageError",
    "chain",
    "evaluate",
    "exact",
    "fit",
    "layers",
    "nvil",
    "optimisers",
    "reinforce",
    "sbn",
]
