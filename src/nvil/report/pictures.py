"""Cases for people: grids of pictures, and documents as their words."""

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from nvil.runs.storage import atomic_write


def grid(cases: np.ndarray, image: tuple[int, int], *, columns: int = 10, side: int = 48) -> np.ndarray:
    """Cases with values in [0, 1] as one grey picture, ink dark, each about `side` pixels wide.

    The last columns of a case are its picture: a context that is no part of it comes before.
    """
    height, width = image
    cases = cases[:, -height * width :]
    zoom = max(1, round(side / max(height, width)))
    gap = max(2, zoom // 3)
    rows = -(-len(cases) // columns)
    canvas = np.ones((rows * (height * zoom + gap) + gap, columns * (width * zoom + gap) + gap))
    for i, case in enumerate(cases):
        top = gap + (i // columns) * (height * zoom + gap)
        left = gap + (i % columns) * (width * zoom + gap)
        # A light paper tone, so that the edge of every picture shows.
        picture = 0.93 * (1 - np.kron(np.reshape(case, image), np.ones((zoom, zoom))))
        canvas[top : top + height * zoom, left : left + width * zoom] = picture
    return canvas


def png(canvas: np.ndarray) -> bytes:
    """A picture of greys in [0, 1] as a PNG file."""
    import matplotlib.image  # here, so that commands without pictures start without it

    buffer = io.BytesIO()
    matplotlib.image.imsave(buffer, canvas, cmap="gray", vmin=0, vmax=1, format="png")
    return buffer.getvalue()


def save_grid(path: Path, cases: np.ndarray, image: tuple[int, int]) -> None:
    with atomic_write(path) as file:
        file.write(png(grid(cases, image)))


def bags(counts: np.ndarray, vocabulary: tuple[str, ...] | None) -> Iterator[str]:
    """Documents as their words, the most frequent first, with the counts of those that occur more than once."""
    for row in counts.astype(int):
        order = [word for word in np.argsort(-row, kind="stable") if row[word]]
        names = [vocabulary[word] if vocabulary else f"word{word}" for word in order]
        yield " ".join(
            f"{name}:{row[word]}" if row[word] > 1 else name for name, word in zip(names, order, strict=True)
        )
