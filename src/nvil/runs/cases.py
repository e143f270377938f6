"""Other cases for a trained run, made what its own data was made."""

import dataclasses
from typing import Any

from nvil.data.dataset import Cases
from nvil.data.loading import load_cases
from nvil.errors import UsageError
from nvil.runs.run import Run


def load_run_cases(run: Run, data: Any, **how: Any) -> Cases:
    """The cases of a named set, a file or an array, made what the run's own data was, but for what is said of `how`."""
    if run.config is None:
        raise UsageError(f"{run.folder} was trained from Python on a pair of its own; give cases to nvil.encode.")
    choices = run.config.choices()
    given = {name: value for name, value in how.items() if value is not None}
    if given.get("binarize", choices.binarize) != choices.binarize:  # and so what it rests on
        choices = dataclasses.replace(choices, threshold=None, white=None)
    return load_cases(
        data,
        dataclasses.replace(choices, **given).checked(),
        visible=run.facts.visible,
        kind=run.kind,
        categories=run.facts.visible_categories,
        vocabulary=run.vocabulary,
        names=run.facts.names,
    )
