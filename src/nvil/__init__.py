"""Directed latent variable models with discrete latents, trained jointly with an inference network (NVIL).

Build a pair (`sbn`, `fdarn`, `darn`), train it (`fit`, or a `Run` in a folder), then `evaluate`, `sample`, `encode`,
`reconstruct` or `walk`. How it learns is a `Learner`: one of `nvil.estimators`, made of `nvil.signals`, with one of
`nvil.optimisers`.
"""

from typing import TYPE_CHECKING, Any

from nvil.lazy import lazy

if TYPE_CHECKING:
    from nvil import annealing as annealing
    from nvil import contracts as contracts
    from nvil import data as data
    from nvil import devices as devices
    from nvil import diagnostics as diagnostics
    from nvil import domains as domains
    from nvil import estimators as estimators
    from nvil import exact as exact
    from nvil import layers as layers
    from nvil import likelihood as likelihood
    from nvil import models as models
    from nvil import networks as networks
    from nvil import optimisers as optimisers
    from nvil import report as report
    from nvil import rivals as rivals
    from nvil import rows as rows
    from nvil import runs as runs
    from nvil import signals as signals
    from nvil import sklearn as sklearn
    from nvil import sparse as sparse
    from nvil.apply import encode as encode
    from nvil.apply import reconstruct as reconstruct
    from nvil.apply import sample as sample
    from nvil.apply import walk as walk
    from nvil.contracts import Constant as Constant
    from nvil.contracts import Estimator as Estimator
    from nvil.contracts import Info as Info
    from nvil.contracts import Pair as Pair
    from nvil.contracts import Parameters as Parameters
    from nvil.contracts import trained as trained
    from nvil.data.streams import Stream as Stream
    from nvil.errors import DownloadError as DownloadError
    from nvil.errors import TrainingError as TrainingError
    from nvil.errors import UsageError as UsageError
    from nvil.evaluation import evaluate as evaluate
    from nvil.evaluation import evaluate_documents as evaluate_documents
    from nvil.learning import Learner as Learner
    from nvil.models import chain as chain
    from nvil.models import darn as darn
    from nvil.models import document_model as document_model
    from nvil.models import fdarn as fdarn
    from nvil.models import sbn as sbn
    from nvil.runs.config import Config as Config
    from nvil.runs.index import Index as Index
    from nvil.runs.run import Run as Run
    from nvil.runs.sweep import Sweep as Sweep
    from nvil.topic_words import topics as topics
    from nvil.training import Report as Report
    from nvil.training import fit as fit

_HOMES = {
    **{
        name: name
        for name in (
            "annealing",
            "contracts",
            "data",
            "devices",
            "diagnostics",
            "domains",
            "estimators",
            "exact",
            "layers",
            "likelihood",
            "models",
            "networks",
            "optimisers",
            "report",
            "rivals",
            "rows",
            "runs",
            "signals",
            "sklearn",
            "sparse",
        )
    },
    "encode": "apply",
    "reconstruct": "apply",
    "sample": "apply",
    "walk": "apply",
    "Constant": "contracts",
    "Estimator": "contracts",
    "Info": "contracts",
    "Pair": "contracts",
    "Parameters": "contracts",
    "trained": "contracts",
    "Stream": "data.streams",
    "DownloadError": "errors",
    "TrainingError": "errors",
    "UsageError": "errors",
    "evaluate": "evaluation",
    "evaluate_documents": "evaluation",
    "Learner": "learning",
    "chain": "models",
    "darn": "models",
    "document_model": "models",
    "fdarn": "models",
    "sbn": "models",
    "Config": "runs.config",
    "Index": "runs.index",
    "Run": "runs.run",
    "Sweep": "runs.sweep",
    "topics": "topic_words",
    "Report": "training",
    "fit": "training",
}
__all__ = list(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]
_get, __dir__ = lazy(__name__, _HOMES)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("nvil")
    if name in _HOMES:  # every kind of data is known wherever data is taken
        import nvil.data.sparse
        import nvil.data.streams  # noqa: F401
    return _get(name)
