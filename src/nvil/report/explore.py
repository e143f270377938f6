"""What the codes of test cases are like: what lies between two, which training cases are near, and a map of them.

Walks and neighbours are shown of pictures and of documents: of other data they would be rows of numbers.
"""

import numpy as np

from nvil import apply
from nvil.report import figures
from nvil.report.parts import Part, bag, drawn, picture, raised, svg, table
from nvil.report.pictures import scattered
from nvil.report.summary import Summary

SHOWN_DOCUMENTS = 6
DOCUMENT_STEPS = 6


def walks(summary: Summary) -> Part | None:
    """The way from one case to another."""
    if summary.run.documents:
        return _document_walk(summary)
    image, shown = summary.run.facts.image, figures.walk_pictures(summary)
    if image is None or shown is None:
        return None
    given = " All but the right one are given the context of the left one." if summary.context else ""
    caption = (
        "Left and right are test cases, and between them is what the model makes of the way from one to the other, on "
        f"which {_how(summary)}.{given} The more the pictures in between look like cases themselves, the better the "
        "latents hold what cases are made of."
    )
    rows, columns, pixels = shown.shape
    alt = f"{rows} rows, each from one test case to another in {columns - 2} steps."
    return Part(picture(shown.reshape(-1, pixels), image, alt, columns=columns, apart=(1, columns - 1)), caption)


def _document_walk(summary: Summary) -> Part | None:
    """Between two documents that are not short."""
    if summary.pair is None or summary.cases is None or summary.codes is None or len(summary.cases) < 2:
        return None
    lengths = summary.cases.sum(axis=1)
    first, last = summary.cases[np.argsort(lengths < max(1, np.median(lengths)), kind="stable")[:2]]
    means = apply.walk(summary.pair, first[None], last[None], steps=DOCUMENT_STEPS)[0]
    rows = [
        ["a test document", bag(summary, first)],
        *([f"{i / (DOCUMENT_STEPS - 1):.0%} of the way", raised(summary, mean)] for i, mean in enumerate(means)),
        ["another", bag(summary, last)],
    ]
    caption = (
        "At the top and at the bottom are test documents, and between them the words that the latents raise most over "
        f"their usual share on the way from one to the other, on which {_how(summary)}: one subject should give way "
        "to the other."
    )
    return Part(table(["Where", "Words"], rows, whole=(0,)), caption, wide=True)


def _how(summary: Summary) -> str:
    level = "mean" if summary.gaussian else "probability of being on"  # of h1, which P(x | h) sees
    return f"each latent goes in equal steps from its {level} in the one to that in the other"


def neighbours(summary: Summary) -> Part | None:
    """Test cases, and the training cases nearest to them by code."""
    found, image = summary.neighbours, summary.run.facts.image
    if found is None or summary.cases is None or not (summary.run.documents or image):
        return None
    _, count, _ = found.cases.shape
    documents = summary.run.documents
    kind = "documents" if documents else "cases"
    caption = (
        f"{'Beside each test document' if documents else 'Left is a test case, and beside it'} are those of "
        f"{found.searched:,} training {kind} whose codes of {found.bits} bits differ from its own in the fewest: the "
        f"nearest in {found.distances[:, 0].mean():.1f} bits on average, any two {kind} in {found.usual:.1f}. A bit is "
        f"on where its latent is likelier on than in half of the training {kind}."
    )
    if found.same_class is not None:
        share, chance = found.same_class
        caption += f" Of the {count} nearest, {share:.0%} are of the same class; by chance, {chance:.0%} would be."
    if documents:
        header = ["Words of a test document", "The nearest training document", "The second nearest"]
        rows = [_near_documents(summary, i) for i in range(min(SHOWN_DOCUMENTS, len(found.cases)))]
        return Part(table(header[: len(rows[0])], rows, words=range(len(rows[0]))), caption, wide=True)
    shown = figures.neighbour_pictures(summary)
    assert shown is not None
    assert image is not None
    alt = f"{len(shown)} test cases, each beside the {count} training cases nearest to it."
    body = picture(shown.reshape(-1, shown.shape[-1]), image, alt, columns=1 + count, apart=(1,))
    return Part(body, caption)


def _near_documents(summary: Summary, place: int) -> list[str]:
    """A test document and the two nearest, each with its class where that is known."""
    assert summary.neighbours is not None
    assert summary.cases is not None
    documents = [summary.cases[place], *summary.neighbours.cases[place][:2]]
    words = [bag(summary, counts, 12, rest=False) for counts in documents]
    if summary.neighbours.labels is None or summary.labels is None:
        return words
    labels = [summary.labels[place], *summary.neighbours.labels[place][:2]]
    return [f"{label} — {each}" for label, each in zip(labels, words, strict=True)]


def code_map(summary: Summary) -> Part | None:
    """The codes on a plane: pictures, or dots where there are classes to colour them by."""
    if summary.code_map is None or summary.cases is None:
        return None
    image, classes = summary.run.facts.image, figures.shown_classes(summary)
    caption = (
        f"{len(summary.code_map)} test cases, those with like codes near each other (t-SNE of the "
        f"{'means' if summary.gaussian else 'probabilities'} that Q gives the latents of h1; only nearness has a "
        "meaning, not the place, nor how wide a gap is)."
    )
    if image is not None and not classes:
        canvas = scattered(summary.cases, image, summary.code_map)
        caption += " Those that would lie on others are left out."
        return Part(drawn(canvas, "Test cases on a plane, those with like codes near each other."), caption, wide=True)
    if classes:
        caption += " Colours and shapes are the classes of the cases, which training does not see."
    kinds = f", of {len(classes)} classes" if classes else ""
    alt = f"{len(summary.code_map)} test cases on a plane by their codes{kinds}."
    return Part(svg(lambda axes: figures.code_map(summary, axes), alt, (4.8, 3.4 + 0.08 * len(classes))), caption)
