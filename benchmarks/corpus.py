"""A corpus of RCV1's size: how much memory training on it takes, and what drawing sparse rows costs.

    python benchmarks/corpus.py [FOLDER]

Writes a synthetic corpus once (800,000 documents, 10,000 words, Zipfian), trains on it through the command line and
prints the peak memory, times updates on sparse rows against dense ones, and parses token files of growing size.
"""

import timing  # noqa: I001 (first: it pins the process to one core)

import gzip
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import nvil
from nvil import estimators, optimisers
from nvil.data.matrices import matrix_writer
from nvil.rows import as_rows, dense_blocks

DOCUMENTS, WORDS, LENGTH = 800_000, 10_000, 84


def blocks(documents: int):
    """`(documents, words, counts)` of blocks of documents: lengths log-normal, words by Zipf's law."""
    rate = 1 / (10 + np.arange(WORDS))
    edges = np.cumsum(rate / rate.sum())
    for start in range(0, documents, 10_000):
        random = np.random.default_rng(start)
        lengths = np.maximum(5, random.lognormal(np.log(LENGTH) - 0.3, 0.75, min(10_000, documents - start))).astype(
            int
        )
        document = np.repeat(np.arange(len(lengths)), lengths)
        word = np.minimum(np.searchsorted(edges, random.random(len(document))), WORDS - 1)
        entries, counts = np.unique(document * WORDS + word, return_counts=True)
        yield np.split(np.stack([entries % WORDS, counts]), np.flatnonzero(np.diff(entries // WORDS)) + 1, axis=1)


def write_corpus(folder: Path) -> None:
    with matrix_writer(folder, WORDS) as writer:
        for block in blocks(DOCUMENTS):
            for words, counts in block:
                writer.add(words, counts)
        writer.finish(tuple(f"w{i}" for i in range(WORDS)), np.arange(10_000))


PEAK = "next(int(line.split()[1]) for line in open('/proc/self/status') if line.startswith('VmHWM')) / 1024"
"""Megabytes. Unlike getrusage's, it does not count what the parent process had."""

TRAIN = f"""
import sys
from nvil.cli import main
main(sys.argv[1:])
print({PEAK})
"""


def peak_memory(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, "-c", TRAIN, "train", "--data", str(folder), "--hidden", "50", "--batch-size", "20"]
        command += ["--updates", "2000", "--learning-rate", "3e-4", "--out", out, "--quiet"]
        result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(f"corpus on disk {size / 1e6:.0f} MB; nvil train, 2000 updates of 20 and its evaluation of 10,000 documents:")
    print(f"peak memory {float(result.split()[-1]):.0f} MB", flush=True)


def cost_of_rows(folder: Path) -> None:
    print("\n| rows | batch | optimiser | dense | sparse | ratio |\n|---|---|---|---|---|---|")
    corpus = nvil.data.load(folder)
    dense = as_rows(np.concatenate(list(dense_blocks(corpus.test, 1000))).astype(np.uint8)).on_device()
    sparse = as_rows(corpus.train).on_device()
    for batch in (20, 100):
        for name, optimiser in (("SGD", optimisers.sgd()), ("Adam", optimisers.adam())):
            pair = nvil.sbn(WORDS, (50,), lengths=(75,))
            jobs = [timing.update(pair, data, batch, optimiser, estimators.nvil())[0] for data in (dense, sparse)]
            plain, drawn = timing.fastest(*jobs, rounds=6)
            print(
                f"| 50 latents | {batch} | {name} | {plain:.0f} us | {drawn:.0f} us | {drawn / plain:.2f} |", flush=True
            )


PARSE = f"""
import sys, time
from pathlib import Path
from nvil.data.corpora import lewis_tokens
from nvil.data.matrices import write_documents
began = time.perf_counter()
write_documents(Path(sys.argv[2]), lambda: lewis_tokens([Path(sys.argv[1])]), words=10_000, test=10)
print(time.perf_counter() - began, {PEAK})
"""


def token_files() -> None:
    """Both passes over gzipped token files, in a process of their own."""
    print("\n| documents | documents/s | peak memory |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for documents in (10_000, 40_000, 160_000):
            path = Path(folder, f"{documents}.dat.gz")
            with gzip.open(path, "wt", compresslevel=1) as file:
                number = 0
                for block in blocks(documents):
                    for words, counts in block:
                        number += 1
                        text = " ".join(np.repeat(words, counts).astype(str))
                        file.write(f".I {number}\n.W\n{text}\n\n")
            command = [sys.executable, "-c", PARSE, str(path), str(Path(folder, f"{documents}"))]
            seconds, peak = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
            print(f"| {documents} | {documents / float(seconds):.0f} | {float(peak):.0f} MB |", flush=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else temporary, "corpus")
        if not folder.exists():
            write_corpus(folder)
        corpus = nvil.data.load(folder)
        distinct = (corpus.train.end - corpus.train.begin).mean()
        print(f"{corpus.train.shape[0] + corpus.test.shape[0]} documents, {distinct:.1f} distinct words each")
        del corpus
        peak_memory(folder)
        cost_of_rows(folder)
        token_files()


if __name__ == "__main__":
    main()
