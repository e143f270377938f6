"""`nvil sample`: samples from a trained model, as a picture, a text or an archive."""

from pathlib import Path
from typing import TYPE_CHECKING

from tyro.conf import Positional

from nvil.cli.arrays import by_latent, most_likely, sparse_parts
from nvil.cli.options import command
from nvil.errors import UsageError, count_of

if TYPE_CHECKING:
    from nvil.data.dataset import Cases
    from nvil.runs.run import Run


@command
def sample(
    run: Positional[Path],
    count: int = 100,
    out: Path | None = None,
    seed: int = 0,
    data: Path | None = None,
) -> None:
    """Draw samples from a trained model.

    A .png shows, for every sample, the probability of each pixel given the sampled latents. A .npz holds the samples
    `x`, their means given the latents `mean`, and the latents `h1`, `h2`, ...; categorical ones, of `x` too, as the
    numbers of their categories, and their `mean` as the probability of each. For documents, in place of `x` and
    `mean`, the counts as a sparse matrix for `scipy.sparse.load_npz`. A .txt, for documents, has one per line, as its
    words with their counts.

    Args:
        run: The run's folder.
        count: How many.
        out: A .png (pictures), .txt (documents) or .npz file; by default samples.png, samples.txt or samples.npz, as
            the cases are.
        seed: The seed of the samples.
        data: For a conditional model: a file of cases whose context to sample given, in turn; by default that of random
            test cases.

    """
    from nvil.runs.cases import load_run_cases
    from nvil.runs.run import Run
    from nvil.runs.storage import output_file

    count_of(1, count=count)
    opened = Run.open(run)
    opened.like()  # before its data: of a pair from Python, neither is to be had
    if out is None:
        out = Path("samples.png" if opened.facts.image else "samples.txt" if opened.documents else "samples.npz")
    output_file(out, (".png", ".txt", ".npz"))
    if data is not None and not opened.facts.context:
        raise UsageError(f"{opened.folder} is not a conditional model; leave `data` out.")
    write_samples(opened, count, out, seed, cases=None if data is None else load_run_cases(opened, data))
    print(out)


def write_samples(
    run: "Run", count: int, out: Path, seed: int = 0, cases: "Cases | None" = None, test: "Cases | None" = None
) -> None:
    """Sample from the run's best model into a picture, a text or an archive.

    A conditional model is given the context of `cases` in turn, or without them of random test cases.
    """
    import numpy as np

    import nvil
    from nvil.report import pictures
    from nvil.rows import as_rows
    from nvil.runs.storage import save_arrays, save_text

    if out.suffix == ".txt" and not run.documents:
        raise UsageError(f"The cases of {run.folder} are not documents; write samples to a .png or .npz file instead.")
    if out.suffix == ".png" and run.facts.image is None:
        instead = "a .txt or .npz" if run.documents else "an .npz"
        raise UsageError(f"The cases of {run.folder} are not pictures; write samples to {instead} file instead.")
    given = None
    if run.facts.context:
        if cases is not None:
            rows, order = as_rows(cases), np.arange(count)
        else:  # at random, as a file may have them in order
            rows = as_rows(run.split("test") if test is None else test)
            order = np.random.default_rng(seed).permutation(max(count, rows.shape[0]))[:count]
        given = rows.select(order % rows.shape[0]).dense()[:, : run.facts.context]
    x, mean, h = nvil.sample(run.load_best(), count, given=given, seed=seed)
    if out.suffix == ".npz":
        layers = run.like().inference.layers
        latents = {f"h{i}": most_likely(*each) for i, each in enumerate(zip(layers, h, strict=True), 1)}
        visible = run.like().model.layers[0]
        # The context is one-hot too, where the visibles are.
        decoded = {} if run.documents else {"x": most_likely(visible, x), "mean": by_latent(visible, mean)}
        save_arrays(out, {**(sparse_parts(x) if run.documents else decoded), **latents})
    elif out.suffix == ".txt":
        words = np.where(np.arange(x.shape[1]) < (run.facts.context or 0), 0, x)  # a context is no words
        save_text(out, "".join(f"{line}\n" for line in pictures.bags(words, run.vocabulary)))
    else:
        assert run.facts.image is not None
        pictures.save_grid(out, mean, run.facts.image)
