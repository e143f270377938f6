"""The contracts everything here stands on: a model P, an inference network Q, and an estimator that trains the two.

`nvil.networks` meets the first two with layers; a user's own classes need no layers at all. Networks that also have
`support()`, the stacked list of all their latent states, can be enumerated by `nvil.exact`.
"""

import abc
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from nvil.errors import UsageError

Latents = Any
"""The latent variables h of a batch: a pytree of arrays whose leading axis is the batch axis."""


@runtime_checkable
class Model(Protocol):
    """P(x, h), any joint distribution of the data and the latents.

    A model may also have `check(source)`, which refuses data that it cannot explain (`nvil.rows.Source`) by raising a
    `UsageError`. Without it any finite numbers will do. A conditional model P(x, h | y) has `given`, the number of
    columns of y with which its cases begin; its `sample` and `mean` then take y as their last argument. Minibatches of
    sparse data are dense, unless P, Q and the estimator all have a true `sparse`: then x is `nvil.sparse.SparseCases`.
    """

    def log_prob(self, x: Any, h: Latents) -> Float[Array, "batch terms"]:
        """The terms of log P(x, h), from the data up.

        With n terms from Q, local signals need n + 1 here: term 0 is log P(x | h^1), term i is log P(h^i | h^(i+1)).
        Any other number, for example a single term, needs the global signal, `local=False`; with one layer of latents
        the two signals are the same.
        """
        ...


@runtime_checkable
class Inference(Protocol):
    """Q(h | x), any conditional distribution of the latents that can be sampled and evaluated."""

    def sample(self, key: Key[Array, ""], x: Any) -> Latents:
        """Draw h ~ Q(h | x), one for every case of the batch."""
        ...

    def log_prob(self, h: Latents, x: Any) -> Float[Array, "batch layers"]:
        """The terms log Q(h^i | h^(i-1)), one for each group of latents that has a learning signal of its own."""
        ...

    def contexts(self, x: Any, h: Latents) -> tuple[Float[Array, "*_ _"], ...]:
        """What each layer of `log_prob` is conditioned on: the input of that layer's baseline.

        `h` may have leading sample axes that `x` lacks: broadcast, as NumPy does.
        """
        ...


class Pair(NamedTuple):
    """A model with its inference network: what is trained, saved and loaded together."""

    model: Any
    inference: Any


def check_is_pair(pair: Any) -> None:
    """Refuse what is not a pair, such as the report that holds one."""
    if not isinstance(pair, Pair):
        raise UsageError(f"A Pair(model, inference) is needed, such as nvil.sbn gives, not {type(pair).__name__}.")


def check_pair(pair: Pair, x: Any) -> None:
    """Refuse, in a sentence and before anything compiles, a pair that does not meet the contracts on the batch `x`."""
    model, inference = pair
    for network, methods in ((model, ("log_prob",)), (inference, ("sample", "log_prob", "contexts"))):
        for method in methods:
            if not hasattr(network, method):
                raise UsageError(f"{type(network).__name__} has no {method}(), which nvil.contracts asks for.")
    cases = jax.tree.leaves(x)[0].shape[0]
    h = _shapes_of(inference, "sample", jax.random.key(0), x)
    for network, *arguments in ((model, x, h), (inference, h, x)):
        terms = _shapes_of(network, "log_prob", *arguments)
        if getattr(terms, "ndim", None) != 2 or terms.shape[0] != cases:
            raise UsageError(
                f"{type(network).__name__}.log_prob must give an array with a row of terms per case, ({cases}, terms), "
                f"got {getattr(terms, 'shape', type(terms).__name__)}."
            )
    contexts = _shapes_of(inference, "contexts", x, h)
    layers = terms.shape[1]
    if not isinstance(contexts, tuple | list) or len(contexts) != layers:
        given = f"{len(contexts)}" if isinstance(contexts, tuple | list) else type(contexts).__name__
        raise UsageError(
            f"{type(inference).__name__}.contexts must give a tuple of one array per term of its log_prob, "
            f"{layers} here, got {given}."
        )


@eqx.filter_jit  # so that the same networks are traced once in a process
def _call(network: Any, method: str, *arguments: Any) -> Any:
    return getattr(network, method)(*arguments)


def _shapes_of(network: Any, method: str, *arguments: Any) -> Any:
    try:
        return eqx.filter_eval_shape(_call, network, method, *arguments)
    except (TypeError, ValueError) as error:
        shapes = ", ".join(str(leaf.shape) for leaf in jax.tree.leaves(arguments) if leaf.shape)
        reason = " ".join(str(error).split("\n")[0].split()).rstrip(".")
        raise UsageError(
            f"{type(network).__name__}.{method} fails on a batch, arrays of the shapes {shapes} ({reason}). Networks "
            "take whole batches; one made for a single case must be wrapped in jax.vmap."
        ) from error


class Constant(eqx.Module):
    """An array that belongs to a network but is not trained: no optimiser moves it, not even by weight decay."""

    value: Float[Array, "*_"]


class Unset(Constant):
    """The centre of an inference network that was built without a mean: zeros, until training knows its data."""


def trained(tree: Any) -> Any:
    """The trained arrays of a pytree: floating point and not in a `Constant`; None stands for all else."""
    return eqx.filter(tree, eqx.is_inexact_array, is_leaf=lambda node: isinstance(node, Constant))


