"""20 Newsgroups, from raw posts to topics and to search, beside LDA and LSA on the same words: docs/newsgroups.md.

    nvil train --data 20news-bydate.tar.gz --words 2000 --hidden 64 --updates 20000 --learning-rate 1e-3 \
        --schedule cosine --weight-decay 0.01 --out runs/news
    python docs/newsgroups.py runs/news

Prints the two tables of that page, and draws docs/hashing.png.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.preprocessing import normalize

import nvil
from nvil.codes import nearest, pack
from nvil.data.readers import case_names
from nvil.data.sparse import as_matrix
from nvil.rivals import lda
from nvil.rivals.perplexity import perplexities
from nvil.rows import as_rows
from nvil.runs.index import probabilities
from nvil.topic_words import diversity, document_shares, npmi, raised

LDA_EPOCHS = 5
RETRIEVED = (1, 3, 7, 15, 31, 63, 127, 255, 511, 1023)
QUERIES = 2000


def main(folder: str) -> None:
    run = nvil.Run.open(folder)
    pair, data = run.load_best(), run.dataset()
    names = case_names(Path(run.config.data))
    labels = {split: np.array([name.split("/")[-2] for name in names[split]]) for split in ("train", "test")}
    train, test = (as_matrix(as_rows(cases)) for cases in (data.train, data.test))
    topics_table(run, pair, train, test)
    hashing_table(run, pair, train, test, labels)


def topics_table(run: nvil.Run, pair: nvil.Pair, train: Any, test: Any) -> None:
    """Perplexity, coherence and diversity of our latents and of as many topics of LDA."""
    units = pair.inference.layers[0].units
    ours = nvil.topics(pair, run.vocabulary, test)
    found = nvil.evaluate_documents(pair, test)
    held, rest = train[::20], train[np.arange(train.shape[0]) % 20 != 0]
    rival = lda.fit(rest, lda.Settings(topics=units, epochs=LDA_EPOCHS), validation=held)
    lengths = np.asarray(test.sum(axis=1)).ravel()
    bound = perplexities(lda.log_prob(rival, test), lengths)
    usual = document_shares(as_rows(test))
    words = np.stack([raised(usual, np.asarray(topic, float))[:10] for topic in rival.topics])
    coherence = npmi(words, test)
    print("| | perplexity per document | per word | NPMI | of the best ten | different words |")
    print("|---|---:|---:|---:|---:|---:|")
    best = np.sort([topic.coherence for topic in ours])[-10:].mean()
    print(f"| SBN, {units} latents | {found.perplexity:.0f} | {found.corpus_perplexity:.0f} ", end="")
    print(f"| {ours.coherence:.3f} | {best:.2f} | {ours.diversity:.0%} |")
    print(f"| LDA, {units} topics | {bound.per_document:.0f} | {bound.per_word:.0f} ", end="")
    print(f"| {coherence.mean():.3f} | {np.sort(coherence)[-10:].mean():.2f} | {diversity(words):.0%} |")
    for name, rows in (
        ("ours", [topic.words for topic in sorted(ours, key=lambda topic: -topic.coherence)[:5]]),
        ("LDA", [[run.vocabulary[i] for i in words[k]] for k in np.argsort(-coherence)[:5]]),
    ):
        print(name, *(" ".join(row) for row in rows), sep="\n    ")


def hashing_table(run: nvil.Run, pair: nvil.Pair, train: Any, test: Any, labels: dict[str, np.ndarray]) -> None:
    """Precision and recall by newsgroup: test posts as queries among the training posts."""
    random = np.random.default_rng(0)  # the archive is sorted by newsgroup, and ties go to the first rows
    order, asked = random.permutation(train.shape[0]), random.permutation(test.shape[0])[:QUERIES]
    train, test = train[order], test[asked]
    same = labels["train"][order][None] == labels["test"][asked][:, None]
    relevant = same.sum(axis=1)
    bits = pair.inference.layers[0].units
    own = [probabilities(run, pair, cases, 1) for cases in (train, test)]
    tfidf = TfidfTransformer(sublinear_tf=True).fit(train)
    svd = TruncatedSVD(bits, random_state=0)
    lsa = [normalize(svd.fit_transform(tfidf.transform(train))), normalize(svd.transform(tfidf.transform(test)))]
    most = max(RETRIEVED)
    ranked = {
        f"SBN, {bits} bits": _by_bits(*own, most),
        f"TF-IDF + LSA, {bits} bits": _by_bits(*lsa, most),
        f"TF-IDF + LSA, {bits} real numbers": np.argsort(-(lsa[1] @ lsa[0].T), axis=1)[:, :most],
        "by chance": np.stack([random.permutation(train.shape[0])[:most] for _ in asked]),
    }
    print("| precision of the first | 1 | 7 | 63 | 511 |\n|---|---:|---:|---:|---:|")
    figure = Figure(figsize=(5, 3.4), layout="constrained")
    axes = figure.subplots()
    for (name, rows), style in zip(ranked.items(), ("o-", "s--", "^:", "x-."), strict=True):
        hits = np.cumsum(np.take_along_axis(same, rows, axis=1), axis=1)
        precision = [float(np.mean(hits[:, count - 1] / count)) for count in RETRIEVED]
        recall = [float(np.mean(hits[:, count - 1] / relevant)) for count in RETRIEVED]
        axes.plot(recall, precision, style, label=name, markersize=4)
        print(f"| {name} |", " | ".join(f"{precision[RETRIEVED.index(count)]:.3f}" for count in (1, 7, 63, 511)), "|")
    axes.set(xscale="log", xlabel="recall", ylabel="precision", ylim=(0, None))
    axes.legend(frameon=False)
    figure.savefig(Path(__file__).with_name("hashing.png"), dpi=120)


def _by_bits(cases: np.ndarray, queries: np.ndarray, count: int) -> np.ndarray:
    middle = np.median(cases, axis=0)
    return nearest(pack(cases > middle), pack(queries > middle), count)[0]


if __name__ == "__main__":
    main(sys.argv[1])
