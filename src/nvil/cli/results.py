"""What a trained model comes to on the test cases, beside what could be had without latents."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nvil.data.dataset import Dataset
    from nvil.evaluation import DocumentEvaluation, Evaluation
    from nvil.runs.run import Run


def print_result(run: "Run", dataset: "Dataset") -> "Evaluation | DocumentEvaluation":
    """Print, and return, the test bound, and what could be had without latents."""
    from nvil import data
    from nvil.evaluation import evaluate, evaluate_documents

    pair = run.load_best()
    missing = " or context" if dataset.context else ""
    if run.documents:
        found = documents = evaluate_documents(pair, dataset.test)
        result = documents.evaluation
        without = data.unigram_bound(dataset.train, dataset.test, dataset.context)
        per_document, per_word = documents.perplexity, documents.corpus_perplexity
        print(f"test perplexity       {per_document:8.1f} per document, {per_word:.1f} per word")
        print(
            f"unigram model         {without[0]:8.1f} per document, {without[1]:.1f} per word, without latents{missing}"
        )
        useless = per_document >= without[0] and f"the unigram model ({without[0]:.1f} per document)"
    else:
        found = result = evaluate(pair, dataset.test)
        if run.numbers:
            best = means = data.gaussian_bound(dataset.train, dataset.test, dataset.context)
            by = f"independent Gaussians{missing and ' without context'}, fitted to the training cases"
        else:
            best = data.factorial_bound(dataset.test, dataset.context, dataset.categories)
            by = f"the best that independent variables{missing and ' without context'} could do on these test cases"
            means = data.independent_bound(dataset.train, dataset.test, dataset.context, dataset.categories)
        print(f"without latents       {best:8.2f} nats per case, {by}")
        useless = result.bound <= means and f"independent variables at their training means ({means:.2f})"
    print(f"test bound            {result.bound:8.2f} nats per case{standard_error(result)}")
    if useless:
        print(f"no better than        {useless}: the latents are of no use yet; try {_what_to_try(run)}")
    return found


def _what_to_try(run: "Run") -> str:
    config = run.config
    assert config is not None
    other = []
    if run.vocabulary is not None and config.stop_words == "none":
        other.append("--stop-words english")
    other += ["more --updates", f"a --learning-rate below {config.learning_rate:g}"]
    last = "fewer --words" if run.vocabulary is not None else "fewer --hidden units"
    return f"{', '.join(other)}, or {last}"


def standard_error(result: "Evaluation") -> str:
    return "" if result.bound_se is None else f", standard error {result.bound_se:.2f}"
