"""Pictures for people: grids of cases."""

import io
from pathlib import Path

import matplotlib.image
import numpy as np

from nvil.storage import written_beside


def save_grid(path: Path, cases: np.ndarray, image: tuple[int, int], *, columns: int = 10, side: int = 48) -> None:
    """Write cases with values in [0, 1] as a grid of grey pictures, ink dark, each about `side` pixels wide."""
    height, width = image
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
    buffer = io.BytesIO()
    matplotlib.image.imsave(buffer, canvas, cmap="gray", vmin=0, vmax=1, format="png")
    with written_beside(path) as file:
        file.write(buffer.getvalue())
