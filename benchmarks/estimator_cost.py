"""What an update by VIMCO with K samples at batch B costs, as a ratio to an NVIL update at batch K * B.

    python benchmarks/estimator_cost.py [ROUNDS]

Both see as many latents. They are timed in turn, in one process on one core; the ratio is that of each round, of which
the median and the quartiles are shown. Other estimators of the bound, at batch B with samples that make about as many
latents, follow for comparison. The aim for VIMCO is at most 1.15.
"""

import sys

from timing import bits, turns, update

# isort: split

import numpy as np

import nvil
from nvil import estimators, optimisers

SAMPLES, BATCH = 5, 20
OTHERS = {
    "NVIL, 5 samples": estimators.nvil(samples=5),
    "RLOO, 5 samples": estimators.rloo(samples=5),
    "reweighted wake-sleep, 5 samples": estimators.reweighted_wake_sleep(samples=5, sleep=0.0),
    "MuProp, 5 samples": estimators.muprop(samples=5),
    "DisARM, 2 pairs": estimators.disarm(samples=2),
    "REBAR, 2 samples": estimators.rebar(samples=2),
    "straight-through, 5 samples": estimators.straight_through(samples=5),
    "concrete, 5 samples": estimators.concrete(samples=5),
}


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    data = bits(10_000, 784)
    sgd = optimisers.sgd(1e-6)  # REBAR diverges at the default rate on this noise
    print(f"| SBN | estimator, batch | update | / NVIL, batch x {SAMPLES}: median (quartiles) |")
    print("|---|---|---|---|")
    for hidden in ((200,), (200, 200)):
        pair = nvil.sbn(784, hidden)
        sizes = "-".join(map(str, hidden))
        for batch in (BATCH, 100):
            jobs = {f"NVIL, batch {SAMPLES * batch}": (estimators.nvil(), SAMPLES * batch)}
            jobs[f"VIMCO, {SAMPLES} samples, batch {batch}"] = (estimators.vimco(samples=SAMPLES), batch)
            if batch == BATCH and len(hidden) == 1:
                jobs |= {f"{name}, batch {batch}": (each, batch) for name, each in OTHERS.items()}
            times = turns(*(update(pair, data, size, sgd, each)[0] for each, size in jobs.values()), rounds=rounds)
            for name, own in zip(jobs, times, strict=True):
                low, middle, high = np.quantile(np.divide(own, times[0]), (0.25, 0.5, 0.75))
                print(
                    f"| {sizes} | {name} | {np.median(own):.0f} us | {middle:.2f} ({low:.2f} to {high:.2f}) |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
