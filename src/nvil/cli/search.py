"""`nvil search`: the cases whose codes are nearest to a query's."""

from json import dumps as to_json
from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from nvil.cli.options import command
from nvil.errors import UsageError


@command
def search(
    run: Positional[Path],
    query: Positional[str | None] = None,
    data: Path | None = None,
    like: str | None = None,
    count: int = 10,
    index: Path | None = None,
    by: Literal["numpy", "faiss"] = "numpy",
    json: bool = False,
) -> None:
    """Find the cases whose codes are nearest to a query's.

    Prints the number of bits in which codes differ, and the name of the case: the file it came from, or its row.

    Args:
        run: The run's folder, with an index (see: nvil index).
        query: A text, for documents.
        data: A file of cases to search for, instead.
        like: The name of a case of the index to search for, instead.
        count: How many to find.
        index: The file of the index; by default index.npz in the run's folder.
        by: numpy counts bits; faiss searches with faiss-cpu, which must be installed.
        json: One JSON object for every query on standard output.

    """
    from nvil.report.summary import printable
    from nvil.runs.index import FILE, Index
    from nvil.runs.run import Run

    if sum(each is not None for each in (query, data, like)) != 1:
        raise UsageError("Say what to search for: a text, `data` or `like`, one of them.")
    opened = Run.open(run)
    loaded = Index.load(run / FILE if index is None else index, opened)
    if query is not None:
        found = [loaded.search_text(opened, query, count, by=by)]
    elif data is not None:
        found = loaded.search(opened, data, count, by=by)
    else:
        assert like is not None
        if like not in loaded.names:
            raise UsageError(f"The index has no case {like!r}; its first is {loaded.names[0]!r}.")
        row = loaded.names.index(like)
        found = loaded.search_codes(loaded.codes[row : row + 1], count, by=by)
    for i, hits in enumerate(found):
        if json:
            print(to_json({"query": i, "hits": [hit._asdict() for hit in hits]}))
            continue
        if len(found) > 1:
            print(f"case {i}")
        for hit in hits:
            print(f"{hit.distance:5}  {printable(hit.name)}")
