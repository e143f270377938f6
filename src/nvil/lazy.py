"""Names that are imported when they are first used, so that `nvil --help` does not wait for JAX."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazy(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` (PEP 562) for a package whose names live in the modules `homes` says.

    A name whose home is itself, such as `{"layers": "layers"}`, is a module of the package.
    """

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(f"{package}.{homes[name]}")
        return module if homes[name] == name else getattr(module, name)

    return get, lambda: sorted(homes)
