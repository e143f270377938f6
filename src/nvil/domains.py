"""The values that data may hold. A visible layer names its domain, and refuses what it gives no probability."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool


class Domain(NamedTuple):
    """Which values are allowed, in words and as a test of every one; `hint` says what to do about others.

    Where it depends on a value's column, or on its neighbours, `of_rows` is true, and the test is of whole rows.
    """

    words: str
    allows: Callable[[np.ndarray], Bool[np.ndarray, "*_"]]
    hint: str = ""
    of_rows: bool = False


NUMBERS = Domain("finite numbers", np.isfinite)
BINARY = Domain(
    "0 and 1",
    lambda values: (values == 0) | (values == 1),
    "for grey levels see `binarize` of nvil.data.load; for word counts build the model with nvil.document_model",
)
COUNTS = Domain(
    "whole numbers from 0 up to 16777215",  # those that single precision holds exactly
    lambda values: (values >= 0) & (values < 2**24) & (values == np.round(values)),
)


def one_hot(categories: int) -> Domain:
    """Groups of `categories` columns, each with a single 1."""

    def allows(values: np.ndarray) -> Bool[np.ndarray, "*_"]:
        if values.shape[-1] % categories:  # not whole rows
            return np.zeros(values.shape, bool)
        groups = values.reshape(*values.shape[:-1], -1, categories)
        fits = (np.sum(groups == 1, axis=-1) == 1) & (np.sum(groups != 0, axis=-1) == 1)
        return np.broadcast_to(fits[..., None], groups.shape).reshape(values.shape)

    return Domain(f"a single 1 among every {categories} columns, and 0 elsewhere,", allows, of_rows=True)


def after(given: int, domain: Domain) -> Domain:
    """`domain` for all columns but the first `given`, which may hold any finite numbers."""
    if not given:
        return domain

    def allows(values: np.ndarray) -> Bool[np.ndarray, "*_"]:
        return np.concatenate([np.isfinite(values[..., :given]), domain.allows(values[..., given:])], axis=-1)

    return domain._replace(allows=allows, of_rows=True)
