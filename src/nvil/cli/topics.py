"""`nvil topics`: what the latents of a document model stand for."""

import dataclasses
from json import dumps as to_json
from pathlib import Path

from tyro.conf import Positional

from nvil.cli.options import command
from nvil.errors import UsageError


@command
def topics(
    run: Positional[Path],
    data: Path | None = None,
    words: int = 10,
    out: Path | None = None,
    json: bool = False,
) -> None:
    """Show what the latents of a document model stand for.

    For each latent of the first layer, those that tell most first: how much it tells about a document (nats), the share
    of the documents that have it on, the coherence of its words (NPMI: how often they occur together in these
    documents, from -1 through 0, as by chance, to 1), and the words whose share grows most when it is on.

    Args:
        run: The run's folder.
        data: A file of documents to measure on; by default the run's test documents.
        words: How many words to show of each topic.
        out: A .csv file, which also has the words that fall and the documents that turn the latent on most.
        json: One JSON object on standard output.

    """
    from nvil.data.loading import names_of
    from nvil.report.summary import printable
    from nvil.runs.cases import load_run_cases
    from nvil.runs.run import Run
    from nvil.runs.storage import output_file, save_text
    from nvil.topic_words import topics as find

    opened = Run.open(run)
    opened.like()  # of a pair from Python, nothing can be shown without its code
    if not opened.documents or opened.vocabulary is None:
        raise UsageError(f"{run} is not a model of documents whose words are known, so there are no topics to show.")
    if out is not None:
        output_file(out, (".csv",))
    documents = opened.split("test") if data is None else load_run_cases(opened, data)
    found = find(opened.load_best(), opened.vocabulary, documents, words=words)
    if out is not None:
        assert opened.config is not None
        of_test = names_of(opened.config.data).get("test")
        names = of_test if data is None else [name for split in names_of(data).values() for name in split]
        save_text(out, found.csv([printable(name) for name in names or ()] or None))
    if json:
        print(to_json(dataclasses.asdict(found)))
    else:
        print(out or found)