class Parameters(NamedTuple):
    """Everything that is trained: theta (model), phi (inference network) and psi (baselines).

    Gradients have the same form.
    """

    model: Any
    inference: Any
    baselines: Any = ()

    @property
    def pair(self) -> Pair:
        return Pair(self.model, self.inference)


class TrainState(NamedTuple):
    """All that training carries from one update to the next.

    - `params`: what is trained.
    - `optimiser`: the state of the optax optimiser.
    - `estimator`: the state of the gradient estimator, such as the running statistics of NVIL.
    - `average`: the averaged pair, where the learner averages parameters, else None.
    - `key`, `step`: all the randomness of update `step` is a function of these two.
    """

    params: Parameters
    optimiser: Any
    estimator: Any
    average: Any
    key: Key[Array, ""]
    step: Int[Array, ""]


class SignalInfo(NamedTuple):
    """Each learning signal: its standard deviation when raw, its mean and standard deviation as used."""

    raw_deviation: Float[Array, " signals"]
    mean: Float[Array, " signals"]
    deviation: Float[Array, " signals"]


class Info(NamedTuple):
    """What one update looked like: averages over the cases and samples of the minibatch.

    - `bound`: the estimator's own objective, in nats per case.
    - `signal`: None for an estimator without a learning signal.
    """

    bound: Float[Array, ""]
    signal: SignalInfo | None = None


class Estimator(eqx.Module):
    """Estimates the gradients of an objective, *summed* over the cases of a minibatch as in Algorithm 1.

    What is random (`sample`) is kept apart from what is computed (`gradients_from`), so that `nvil.exact` can put every
    possible draw (`enumerate_draws`) in the place of the sampled ones. A skeleton of an estimator of your own is in
    docs/extending.md.
    """

    sparse: ClassVar[bool] = False
    """Whether x may be `nvil.sparse.SparseCases`, as it may where x is for the networks alone; else it is dense."""

    def check(self, pair: Pair) -> None:
        """Refuse, in a sentence and before anything is compiled, a pair that this estimator cannot train.

        By default any pair that meets the contract is fine. `pair` may hold shapes in place of arrays.
        """
        return

    def init(self, key: Key[Array, ""], pair: Pair, x: Any) -> tuple[Any, Any]:
        """Make `(baseline parameters psi, state)`, by default none. `x`: a minibatch to take first statistics from."""
        return (), None

    @abc.abstractmethod
    def sample(self, key: Key[Array, ""], pair: Pair, x: Any) -> Any:
        """Draw all the randomness that one gradient estimate for the minibatch `x` needs."""

    @abc.abstractmethod
    def gradients_from(self, draws: Any, params: Parameters, x: Any, state: Any) -> tuple[Parameters, Any, Info]:
        """The estimate for given draws: `(gradients, state, info)`; gradients point uphill."""

    def enumerate_draws(self, pair: Pair, x: Any) -> tuple[Any, Float[Array, " outcomes"]]:
        """Every possible outcome of `sample`, stacked along a leading axis, and its log-probability.

        Only `nvil.exact` needs it.
        """
        raise UsageError(
            f"{type(self).__name__} does not list its draws, so its expectation cannot be computed exactly."
        )

    def gradients(self, key: Key[Array, ""], params: Parameters, x: Any, state: Any) -> tuple[Parameters, Any, Info]:
        """Estimate the gradients for the minibatch `x`: `(gradients, state, info)`."""
        return self.gradients_from(self.sample(key, params.pair, x), params, x, state)

    def objective(self, key: Key[Array, ""], pair: Pair, x: Any) -> Float[Array, " cases"]:
        """One draw, per case, of an unbiased estimate of what this estimator climbs; validation averages such draws.

        By default the bound: log P(x, h) - log Q(h | x) for one h ~ Q(h | x) (Section 2.1).
        """
        return bound_of_one_sample(key, pair, x)

    def signal_names(self) -> tuple[str, ...]:
        """What `signal_variances` measures, in order; nothing for an estimator without a learning signal."""
        return ()

    def signal_variances(
        self, draws: Any, params: Parameters, x: Any, state: Any
    ) -> tuple[Float[Array, " signals"], ...]:
        """The variance of each learning signal in a minibatch, raw and after each step that transforms it.

        Only diagnostics need it.
        """
        return ()


def bound_of_one_sample(key: Key[Array, ""], pair: Pair, x: Any) -> Float[Array, " cases"]:
    """log P(x, h) - log Q(h | x) for one h ~ Q(h | x): unbiased for the bound of each case (Section 2.1)."""
    return log_weight(pair, x, pair.inference.sample(key, x))


def log_weight(pair: Pair, x: Any, h: Latents) -> Float[Array, " cases"]:
    """log P(x, h) - log Q(h | x) of every case."""
    return jnp.sum(pair.model.log_prob(x, h), axis=-1) - jnp.sum(pair.inference.log_prob(h, x), axis=-1)


def given_of(model: Any, x: Any) -> tuple[Any, ...]:
    """The context y of a conditional model, in the cases `x`: a last argument of its `sample` and `mean`; else none."""
    given = getattr(model, "given", 0)
    return (x[..., :given],) if given else ()


def needs(network: Any, *methods: str) -> None:
    """Refuse a network without the optional `methods`."""
    for name in methods:
        if not hasattr(network, name):
            raise UsageError(f"{type(network).__name__} has no {name}(), which this needs besides the contract.")
