"""`nvil evaluate`: the bound of a trained model, or its log-likelihood."""

from json import dumps as to_json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tyro.conf import Positional

from nvil.cli.options import command
from nvil.cli.results import standard_error
from nvil.errors import UsageError, count_of

if TYPE_CHECKING:
    from nvil.data.dataset import Cases
    from nvil.runs.run import Run


@command
def evaluate(
    run: Positional[Path],
    split: str | None = None,
    samples: int | None = None,
    seed: int = 0,
    data: Path | None = None,
    binarize: str | None = None,
    threshold: float | None = None,
    white: float | None = None,
    drop_columns: tuple[str, ...] | None = None,
    json: bool = False,
    estimate: Literal["bound", "importance", "ais", "exact"] = "bound",
    cases: int | None = None,
    simulated: int | None = None,
    temperatures: int | None = None,
) -> None:
    """Estimate the bound of a trained model, or its log-likelihood.

    The bound is the average over samples from the inference network, as in the paper, in nats per case. With importance
    the same samples are weighted into an estimate of log P(x) itself, which the bound is below; many are needed, and
    the effective sample size says whether they were enough. ais is annealed importance sampling, for binary
    latents only, which does without the inference network: on data a lower bound in expectation, on cases of the
    model's own (--simulated) an upper bound too, and their gap says how good either is. exact sums over all states of
    at most 16 latents. For documents there is a perplexity too: per document exp(-mean of log P(x) / L), with L the
    words of document x, as in the paper; per word exp(-sum of log P(x) / sum of L).

    For example:
      nvil evaluate runs/demo --estimate importance --samples 5000
      nvil evaluate runs/demo --estimate ais --cases 100
      nvil evaluate runs/demo --estimate ais --simulated 100

    Args:
        run: The run's folder.
        split: test (the default), validation, or train (without the validation cases).
        samples: From the inference network, for every case; by default 10, and 1000 for importance. For ais: chains, by
            default 5.
        seed: The seed of these samples.
        data: A file of other cases, instead of a split.
        binarize: How grey levels in that file become binary: threshold or stochastic; by default as in training.
        threshold: On from this value up; by default as in training.
        white: For stochastic: the value that is certainly on; by default as in training.
        drop_columns: Columns of that file that are not data, by name or place; by default as in training.
        json: One JSON object on standard output.
        estimate: bound, or of the log-likelihood: importance (weighted samples), ais or exact.
        cases: Evaluate this many of the cases, the first; by default all.
        simulated: Instead of data, evaluate this many cases drawn from the model itself.
        temperatures: For ais, by default 1000: twice as many take twice as long and about halve the gap.

    """
    import nvil
    from nvil import evaluation
    from nvil.rows import as_rows
    from nvil.runs.cases import load_run_cases
    from nvil.runs.run import Run

    opened = Run.open(run)
    pair = opened.load_best()
    how = {"binarize": binarize, "threshold": threshold, "white": white, "drop_columns": drop_columns}
    if data is None and (given := [name for name, value in how.items() if value is not None]):
        raise UsageError(f"`{given[0]}` is for the cases of a file; give it with `data`.")
    if split is not None and (data is not None or simulated is not None):
        raise UsageError("`split` is of the run's own data; leave it out where other cases take its place.")
    if temperatures is not None and estimate != "ais":
        raise UsageError('`temperatures` are for `estimate="ais"`.')
    count_of(1, cases=cases, simulated=simulated, samples=samples)
    count_of(2, temperatures=temperatures)
    if simulated is not None:
        if data is not None or cases is not None:
            raise UsageError("`simulated` cases take the place of data: leave `data` and `cases` out.")
        if opened.facts.context:
            raise UsageError("`simulated` is not for conditional models, and this is one.")
        if estimate == "ais":  # which draws its own
            _evaluate_sandwich(pair, simulated, samples or 5, temperatures or 1000, seed, json)
            return
        chosen, where = nvil.sample(pair, simulated, means=False, seed=seed).x, "simulated"
    else:
        where = (split or "test") if data is None else str(data)
        chosen = opened.split(where) if data is None else load_run_cases(opened, data, **how)
        chosen = chosen if cases is None else next(as_rows(chosen).fixed().blocks(cases))
    if estimate != "bound":
        _evaluate_likelihood(opened, pair, chosen, where, estimate, samples, temperatures, seed, json)
        return
    more: dict[str, Any] = {}
    samples = 10 if samples is None else samples
    if opened.documents:
        documents = evaluation.evaluate_documents(pair, chosen, samples=samples, seed=seed)
        result = documents.evaluation
        more = {name: value for name, value in documents._asdict().items() if name != "evaluation"}
    else:
        result = evaluation.evaluate(pair, chosen, samples=samples, seed=seed)
    if json:
        print(to_json({"estimate": estimate, **result._asdict(), "split": where, **more}))
        return
    if opened.documents:
        print(f"{where} perplexity {more['perplexity']:.1f} per document, {more['corpus_perplexity']:.1f} per word")
    print(f"{where} bound {result.bound:.3f} nats per case{standard_error(result)}")
    if result.monte_carlo_se is not None:
        print(f"of that, from sampling the latents: {result.monte_carlo_se:.3f}")
    print(f"{result.cases} cases, {result.samples} samples each")


