"""PyTorch, as a good user would write it: the same estimator (NVIL, everything on), eager or by torch.compile.

The data is on the device, sampling takes no gradient, one backward pass serves P, Q and the baselines, and the
optimiser is PyTorch's fused one.
"""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from nvil.bench.cases import Case, Model, dense
from nvil.bench.products import BASELINE_UNITS

DECAY = 0.8  # of the running mean and variance, as ours


def linear(inputs: int, outputs: int) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def within(hidden: tuple[int, ...], kind: str) -> nn.ParameterList:
    """Connections within layers, where they are autoregressive."""
    sizes = hidden if kind == "autoregressive" else ()
    return nn.ParameterList([nn.Parameter(torch.zeros(size, size)) for size in sizes])


def log_bernoulli(value: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    return -functional.binary_cross_entropy_with_logits(logits, value, reduction="none").sum(-1)


class Network(nn.Module):
    """P, Q and the baselines of one of the paper's models."""

    def __init__(self, model: Model, mean: torch.Tensor):
        super().__init__()
        sizes = (model.visible, *model.hidden)
        self.documents, self.layers = model.documents, len(model.hidden)
        steps = list(itertools.pairwise(sizes))
        self.down = nn.ModuleList([linear(above, below) for below, above in steps])
        self.prior = nn.Parameter(torch.zeros(sizes[-1]))
        self.up = nn.ModuleList([linear(below, above) for below, above in steps])
        self.within_p = within(model.hidden, model.prior)
        self.within_q = within(model.hidden, model.inference)
        self.baselines = nn.ModuleList(
            [nn.Sequential(linear(below, BASELINE_UNITS), nn.Tanh(), linear(BASELINE_UNITS, 1)) for below, _ in steps]
        )
        self.register_buffer("center", mean)
        self.register_buffer("signal_mean", torch.zeros(self.layers))
        self.register_buffer("signal_variance", torch.ones(self.layers))
        with torch.no_grad():
            rate = mean.clamp(1e-2, 1 - 1e-2)
            self.down[0].bias.copy_(mean.clamp(min=1e-4).log() if self.documents else torch.logit(rate))

    @torch.no_grad()
    def sample(self, x: torch.Tensor) -> list[torch.Tensor]:
        """h ~ Q(h | x); unit after unit where Q is autoregressive."""
        value, values = x - self.center, []
        for i, up in enumerate(self.up):
            logits = up(value)
            if self.within_q:
                weights = self.within_q[i].triu(1)
                total = logits - torch.logit(torch.rand_like(logits))
                for j in range(total.shape[1]):
                    total = total + (total[:, j : j + 1] > 0) * weights[j]
                value = (total > 0).float()
            else:
                value = (torch.rand_like(logits) < torch.sigmoid(logits)).float()
            values.append(value)
        return values

    def loss(self, x: torch.Tensor, h: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """What to minimise, whose gradient is Algorithm 1's, and the bound."""
        contexts = [x - self.center, *h[:-1]]
        log_q, log_p = [], []
        for i, (up, context, value) in enumerate(zip(self.up, contexts, h, strict=True)):
            logits = up(context)
            if self.within_q:
                logits = logits + value @ self.within_q[i].triu(1)
            log_q.append(log_bernoulli(value, logits))
        for i, (down, value) in enumerate(zip(self.down, [x, *h[:-1]], strict=True)):
            logits = down(h[i])
            if i == 0 and self.documents:
                log_p.append((value * functional.log_softmax(logits, -1)).sum(-1))
                continue
            if i > 0 and self.within_p:
                logits = logits + value @ self.within_p[i - 1].triu(1)
            log_p.append(log_bernoulli(value, logits))
        logits = self.prior.expand_as(h[-1])
        if self.within_p:
            logits = logits + h[-1] @ self.within_p[-1].triu(1)
        log_p.append(log_bernoulli(h[-1], logits))
        log_p, log_q = torch.stack(log_p, -1), torch.stack(log_q, -1)

        # Local signals: layer i's leaves out the terms that it cannot influence (Section 2.3.3).
        terms = log_p[:, :-1].detach() - log_q.detach()
        raw = terms.flip(-1).cumsum(-1).flip(-1) + log_p[:, -1:].detach()
        baseline = torch.cat([net(context) for net, context in zip(self.baselines, contexts, strict=True)], -1)
        signal = raw - baseline.detach()
        mean = DECAY * self.signal_mean + (1 - DECAY) * signal.mean(0)
        variance = DECAY * self.signal_variance + (1 - DECAY) * signal.var(0, unbiased=False)
        self.signal_mean.copy_(mean)
        self.signal_variance.copy_(variance)
        signal = (signal - mean) / variance.sqrt().clamp(min=1)
        total = log_p.sum() + (signal * log_q).sum() + (signal * baseline).sum()
        return -total, (log_p.sum(-1) - log_q.sum(-1)).detach().mean()


def prepare(case: Case, data: Any, *, compiled: bool = False) -> Callable[[int], float]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows = torch.as_tensor(dense(data))
    network = Network(case.model, rows.float().mean(0))
    rate, inference_rate = case.rates
    inference = [*network.up.parameters(), *network.within_q.parameters()]
    own = {id(parameter) for parameter in inference}
    others = [parameter for parameter in network.parameters() if id(parameter) not in own]
    optimiser = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[case.optimiser](
        [{"params": others, "lr": rate}, {"params": inference, "lr": inference_rate}], fused=True
    )
    # The loop over an autoregressive layer's units would be unrolled: left to eager mode.
    sample = torch.compile(network.sample) if compiled and not network.within_q else network.sample
    loss = torch.compile(network.loss) if compiled else network.loss

    def run(updates: int) -> float:
        bounds = []
        for _ in range(updates):
            x = rows[torch.randint(rows.shape[0], (case.batch,))].float()
            optimiser.zero_grad(set_to_none=True)
            value, bound = loss(x, sample(x))
            value.backward()
            optimiser.step()
            bounds.append(bound)
        return float(np.mean([bound.item() for bound in bounds]))

    return run


def prepare_compiled(case: Case, data: Any) -> Callable[[int], float]:
    return prepare(case, data, compiled=True)
