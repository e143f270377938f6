"""`nvil data`: the named data sets."""

from typing import Literal

from tyro.conf import Positional

from nvil.cli import in_flags
from nvil.cli.options import command
from nvil.errors import UsageError, choose


@command
def data(action: Positional[Literal["list", "fetch"]], name: Positional[str | None] = None) -> None:
    """List the named data sets, or fetch one.

    A file in the folder $NVIL_DATA, or in a folder named like the data set in it, is taken first; what is not there is
    downloaded to a cache folder and checked.

    For example:
      nvil data list
      nvil data fetch binarized-mnist

    Args:
        action: list them, or fetch one.
        name: The name of the data set to fetch.

    """
    from nvil.data.registry import NAMED

    if action == "list":
        width = max(map(len, NAMED))
        for name, entry in NAMED.items():
            print(f"{name:{width}} {entry.cases} cases, {in_flags(entry.variables)}")
            print(f"{'':{width}} split: {entry.split}")
            here = "on this machine" if entry.here() else f"not on this machine (download: {entry.download})"
            print(f"{'':{width}} {entry.origin}; {here}")
        return
    if name is None:
        raise UsageError("Which one? Give a name that `nvil data list` shows.")
    choose("data set", name, NAMED)
    contents = NAMED[name].load()
    for split, rows in contents.splits.items():
        print(f"{split:10} {rows.shape[0]:>8} cases of {rows.shape[1]} variables")
    for path in NAMED[name].paths():
        print(f"file       {path}")
    print(f"next       nvil train --data {name}")
