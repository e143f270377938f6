"""Write the tables of docs/estimators.md: the exact bias and variance of every estimator on one small model.

    python docs/estimators.py

The model is a sigmoid belief network x 3 <- h 2 with weights from a normal distribution, of deviation 2 in P and 1/2 in
Q, the data four random patterns. At these fixed parameters, for one case at a time, all draws of an estimator are
enumerated in float64 (by quadrature for REBAR and concrete). NVIL has its baselines fitted first.
"""

from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import nvil
from nvil import estimators, exact, signals

PAGE = Path(__file__).with_name("estimators.md")
BEGIN, END = "<!-- made by estimators.py -->", "<!-- end -->"
STRICT = signals.input_dependent_baseline(), signals.running_mean(order="strict")
ONE = {
    "REINFORCE": (estimators.reinforce(), 1),
    "NVIL, strict order, without normalisation": (estimators.nvil(*STRICT), 1),
    "MuProp": (estimators.muprop(), 1),
    "REBAR, eta and temperature as they start": (estimators.rebar(), 1),
    "straight-through, **biased**": (estimators.straight_through(), 1),
    "concrete at temperature 1, **biased**": (estimators.concrete(temperature=1.0), 1),
    "concrete at temperature 1/2, **biased**": (estimators.concrete(temperature=0.5), 1),
    "REINFORCE, 2 samples": (estimators.reinforce(samples=2), 2),
    "RLOO, 2 samples": (estimators.rloo(samples=2), 2),
    "ARM, 1 pair": (estimators.arm(), 2),
    "DisARM, 1 pair": (estimators.disarm(), 2),
    "double control variates, 2 samples, alpha 1/2": (estimators.double_control_variates(samples=2), 2),
    "RLOO, 4 samples": (estimators.rloo(samples=4), 4),
    "DisARM, 2 pairs": (estimators.disarm(samples=2), 4),
}
MANY = {
    "VIMCO, geometric mean": estimators.vimco(samples=3),
    "VIMCO, arithmetic mean": estimators.vimco(samples=3, mean="arithmetic"),
    "OVIS, gamma 0": estimators.ovis(samples=3),
    "OVIS, gamma 1, **biased for Q**": estimators.ovis(samples=3, gamma=1.0),
    "reweighted wake-sleep, wake phases, **biased for Q**": estimators.reweighted_wake_sleep(samples=3, sleep=0.0),
}


def main() -> None:
    patterns = jnp.asarray(np.random.default_rng(1).integers(0, 2, (4, 3)), float)
    random = np.random.default_rng(0)
    model, inference = nvil.sbn(3, (2,), mean=patterns.mean(0))
    pair = nvil.Pair(
        jax.tree.map(lambda leaf: jnp.asarray(2.0 * random.normal(size=leaf.shape)), model),
        jax.tree.map(lambda leaf: jnp.asarray(0.5 * random.normal(size=leaf.shape)), inference),
    )
    lines = [
        "| estimator of the bound | samples | bias, P | bias, Q | variance, P | variance, Q |",
        "|---|---|---|---|---|---|",
    ]
    for name, (estimator, samples) in ONE.items():
        lines.append(f"| {name} | {samples} | {row(estimator, pair, patterns, 1)} |")
    lines += [
        "",
        "| of the bound of 3 samples | bias, P | bias, Q | variance, P | variance, Q |",
        "|---|---|---|---|---|",
    ]
    lines += [f"| {name} | {row(estimator, pair, patterns, 3)} |" for name, estimator in MANY.items()]
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    PAGE.write_text(before + BEGIN + "\n\n" + "\n".join(lines) + "\n\n" + END + rest.split(END)[1])
    print("\n".join(lines))


def row(estimator, pair, patterns, samples: int) -> str:
    """Bias (the norm of E g less the gradient, over the norm of the gradient) and total variance, means over cases."""
    params, state = fitted(estimator, pair, patterns)
    found = []
    for pattern in patterns:
        moments = exact.gradient_moments(estimator, params, pattern[None], state)
        desired = gradient(pair, pattern[None], samples)
        found.append(
            [
                *(norm(subtract(a, b)) / norm(b) for a, b in zip(moments.mean[:2], desired, strict=True)),
                *(total(each) for each in moments.variance[:2]),
            ]
        )
    *biases, p, q = np.mean(found, axis=0)
    return " | ".join([*("0" if each < 1e-6 else f"{each:.2g}" for each in biases), f"{p:.3g}", f"{q:.3g}"])


@eqx.filter_jit
def gradient(pair, x, samples: int):
    return exact.bound_gradient(pair, x, pair.inference.support(), samples)


def fitted(estimator, pair, patterns):
    """Baselines and statistics as they are after some time at these very parameters."""
    baselines, state = jax.jit(estimator.init)(jax.random.key(0), pair, patterns)
    params = nvil.Parameters(*pair, baselines)
    if isinstance(estimator, estimators.DoubleControlVariates):
        return params._replace(baselines=jnp.full_like(baselines, 0.5)), state
    if not isinstance(estimator, estimators.NVIL) or not estimator.transformation.transformations:
        return params, state

    @jax.jit
    def fit(params, state):
        def step(i, carry):
            params, state = carry
            key = jax.random.fold_in(jax.random.key(1), i)
            gradients, state, _ = estimator.gradients(key, params, patterns, state)
            moved = jax.tree.map(lambda p, g: p + 0.002 * g, params.baselines, gradients.baselines)
            return params._replace(baselines=moved), state

        return jax.lax.fori_loop(0, 8000, step, (params, state))

    return fit(params, state)


def subtract(a, b):
    return jax.tree.map(jnp.subtract, a, b)


def norm(tree) -> float:
    return total(jax.tree.map(jnp.square, tree)) ** 0.5


def total(tree) -> float:
    return sum(float(jnp.sum(leaf)) for leaf in jax.tree.leaves(tree))


if __name__ == "__main__":
    with jax.enable_x64(True):
        main()
