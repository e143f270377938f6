"""`nvil bench`: the ratios, the refusals, and that PyTorch's side computes the very same estimator."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers import first
from nvil.bench import cases, measure
from nvil.bench.cases import Case, Model, make_data
from nvil.cli import main


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setitem(cases.MODELS, "tiny", Model(12, (5, 4)))
    monkeypatch.setattr(measure, "ROUND_SECONDS", 0.001)
    monkeypatch.setattr(measure, "WARM_UP", 20)


def test_our_sides_are_timed_and_learn(tiny):
    result = measure.measure(Case("tiny", 10, "sgd"), measure.OURS, rounds=2)
    assert {side: len(times) for side, times in result["microseconds"].items()} == dict.fromkeys(measure.OURS, 2)
    assert -12 < result["bounds"]["nvil"] < -2
    assert -12 < result["bounds"]["plain"] < -2
    assert json.loads(json.dumps(result)) == result


def test_ratios_are_taken_within_rounds():
    times = {"products": [1.0, 3.0], "optimiser": [1.0, 1.0], "nvil": [4.0, 2.0], "PyTorch": [8.0, 20.0]}
    result = {"model": "sbn-200", "batch": 20, "optimiser": "sgd", "microseconds": times}
    assert measure.ratios(result) == {"nvil / bare": [2.0, 0.5], "PyTorch / nvil": [2.0, 10.0]}
    assert measure.head(list(times)).startswith("| model | batch | optimiser | nvil | nvil / bare | PyTorch / nvil |\n")
    assert measure.row(result) == "| sbn-200 | 20 | sgd | 3 us | 1.25 (0.50-2.00) | 6.0 (2.0-10.0) |"


def test_numpyro_stands_beside_what_it_computes_too():
    times = {"products": [1.0], "optimiser": [1.0], "nvil": [4.0], "plain": [2.0], "NumPyro": [3.0]}
    result = {"model": "sbn-200", "batch": 20, "optimiser": "sgd", "microseconds": times}
    assert measure.ratios(result) == {"nvil / bare": [2.0], "NumPyro / nvil": [0.75], "NumPyro / plain nvil": [1.5]}
    assert measure.head([*times]).splitlines()[0].endswith("| NumPyro / nvil | NumPyro / plain nvil |")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--models", "sbn-20"], "Unknown model 'sbn-20'; did you mean 'sbn-200'?"),
        (["--rounds", "0"], "--rounds must be at least 1, got 0"),
        (["--batch-size", "0"], "--batch-size must be at least 1, got 0"),
        (["--out", "times.csv"], "its name must end in .json"),
    ],
)
def test_mistakes_are_told_before_anything_runs(words, said, capsys, monkeypatch):
    monkeypatch.setattr(measure, "measure_apart", lambda *_: pytest.fail("it started"))
    with pytest.raises(SystemExit) as error:
        main(["bench", *words])
    assert error.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "model",
    first(
        2,
        [
            Model(12, (5, 4), prior="autoregressive", inference="autoregressive"),
            Model(90, (5,), prior="autoregressive", documents=True),
            Model(12, (5,)),
            Model(12, (5, 4)),
        ],
    ),
)
def test_pytorch_has_our_gradients(model, monkeypatch):
    torch = pytest.importorskip("torch", reason="the extra `peers` is not installed")
    from nvil.bench import ours
    from nvil.bench.torch_peer import Network
    from nvil.rows import as_rows

    monkeypatch.setitem(cases.MODELS, "tiny", model)
    case = Case("tiny", 10, "sgd")
    data = make_data(model)
    x = jnp.asarray(cases.dense(data)[:10], jnp.float32)
    mean = as_rows(data).mean()
    learner = ours.learner_of(case)
    state = learner.init(ours.pair_of(case, mean), as_rows(data).on_device())
    params, estimator = state.params, learner.estimator
    draws = estimator.sample(jax.random.key(1), params.pair, x)
    gradients, _, info = estimator.gradients_from(draws, params, x, state.estimator)

    network = Network(model, torch.as_tensor(np.array(mean), dtype=torch.float32))
    p, q, nets = params.pair.model.layers, params.pair.inference.layers, params.baselines[0]
    pairs = [(layer.logits, own) for layer, own in zip((*p[:-1], *q), (*network.down, *network.up), strict=True)]
    for net, own in zip(nets, network.baselines, strict=True):
        pairs += list(zip(net, (own[0], own[2]), strict=True))
    with torch.no_grad():
        for ours_, theirs in pairs:
            theirs.weight.copy_(torch.as_tensor(np.array(ours_.weights).T.copy()))
            theirs.bias.copy_(torch.as_tensor(np.array(ours_.bias)))
        network.prior.copy_(torch.as_tensor(np.array(p[-1].logits.bias)))
        network.signal_mean.copy_(torch.as_tensor(np.array(state.estimator[1]).ravel()))
        network.signal_variance.copy_(torch.as_tensor(np.array(state.estimator[2]).ravel()))
    loss, bound = network.loss(torch.as_tensor(np.array(x)), [torch.as_tensor(np.array(h[0])) for h in draws])
    loss.backward()
    assert bound.item() == pytest.approx(float(info.bound), rel=1e-5)
    own_p, own_q = gradients.pair.model.layers, gradients.pair.inference.layers
    for layer, theirs in zip((*own_p[:-1], *own_q), (*network.down, *network.up), strict=True):
        np.testing.assert_allclose(-theirs.weight.grad.numpy().T, layer.logits.weights, atol=2e-4)
        np.testing.assert_allclose(-theirs.bias.grad.numpy(), layer.logits.bias, atol=2e-4)
    np.testing.assert_allclose(-network.prior.grad.numpy(), own_p[-1].logits.bias, atol=2e-4)
    within = [layer.within for layer in own_p[1:] if hasattr(layer, "within")]
    for layer, theirs in zip(within, network.within_p, strict=True):
        np.testing.assert_allclose(-theirs.grad.numpy(), layer, atol=2e-4)
