"""How long `nvil train` takes until it trains, with its programs compiled before.

    python benchmarks/start.py [--data binarized-mnist]

Starts `nvil train --hidden 200` with the given options in a process of its own, several times, and prints the seconds
from the start of the process until its compiled loop has run once and the updates begin. The first process may compile,
and is not counted.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time

ROUNDS = 5


def main() -> None:
    seconds = []
    for _ in range(ROUNDS + 1):
        with tempfile.TemporaryDirectory() as folder:
            options = ["--hidden", "200", "--report-every", "1", *sys.argv[1:], "--out", f"{folder}/run"]
            began = time.time()
            child = subprocess.run([sys.executable, __file__, "--begin", *options], capture_output=True, text=True)
        if child.returncode:
            sys.exit(child.stderr)
        seconds.append(float(child.stdout.split()[-1]) - began)
    first, *counted = seconds
    print(f"{statistics.median(counted):.2f} s ({min(counted):.2f} to {max(counted):.2f}); first {first:.2f} s")


def begin(options: list[str]) -> None:
    """`nvil train`, which ends where the updates would begin."""
    from nvil.__main__ import main as nvil_main
    from nvil.cli.cache import kept_programs

    with kept_programs():  # before JAX is imported, as the command line does it
        from nvil import training

        train_chunk = training.train_chunk

        def first(*arguments):
            train_chunk(*arguments)
            print(time.time(), flush=True)
            os._exit(0)

        training.train_chunk = first
        sys.argv = ["nvil", "train", *options]
        nvil_main()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--begin"]:
        begin(sys.argv[2:])
    else:
        main()
