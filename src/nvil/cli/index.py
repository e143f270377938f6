"""`nvil index`: cases by their binary codes, for search."""

from pathlib import Path

from tyro.conf import Positional

from nvil.cli.options import command


@command
def index(run: Positional[Path], data: Path | None = None, out: Path | None = None, layer: int = 1) -> None:
    """Index cases by their binary codes, for search.

    The bits of a code are the latents of one layer: on where the inference network's probability is above its median
    over these cases. Documents count as if they had the usual length.

    For example:
      nvil index runs/topics --data texts/
      nvil search runs/topics "shuttle launch orbit"

    Args:
        run: The run's folder.
        data: A named set, or a file or folder of cases; by default the run's own, training and test cases.
        out: An .npz file; by default index.npz in the run's folder.
        layer: Which layer of latents, counted from the data up.

    """
    from nvil.runs.index import FILE, Index
    from nvil.runs.run import Run
    from nvil.runs.storage import output_file

    opened = Run.open(run)
    path = output_file(run / FILE if out is None else out, (".npz",))
    made = Index.build(opened, data, layer=layer)
    made.save(path)
    bits, different = len(made.thresholds), len({code.tobytes() for code in made.codes})
    print(f"{path}: {len(made.names)} cases, codes of {bits} bits, {different} of them different")
