"""Every test runs with shapes and types checked at each call, and without silent promotion between them."""

from jaxtyping import install_import_hook

install_import_hook("nvil", "beartype.beartype")  # before anything imports nvil

import jax  # noqa: E402
import pytest  # noqa: E402


@pytest.fixture(autouse=True)
def _strict_promotion():
    with jax.numpy_dtype_promotion("strict"):
        yield


@pytest.fixture
def float64():
    """Exact tests are in double precision."""
    with jax.enable_x64(True):
        yield
