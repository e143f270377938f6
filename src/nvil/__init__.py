"""Directed latent variable models with discrete latents, trained jointly with an inference network (NVIL)."""

from importlib.metadata import version as _version

from nvil import data, diagnostics, exact, layers, optimisers
from nvil.contracts import Estimator, Inference, Model, Pair, Parameters
from nvil.errors import DownloadError, TrainingError, UsageError
from nvil.estimators import nvil, reinforce, wake_sleep
from nvil.evaluation import DocumentEvaluation, Evaluation, evaluate, evaluate_documents
from nvil.models import chain, darn, fdarn, sbn
from nvil.runs import Config, Run
from nvil.streams import Stream
from nvil.training import Best, Report, TrainState, fit

__version__ = _version("nvil")

__all__ = [
    "Best",
    "Config",
    "DocumentEvaluation",
    "DownloadError",
    "Estimator",
    "Evaluation",
    "Inference",
    "Model",
    "Pair",
    "Parameters",
    "Report",
    "Run",
    "Stream",
    "TrainState",
    "TrainingError",
    "UsageError",
    "chain",
    "darn",
    "data",
    "diagnostics",
    "evaluate",
    "evaluate_documents",
    "exact",
    "fdarn",
    "fit",
    "layers",
    "nvil",
    "optimisers",
    "reinforce",
    "sbn",
    "wake_sleep",
]
