"""Pyro: TraceGraph_ELBO with `nn_baseline`, its own name for the paper's input-dependent baseline.

It also takes Pyro's decaying average as a baseline, the paper's running mean. Pyro has no variance normalisation. Its
learning signals leave out what a latent cannot influence, by the graph: the paper's local signals.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from pyro.infer import SVI, TraceGraph_ELBO
from torch import nn

from nvil.bench import torch_peer
from nvil.bench.cases import Case, dense
from nvil.bench.torch_peer import DECAY, log_bernoulli


class AutoregressiveBernoulli(dist.TorchDistribution):
    """Binary units, each depending on those before it; Pyro has none."""

    arg_constraints: ClassVar = {}
    has_rsample = False

    def __init__(self, logits: torch.Tensor, within: torch.Tensor):
        self.logits, self.within = logits, within.triu(1)
        super().__init__(logits.shape[:-1], logits.shape[-1:], validate_args=False)

    def sample(self, sample_shape: Any = ()) -> torch.Tensor:
        with torch.no_grad():
            total = self.logits - torch.logit(torch.rand_like(self.logits))
            for j in range(total.shape[-1]):
                total = total + (total[..., j : j + 1] > 0) * self.within[j]
            return (total > 0).float()

    def log_prob(self, value: torch.Tensor) -> torch.Tensor:
        return log_bernoulli(value, self.logits + value @ self.within)


class Network(torch_peer.Network):
    """The same weights, as a model and a guide."""

    @staticmethod
    def _latent(logits: torch.Tensor, within: nn.ParameterList, layer: int) -> Any:
        return AutoregressiveBernoulli(logits, within[layer]) if within else dist.Bernoulli(logits=logits).to_event(1)

    def model(self, x: torch.Tensor) -> None:
        pyro.module("network", self)
        top = len(self.down) - 1
        with pyro.plate("cases", len(x)):
            h = pyro.sample(f"h{top}", self._latent(self.prior.expand(len(x), -1), self.within_p, top))
            for i in reversed(range(top)):
                h = pyro.sample(f"h{i}", self._latent(self.down[i + 1](h), self.within_p, i))
            logits = self.down[0](h)
            if self.documents:
                visible = dist.Multinomial(logits=logits, validate_args=False)
            else:
                visible = dist.Bernoulli(logits=logits).to_event(1)
            pyro.sample("x", visible, obs=x)

    def guide(self, x: torch.Tensor) -> None:
        value = x - self.center
        with pyro.plate("cases", len(x)):
            for i, (up, net) in enumerate(zip(self.up, self.baselines, strict=True)):
                pyro.module(f"baseline{i}", net)
                baseline = {
                    "nn_baseline": lambda context, net=net: net(context).squeeze(-1),
                    "nn_baseline_input": value,
                    "use_decaying_avg_baseline": True,
                    "baseline_beta": DECAY,
                }
                latent = self._latent(up(value), self.within_q, i)
                value = pyro.sample(f"h{i}", latent, infer={"baseline": baseline})


def prepare(case: Case, data: Any) -> Callable[[int], float]:
    torch.set_num_threads(1)
    pyro.enable_validation(False)
    pyro.clear_param_store()
    pyro.set_rng_seed(0)
    rows = torch.as_tensor(dense(data))
    network = Network(case.model, rows.float().mean(0))
    # At ours it diverges, without variance normalisation; its gradients are sums over the minibatch too.
    rate, inference_rate = (rate / 10 * 20 / case.batch for rate in case.rates)

    def options(name: str) -> dict[str, float]:
        return {"lr": inference_rate if ".up." in name or "within_q" in name else rate}

    optimiser = {"sgd": pyro.optim.SGD, "adam": pyro.optim.Adam}[case.optimiser](options)
    svi = SVI(network.model, network.guide, optimiser, TraceGraph_ELBO())

    def run(updates: int) -> float:
        losses = [
            svi.step(rows[torch.randint(rows.shape[0], (case.batch,))].float()) / case.batch for _ in range(updates)
        ]
        return -float(np.mean(losses))

    return run