def _evaluate_likelihood(
    run: "Run",
    pair: Any,
    cases: "Cases",
    where: str,
    estimate: str,
    samples: int | None,
    temperatures: int | None,
    seed: int,
    json: bool,
) -> None:
    from nvil import annealing, evaluation, likelihood

    how, drawn, facts = "exact", "", {}
    if estimate == "exact":
        if samples is not None:
            raise UsageError('`samples` is not for `estimate="exact"`, which sums over all states of the latents.')
        values = likelihood.case_exact(pair, cases)
        result = likelihood.summary(values)
    elif estimate == "importance":
        how, drawn = "importance-weighted estimate", "samples"
        samples = 1000 if samples is None else samples
        values, effective = likelihood.case_importance(pair, cases, samples=samples, seed=seed)
        result = likelihood.summary(values, effective, samples)
    else:
        from nvil.runs.progress import share_done

        samples, temperatures = samples or 5, temperatures or 1000
        how, drawn = (
            "annealed importance sampling, a lower bound in expectation",
            f"chains of {temperatures} temperatures",
        )
        facts = {"temperatures": temperatures, "kind": "lower bound in expectation"}
        with share_done() as progress:
            values, effective = annealing.case_annealed(
                pair, cases, samples=samples, temperatures=temperatures, seed=seed, progress=progress
            )
        result = likelihood.summary(values, effective, samples)
    more: dict[str, Any] = {}
    if run.documents:
        found = evaluation.perplexities(values, evaluation.word_counts(pair, cases))
        more = dict(zip(("perplexity", "corpus_perplexity", "empty_documents"), found, strict=True))
    if json:
        print(to_json({"estimate": estimate, **facts, **result._asdict(), "split": where, **more}))
        return
    if run.documents:
        both = more["perplexity"], more["corpus_perplexity"]
        print(f"{where} perplexity {both[0]:.1f} per document, {both[1]:.1f} per word ({how})")
    error = "" if result.log_likelihood_se is None else f", standard error {result.log_likelihood_se:.2f}"
    print(f"{where} log-likelihood {result.log_likelihood:.3f} nats per case ({how}){error}")
    if result.monte_carlo_se is not None:
        print(f"of that, from sampling the latents: {result.monte_carlo_se:.3f}")
    if result.samples is None:
        print(f"{result.cases} cases, every state of the latents")
        return
    print(
        f"{result.cases} cases, {result.samples} {drawn} each; effective sample size "
        f"{result.effective_samples:.1f} on average, {result.least_effective_samples:.1f} at the lowest"
    )


def _evaluate_sandwich(pair: Any, cases: int, samples: int, temperatures: int, seed: int, json: bool) -> None:
    from nvil import annealing
    from nvil.runs.progress import share_done

    with share_done() as progress:
        found = annealing.sandwich(
            pair, cases, samples=samples, temperatures=temperatures, seed=seed, progress=progress
        )
    if json:
        facts = {"estimate": "ais", "kind": "sandwich", "temperatures": temperatures, "split": "simulated"}
        sides = {"lower": found.lower._asdict(), "upper": found.upper._asdict()}
        print(to_json({**facts, **sides, "gap": found.gap, "gap_se": found.gap_se}))
        return
    print(
        "simulated log-likelihood, in nats per case, between two bounds in expectation (annealed importance sampling):"
    )
    for name, side in (("lower", found.lower), ("upper", found.upper)):
        error = "" if side.monte_carlo_se is None else f", standard error from sampling h {side.monte_carlo_se:.3f}"
        print(f"  {name} {side.log_likelihood:.3f}{error}")
    error = "" if found.gap_se is None else f", standard error {found.gap_se:.3f}"
    print(f"  gap   {found.gap:.3f}{error}")
    error = (
        ""
        if found.lower.log_likelihood_se is None
        else f"; standard error between cases {found.lower.log_likelihood_se:.2f}"
    )
    print(f"{cases} cases of the model's own, {samples} chains of {temperatures} temperatures each way{error}")
