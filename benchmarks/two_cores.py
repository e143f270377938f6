"""What a second core is worth to one run, and which way of using it is best.

    python benchmarks/two_cores.py

Every side trains the same SBN on the same minibatches in processes of its own, one after another, in several rounds:

- one core: `nvil train` on one core, as by `taskset -c 0`;
- threads: `nvil train`, whose sums of rows are shared by two threads where there is enough to add;
- devices: `nvil train --devices 2`, two devices of one process, one thread each;
- processes: `--devices 2` in two processes, which talk by Gloo.

The figure is the median over the rounds of the updates per second over those of one core in the same round.
"""

import json
import os
import socket
import statistics
import subprocess
import sys
import time

ROUNDS = 5
SECONDS = 5.0
SIDES = {"one core": (1, 1, 1), "threads": (1, 1, 2), "devices": (2, 1, 2), "processes": (2, 2, 2)}
"""Devices in all, processes, and cores in all."""
SIZES = (((200,), 100), ((200,), 400), ((200, 200), 100), ((200, 200), 400))


def main() -> None:
    if len(os.sched_getaffinity(0)) < 2:
        sys.exit("This needs two cores.")
    print("| SBN | batch | one core, updates/s | threads | devices | processes |")
    print("|---|---|---|---|---|---|")
    for hidden, batch in SIZES:
        rounds = [{name: measured(hidden, batch, *side) for name, side in SIDES.items()} for _ in range(ROUNDS)]
        rates = [f"{statistics.median(each['one core'] for each in rounds):.0f}"]
        for name in list(SIDES)[1:]:
            ratios = sorted(each[name] / each["one core"] for each in rounds)
            rates.append(f"{statistics.median(ratios):.2f}x ({ratios[0]:.2f} to {ratios[-1]:.2f})")
        print(f"| {'-'.join(map(str, hidden))} | {batch} | {' | '.join(rates)} |", flush=True)


def measured(hidden: tuple[int, ...], batch: int, devices: int, processes: int, cores: int) -> float:
    """Updates per second of one side."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    environment = os.environ | {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}  # as the command line has it
    usable = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(usable)[:cores])  # which the processes inherit
    started = [
        subprocess.Popen(
            [sys.executable, __file__, json.dumps([hidden, batch, devices, processes, process, address])],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for process in range(processes)
    ]
    os.sched_setaffinity(0, usable)
    rates = [float(each.communicate()[0].split()[-1]) for each in started]  # after what Gloo says
    return rates[0]


def train(hidden: list[int], batch: int, devices: int, processes: int, process: int, address: str) -> None:
    import jax
    import numpy as np

    import nvil
    from nvil.devices import agreed, connect, spread
    from nvil.training import empty_tally, train_chunk

    one = {} if processes == 1 else {"coordinator": address, "processes": processes, "process": process}
    mesh = connect(devices, **one)
    learner = nvil.Learner(batch_size=batch)
    data = np.random.default_rng(0).integers(0, 2, (10_000, 784), np.uint8)
    rows = spread(nvil.rows.as_rows(data), mesh, batch).on_device()
    pair = nvil.sbn(784, tuple(hidden), mean=data.mean(axis=0))
    state = rows.everywhere(learner.init(rows.everywhere(pair), rows))
    tally = rows.everywhere(empty_tally(learner, state, rows))
    size, rate = 20, 0.0
    for _ in range(3):  # the last is long enough
        began = time.perf_counter()
        jax.block_until_ready(train_chunk(learner, state, rows, size, tally))
        rate = size / (time.perf_counter() - began)
        size = agreed(max(20, int(rate * SECONDS)))
    print(rate)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        train(*json.loads(sys.argv[1]))
    else:
        main()
