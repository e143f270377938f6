"""A stream of made-up cases: pictures of bars, one per line, for a model that learns online.

    python examples/bars.py 200000 | nvil train --data - --hidden 16 --validation 1000 --out runs/online

Every row and every column of a 4 by 4 picture is on with probability 1/5, independently: eight causes, which the
latents can find.
"""

import sys

import numpy as np


def bars(count, seed=0, size=4):
    """Cases as they come, each a row of `size` * `size` zeros and ones."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        rows, columns = rng.random((2, size)) < 0.2
        yield (rows[:, None] | columns).astype(np.uint8).ravel()


if __name__ == "__main__":
    for case in bars(int(sys.argv[1]) if len(sys.argv) > 1 else 200_000):
        print(*case)
