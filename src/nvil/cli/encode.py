"""`nvil encode`: cases as the inference network sees them."""

from pathlib import Path

from tyro.conf import Positional

from nvil.cli.arrays import by_latent, most_likely
from nvil.cli.options import command
from nvil.errors import count_of


@command
def encode(
    run: Positional[Path],
    data: Path,
    out: Path = Path("codes.npz"),
    samples: int = 10,
    binary: bool = False,
    seed: int = 0,
    binarize: str | None = None,
    threshold: float | None = None,
    white: float | None = None,
    drop_columns: tuple[str, ...] | None = None,
) -> None:
    """Encode cases with the inference network.

    Writes `h1`, `h2`, ...: the probability that each latent is on, a row for every case; of categorical latents that of
    each category, so that `h1` has the shape (cases, latents, categories); of Gaussian latents their mean. For layers
    above the first, and for autoregressive layers, it is an average over samples of what they depend on.

    Args:
        run: The run's folder.
        data: A file of cases.
        out: A .npz file.
        samples: To average over; 1 is exact for the first layer of a factorial inference network.
        binary: Round to binary codes instead (on where the probability is at least one half); of categorical latents,
            the number of the likeliest category, from 0; Gaussian ones are not rounded.
        seed: The seed of these samples.
        binarize: How grey levels become binary: threshold or stochastic; by default as in training.
        threshold: On from this value up; by default as in training.
        white: For stochastic: the value that is certainly on; by default as in training.
        drop_columns: Columns of the file that are not data, by name or place; by default as in training.

    """
    import nvil
    from nvil.runs.cases import load_run_cases
    from nvil.runs.run import Run
    from nvil.runs.storage import output_file, save_arrays

    count_of(1, samples=samples)
    opened = Run.open(run)
    pair = opened.load_best()
    cases = load_run_cases(opened, data, binarize=binarize, threshold=threshold, white=white, drop_columns=drop_columns)
    output_file(out, (".npz",))
    codes = zip(pair.inference.layers, nvil.encode(pair, cases, samples=samples, seed=seed), strict=True)
    read = most_likely if binary else by_latent
    save_arrays(out, {f"h{i}": read(layer, values) for i, (layer, values) in enumerate(codes, 1)})
    print(out)
