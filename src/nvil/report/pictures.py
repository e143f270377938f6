"""Cases for people: grids of pictures, and documents as their words."""

import io
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from nvil.runs.storage import atomic_write


def grid(
    cases: np.ndarray, image: tuple[int, int], *, columns: int = 10, side: int = 48, apart: Sequence[int] = ()
) -> np.ndarray:
    """Cases with values in [0, 1] as one grey picture, ink dark, each about `side` pixels wide.

    The last columns of a case are its picture: a context that is no part of it comes before. There is more room before
    the columns of the grid that are in `apart`.
    """
    height, width = image
    cases = cases[:, -height * width :]
    zoom = max(1, round(side / max(height, width)))
    gap = max(2, zoom // 3)
    rows = -(-len(cases) // columns)
    wide = width * zoom // 3
    canvas = np.ones((rows * (height * zoom + gap) + gap, columns * (width * zoom + gap) + gap + wide * len(apart)))
    for i, case in enumerate(cases):
        top = gap + (i // columns) * (height * zoom + gap)
        column = i % columns
        left = gap + column * (width * zoom + gap) + wide * sum(column >= place for place in apart)
        # A light paper tone, so that the edge of every picture shows.
        canvas[top : top + height * zoom, left : left + width * zoom] = 0.93 * (1 - _enlarged(case, image, zoom))
    return canvas


def scattered(cases: np.ndarray, image: tuple[int, int], places: np.ndarray, *, side: int = 30) -> np.ndarray:
    """Cases at their `places` on a plane, as one grey picture; of two that would overlap, the first is shown."""
    zoom = max(1, round(side / max(image)))
    pixels = np.array(image) * zoom
    low, high = places.min(axis=0), places.max(axis=0)
    across, up = ((places - low) / np.where(high > low, high - low, 1)).T
    canvas = np.ones((18 * pixels.max(), 30 * pixels.max()))
    corners = np.round(np.stack([1 - up, across], axis=1) * (np.array(canvas.shape) - pixels)).astype(int)
    taken = np.zeros(canvas.shape, bool)
    for case, (top, left) in zip(cases[:, -image[0] * image[1] :], corners, strict=True):
        box = (slice(top, top + pixels[0]), slice(left, left + pixels[1]))
        if not taken[box].any():
            canvas[box], taken[box] = 1 - _enlarged(case, image, zoom), True
    return canvas


def _enlarged(case: np.ndarray, image: tuple[int, int], zoom: int) -> np.ndarray:
    return np.kron(np.reshape(case, image), np.ones((zoom, zoom)))


def png(canvas: np.ndarray) -> bytes:
    """A picture of greys in [0, 1] as a PNG file."""
    from PIL import Image  # here, so that commands without pictures start without it; it comes with matplotlib

    buffer = io.BytesIO()
    Image.fromarray(np.round(255 * np.clip(canvas, 0, 1)).astype(np.uint8)).save(buffer, "PNG", optimize=True)
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
