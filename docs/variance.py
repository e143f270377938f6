"""Draw docs/variance.png: the exact variance of the gradient for Q as the paper's techniques are added.

    python docs/variance.py

The model is a sigmoid belief network x 6 <- h1 3 <- h2 2 with weights from a normal distribution of deviation 2, the
data eight random patterns. At these fixed parameters the statistics and baselines are fitted, and the variance is
computed by enumeration over all 32 latent states of a case (float64, no Monte Carlo). All estimators are in the strict
order, so that all but the last have the same expectation; variance normalisation divides the gradient by a number.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import nvil
from nvil import estimators, exact, signals

BASELINE = signals.input_dependent_baseline()
MEAN = signals.running_mean(order="strict")
LADDER = {
    "REINFORCE": estimators.reinforce(),
    "+ running\nmean": estimators.nvil(MEAN, local=False),
    "+ input-dependent\nbaseline": estimators.nvil(BASELINE, MEAN, local=False),
    "+ local signals": estimators.nvil(BASELINE, MEAN),
    "+ variance\nnormalisation": estimators.nvil(BASELINE, MEAN, signals.variance_normalisation(order="strict")),
}


def variance(estimator, pair, patterns) -> float:
    """Total variance of the inference network's gradient, averaged over the patterns."""
    baselines, state = jax.jit(estimator.init)(jax.random.key(0), pair, patterns)
    params = nvil.Parameters(*pair, baselines)
    estimate = jax.jit(estimator.gradients)
    for step in range(8000):  # only the baselines and statistics learn
        gradients, state, _ = estimate(jax.random.key(step), params, patterns, state)
        moved = jax.tree.map(lambda p, g: p + 0.002 * g, params.baselines, gradients.baselines)
        params = params._replace(baselines=moved)
    total = 0.0
    for pattern in patterns:
        moments = exact.gradient_moments(estimator, params, pattern[None], state)
        total += sum(float(jnp.sum(leaf)) for leaf in jax.tree.leaves(moments.variance.inference))
    return total / len(patterns)


def main() -> None:
    patterns = np.random.default_rng(1).integers(0, 2, (8, 6))
    random = np.random.default_rng(0)
    pair = jax.tree.map(
        lambda leaf: jnp.asarray(2 * random.normal(size=leaf.shape)), nvil.sbn(6, (3, 2), mean=patterns.mean(0))
    )
    values = [variance(estimator, pair, jnp.asarray(patterns, float)) for estimator in LADDER.values()]
    figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
    bars = axes.bar(list(LADDER), values, color="0.55", width=0.6)
    axes.bar_label(bars, labels=[f"{value:.3g}" for value in values], padding=2)
    axes.set_yscale("log")
    axes.set_ylim(min(values) / 2, max(values) * 3)
    axes.set_ylabel("variance of the gradient for Q")
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(axis="x", length=0)
    figure.savefig(Path(__file__).with_name("variance.png"), dpi=120)
    for name, value in zip(LADDER, values, strict=True):
        print(f"{' '.join(name.split()):30s} {value:.4g}")


if __name__ == "__main__":
    with jax.enable_x64(True):
        main()
