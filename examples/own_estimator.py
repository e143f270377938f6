"""An estimator and a transformation of your own, proven exactly and trained in a run folder.

    python examples/own_estimator.py runs/own

`Clipped` is a transformation of NVIL's learning signal. `ExactGradient` is an estimator without any noise: it sums
over all states of the latents, which only small models allow.
"""

import sys

import equinox as eqx
import jax.numpy as jnp

import nvil
from nvil import estimators, exact, signals


class Clipped(signals.Transformation):
    """Keep the signal between -`largest` and `largest`. It makes the estimator biased, and more robust."""

    largest: float

    def init(self, key, signal, contexts):
        return None, None  # no parameters, no state

    def update(self, signal, contexts, psi, state):
        return jnp.clip(signal, -self.largest, self.largest), 0.0, None


class ExactGradient(nvil.Estimator):
    """The gradient of the bound itself, by enumeration."""

    def init(self, key, pair, x):
        return (), None  # no baselines to train, no state

    def sample(self, key, pair, x):
        return ()  # nothing is random

    def gradients_from(self, draws, params, x, state):
        latents = params.inference.support()

        def objective(pair):
            bounds = exact.bound(pair, x, latents)
            return jnp.sum(bounds), jnp.mean(bounds)

        gradients, bound = eqx.filter_grad(objective, has_aux=True)(params.pair)
        return nvil.Parameters(*gradients), state, nvil.Info(bound)

    def enumerate_draws(self, pair, x):
        return (), jnp.zeros(1)  # one outcome, which is certain


def learners():
    robust = estimators.nvil(signals.input_dependent_baseline(50), signals.running_mean(), Clipped(5.0))
    return {"clipped": nvil.Learner(robust), "exact": nvil.Learner(ExactGradient(), batch_size=20)}


def main(folder, updates=2000):
    data = nvil.data.load("digits")
    for name, learner in learners().items():
        pair = nvil.sbn(64, (6,), mean=data.train.mean(axis=0), latent_bias=-1)
        run = nvil.Run.create(f"{folder}/{name}", pair, data.train, learner, updates=updates, image=(8, 8))
        for report in run.fit():
            print(name, report)
        print(nvil.report.write_report(run, test=data.test))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "runs/own")
