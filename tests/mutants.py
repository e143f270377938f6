"""Mutation testing by hand: faults that could creep into the package, each of which some test must find.

    make mutants                            # all of them, as many at a time as there are cores
    python tests/mutants.py --only "key"    # those with this in their name

Each mutant is one small change of one file. It is made in a copy of the package, and the tests named beside it are run
there: one of them must fail, by an assertion, where without the change they all pass. `tests/test_mutants.py` sees to
it that each change can still be made. When a test proves something new, put the fault that it is there to find here.
"""

import argparse
import dataclasses
import importlib
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "src/nvil"
COPIED = ("src", "tests", "examples", "pyproject.toml", "README.md")
SECONDS = 300
"""After which tests that do not end are ended, and count as not having failed."""


@dataclasses.dataclass(frozen=True)
class Mutant:
    """`old` is `new` in `file` of the package: one of `tests` must fail. `old` occurs there once."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def __init__(self, name: str, file: str, old: str, new: str, *tests: str):
        for field, value in zip(dataclasses.fields(self), (name, file, old, new, tests), strict=True):
            object.__setattr__(self, field.name, value)

    def applied(self, text: str) -> str:
        found = text.count(self.old)
        if found != 1:
            raise ValueError(
                f"{self.name}: its text occurs {found} times in {self.file}, not once; bring it up to date."
            )
        return text.replace(self.old, self.new)


def named(file: str, name: str) -> str:
    """A test by its file and name, which begin alike everywhere."""
    return f"tests/test_{file}.py::test_{name}"


OWN_CASES = named("devices", "each_device_has_the_products_of_its_own_cases")
PRODUCTS = named("products", "a_product_is_exact")
SPARSE_PRODUCTS = named("products", "a_product_with_sparse_rows_is_exact")
FOUND = named("products", "binary_columns_are_found")
DRAWN = named("products", "units_are_drawn_in_their_order")
WARM_UP = named("estimators", "a_warm_up_climbs_the_bound_with_its_layers_weighted")
CONSTANTS = named("independence", "the_paper_s_constants_are_the_defaults")
Q_APART = named("independence", "every_sample_case_and_layer_of_q_is_drawn_apart")
P_APART = named("independence", "every_dream_and_layer_of_p_is_drawn_apart_and_from_the_wake_phase")
KEYS = named("independence", "minibatches_and_draws_have_keys_of_their_own")
MINIBATCH = named("independence", "a_minibatch_draws_every_case_as_often_and_next_to_every_other")
BLOCKS = named("independence", "every_block_case_and_sample_of_an_evaluation_is_drawn_apart")
HELD_OUT = named("independence", "validation_never_sees_a_training_case_nor_training_a_validation_case")
WEIGHTS = named("independence", "weights_start_uniform_within_glorot_s_limit")
OWN_WEIGHTS = named("independence", "every_layer_starts_with_weights_of_its_own")
SUM_TO_ONE = named("contract", "distributions_sum_to_one_and_the_bound_is_below_the_log_likelihood")
ALGORITHM_1 = named("signals", "algorithm_1_line_by_line")
UNBIASED = named("estimators", "strict_order_is_unbiased") + "[1-1-2]"
PSI = named("estimators", "baseline_gradient_is_that_of_the_squared_centred_signal")
IN_BLOCKS = named("training", "evaluation_in_blocks_covers_every_case")
LEARNS = named("training", "training_raises_the_exact_bound") + "[optimiser0]"
LOOP = named("training", "the_compiled_loop_does_what_single_steps_do")
RATES = named("training", "the_inference_network_moves_at_its_own_rate")
SPLIT = named("training", "validation_cases_are_held_out")
FAULTS = named("runs", "a_fault_at_every_single_call_loses_nothing") + "[Dead]"
DAMAGED = named("runs", "a_damaged_checkpoint_is_passed_over_and_said")

OVIS = named("many_samples", "ovis_of_gamma_0_is_unbiased_and_gamma_1_is_not")
DOUBLE = named("bernoulli_estimators", "double_control_variates_are_unbiased")
ANNEALING = named("annealing", "the_expected_weight_is_exact_both_ways")
MUTANTS = (
    # products with binary matrices
    Mutant(
        "a step without its sign",
        "kernels.c",
        "chosen(down, (vector){0} - 1,",
        "chosen(down, (vector){0} + 1,",
        PRODUCTS,
    ),
    Mutant(
        "the base of a one for that of a zero",
        "kernels.c",
        "chosen(above, x - 1, x + 1)",
        "chosen(above, x + 1, x - 1)",
        FOUND,
    ),
    Mutant("a base left out", "kernels.c", "centred ? a->scale[r] * common[v] : (vector){0}", "(vector){0}", PRODUCTS),
    Mutant("a copy without its signs", "kernels.c", "= before[t] * value", "= value", PRODUCTS),
    Mutant(
        "rows without their signs",
        "kernels.c",
        "before[t] * *(const vector *)(table",
        "*(const vector *)(table",
        PRODUCTS,
    ),
    Mutant(
        "a block for the whole",
        "kernels.c",
        "block ? *(const vector *)(out + AT(v)) : (vector){0}",
        "(vector){0}",
        PRODUCTS,
    ),
    Mutant(
        "the last columns forgotten",
        "kernels.c",
        "a->vectors = parts_of(a->width, LANES)",
        "a->vectors = a->width / LANES",
        PRODUCTS,
    ),
    Mutant("all rows of a block in the first half of it", "kernels.c", "some[k] << i % BLOCK", "some[k]", PRODUCTS),
    Mutant("columns not searched", "kernels.c", "split, s, parts_of(s->columns, SPLIT)", "split, s, 1", PRODUCTS),
    Mutant("a strip that no thread has", "kernels.c", "add_part, a, a->strips", "add_part, a, a->strips - 1", PRODUCTS),
    Mutant("columns of any values", "kernels.c", "(mask)(base_of(value) != first) |", "", PRODUCTS),
    Mutant("the last unit left alone", "kernels.c", "units - j - 1);", "units - j - 2);", DRAWN),
    Mutant("units that know of no other", "kernels.c", "if (on) add_row(value", "if (0) add_row(value", DRAWN),
    Mutant("words without their counts", "kernels.c", "i * width, value_at(e, k)", "i * width, 1", SPARSE_PRODUCTS),
    Mutant("a gradient without counts", "kernels.c", "j * width, value_at(e, k)", "j * width, 1", SPARSE_PRODUCTS),
    Mutant("no center of sparse rows", "sparse.py", "-x.center[:, None] *", "0 * x.center[:, None] *", SPARSE_PRODUCTS),
    Mutant(
        "the sums of one sample for all",
        "kernels.c",
        "value_at(e, k) * other[r * columns + j]",
        "value_at(e, k) * other[r % e->cases * columns + j]",
        named("products", "what_sparse_rows_are_summed_to_is_exact") + "[3]",
    ),
    Mutant(
        "a base that its ones do not have",
        "kernels.c",
        "(1 + x) - 1",
        "x",
        named("products", "a_case_has_the_same_product_in_any_company"),
    ),
    Mutant(
        "columns for rows",
        "products.py",
        "base, step, (lists[0], lists[1]), (lists[2], lists[3])",
        "base, step, (lists[2], lists[3]), (lists[0], lists[1])",
        PRODUCTS,
    ),
    Mutant(
        "a gradient for each of several minibatches",
        "products.py",
        "if axes[1] is not None:",
        "if True:",
        named("products", "several_minibatches_are_one"),
    ),
    Mutant("all cases on each device", "learning.py", "with rows.devices():", "if True:", OWN_CASES),
    Mutant(
        "no sums of rows on several devices",
        "products.py",
        "return set(program.manual_axes) == set(mesh.axis_names)",
        "return False",
        OWN_CASES,
    ),
    # many samples, double control variates, comparisons
    Mutant("a control variate of the own weight", "estimators/ovis.py", "self.gamma * shares", "shares", OVIS),
    Mutant(
        "a slope of the sample's own",
        "estimators/double_control_variates.py",
        "_others(slopes[i])",
        "slopes[i]",
        DOUBLE,
    ),
    Mutant("too much put back", "estimators/double_control_variates.py", "* mean * (1 - mean)", "* mean", DOUBLE),
    Mutant(
        "minibatches of one size",
        "runs/comparison.py",
        "config.batch_size / latents_per_case(resolved)",
        "config.batch_size",
        named("compare", "all_that_apply_have_as_many_latents_in_an_update"),
    ),
    # annealing
    Mutant("a sweep one temperature ahead", "annealing.py", "h, powers[t], jax", "h, powers[t + 1], jax", ANNEALING),
    Mutant("the power on every layer", "annealing.py", "power if i == 1 else jnp.ones_like(power)", "power", ANNEALING),
    Mutant("a flip for a value", "annealing.py", "sign * own_logit", "own_logit", ANNEALING),
    Mutant(
        "an upper bound of the other sign",
        "annealing.py",
        "summary(-above, ",
        "summary(above, ",
        named("annealing", "the_sandwich_closes_on_the_exact_value"),
    ),
    # layers
    Mutant(
        "initial weights three times too large",
        "layers.py",
        "limit = np.sqrt(6.0 / (inputs + outputs)).item()",
        "limit = 3 * np.sqrt(6.0 / (inputs + outputs)).item()",
        WEIGHTS,
    ),
    Mutant(
        "initial weights all positive",
        "layers.py",
        "minval=-limit, maxval=limit",
        "minval=0.0, maxval=limit",
        WEIGHTS,
    ),
    Mutant(
        "a unit is on where it should be off",
        "layers.py",
        "(uniform(key, mean.shape) < mean)",
        "(uniform(key, mean.shape) > mean)",
        named("models", "inference_samples_follow_the_enumerated_distribution"),
    ),
    Mutant(
        "one draw for all the cases of a batch",
        "layers.py",
        "(uniform(key, mean.shape) < mean)",
        "(uniform(key, mean.shape[-1:]) < mean)",
        Q_APART,
    ),
    Mutant(
        "a unit sees itself",
        "layers.py",
        "return jnp.triu(within, 1)",
        "return jnp.triu(within)",
        named("layers", "a_unit_depends_only_on_those_before_it"),
    ),
    Mutant(
        "blocks of units do not see each other",
        "layers.py",
        "margin[:, begin:end] + value @ within[:begin, begin:end])",
        "margin[:, begin:end])",
        named("layers", "sampling_in_blocks_is_the_plain_loop"),
    ),
    Mutant(
        "the normaliser of the first word only",
        "layers.py",
        "jnp.sum(value, axis=-1) * normaliser",
        "normaliser",
        named("layers", "multinomial_log_prob_leaves_the_coefficient_out"),
    ),
    Mutant(
        "the same words in every document",
        "layers.py",
        "uniform(word_key, (cumulative.shape[0], longest))",
        "uniform(word_key, (1, longest))",
        named("independence", "words_of_documents_are_drawn_apart"),
    ),
    Mutant(
        "the derivative of a log-probability upside down",
        "layers.py",
        "(value - jax.nn.sigmoid(logits)) * logits_tangent",
        "(value - jax.nn.sigmoid(-logits)) * logits_tangent",
        named("models", "log_prob_is_finite_and_right_for_extreme_logits"),
    ),
    Mutant(
        "layers between are linear",
        "layers.py",
        "context = ACTIVATIONS[self.activation](layer(context))",
        "context = layer(context)",
        named("layers", "a_nonlinear_map_goes_through_its_layers"),
    ),
    Mutant(
        "a categorical variable sees itself",
        "layers.py",
        "jnp.where(variable[:, None] < variable, self.within, 0)",
        "jnp.where(variable[:, None] <= variable, self.within, 0)",
        named("layers", "a_category_depends_only_on_the_variables_before"),
    ),
    Mutant(
        "one draw for all variables of a categorical layer",
        "layers.py",
        "uniform(key, logits.shape[:-1])).reshape(*logits.shape[:-2], self.units)",
        "uniform(key, (*logits.shape[:-2], 1)) + 0 * logits[..., 0]).reshape(*logits.shape[:-2], self.units)",
        named("layers", "a_categorical_layer_samples_its_distribution"),
    ),
    Mutant(
        "the draws of Gaussian units do not see those before",
        "layers.py",
        "return self._solved(super().sample(key, context))",
        "return super().sample(key, context)",
        named("gaussian", "an_autoregressive_gaussian_layer_is_one_of_full_covariance"),
    ),
    Mutant(
        "no gradient through the Gaussian units before",
        "layers.py",
        "return self._solved(super().reparameterised(value - value @ self._masked(), context))",
        "return super().reparameterised(value, context)",
        named("gaussian", "autoregressive_gaussian_latents_have_unbiased_gradients"),
    ),
    Mutant(
        "a Gaussian deviation has no bound",
        "layers.py",
        "return mean, self.LARGEST * jnp.tanh(free / self.LARGEST)",
        "return mean, free",
        named("gaussian", "an_outlying_case_overflows_nothing"),
    ),
    Mutant(
        "the noise of a Gaussian layer is not fixed",
        "layers.py",
        "noise = jax.lax.stop_gradient((value - mean) * jnp.exp(-log_deviation))",
        "noise = (value - mean) * jnp.exp(-log_deviation)",
        named("gaussian", "reparameterised_gradients_are_unbiased"),
    ),
    Mutant(
        "log Q of a Gaussian layer has no gradient",
        "estimators/nvil.py",
        "total = total - jnp.sum(weighted_q - scored(params.inference, weighted_q))",
        "total = total - jax.lax.stop_gradient(jnp.sum(weighted_q - scored(params.inference, weighted_q)))",
        named("gaussian", "reparameterised_gradients_are_unbiased"),
    ),
    Mutant(
        "the signal of reparameterised draws is normalised",
        "estimators/nvil.py",
        "jnp.sum(unscaled * by_draws)",
        "jnp.sum(signal * by_draws)",
        named("gaussian", "normalisation_scales_discrete_layers_alone"),
    ),
    Mutant(
        "a mean that holds a share of the signal itself is subtracted from that of reparameterised draws",
        "signals.py",
        "        return signal - state\n",
        "        return self.update(signal, contexts, psi, state)[0]\n",
        named("gaussian", "normalisation_scales_discrete_layers_alone"),
    ),
    Mutant(
        "the draws of a Gaussian layer do not move with those below",
        "networks.py",
        "            context = self.above(x, values[-1])\n        return tuple(values)",
        "            context = self.above(x, jax.lax.stop_gradient(values[-1]))\n        return tuple(values)",
        named("gaussian", "reparameterised_gradients_are_unbiased"),
    ),
    # networks
    Mutant(
        "Q samples every layer with one key",
        "networks.py",
        "h.append(layer.sample(layer_key, context))",
        "h.append(layer.sample(keys[0], context))",
        Q_APART,
    ),
    Mutant(
        "P samples every layer with one key",
        "networks.py",
        "value = layer.sample(layer_key, beside(value, self.seen(y)))",
        "value = layer.sample(keys[0], beside(value, self.seen(y)))",
        P_APART,
    ),
    Mutant(
        "Q does not centre its input",
        "networks.py",
        "values = values - jax.lax.stop_gradient(center.value)",
        "values = values + 0",
        named("models", "only_the_inference_network_centres_its_input"),
    ),
    Mutant(
        "the centre is trained",
        "networks.py",
        "values = values - jax.lax.stop_gradient(center.value)",
        "values = values - center.value",
        named("models", "only_the_inference_network_centres_its_input"),
    ),
    Mutant(
        "the prior does not see the context",
        "networks.py",
        "return tuple(beside(value, y) for value in above)",
        "return *(beside(value, y) for value in above[:-1]), beside(above[-1], 0 * y)",
        named("conditional", "a_conditional_model_is_one_model_for_every_context"),
    ),
    Mutant(
        "P sees a context of real numbers in its own units",
        "networks.py",
        "y = self.seen(x[..., : self.given])",
        "y = x[..., : self.given]",
        named("gaussian", "gaussian_visibles_are_in_the_units_of_the_data"),
    ),
    Mutant(
        "samples see a context of real numbers in its own units",
        "networks.py",
        "layer.sample(layer_key, beside(value, self.seen(y)))",
        "layer.sample(layer_key, beside(value, y))",
        named("gaussian", "gaussian_visibles_are_in_the_units_of_the_data"),
    ),
    # models
    Mutant(
        "categorical visibles start at the logits of bits",
        "models.py",
        "shares = lengths is not None or visible_categories is not None",
        "shares = lengths is not None",
        named("contract", "categorical_visibles"),
    ),
    Mutant(
        "P and Q start from the same draws",
        "models.py",
        'down, up = jax.random.split(seeded_key(seed, "weights"))',
        'down = up = seeded_key(seed, "weights")',
        OWN_WEIGHTS,
    ),
    Mutant(
        "the same weights for every seed",
        "models.py",
        'seeded_key(seed, "weights")',
        'seeded_key(0, "weights")',
        OWN_WEIGHTS,
    ),
    Mutant(
        "visible biases start at the mean itself",
        "models.py",
        "return jnp.log(rate) - jnp.log1p(-rate)",
        "return rate",
        named("models", "visible_biases_start_at_the_logit_of_the_mean"),
    ),
    # signals
    Mutant(
        "the running averages forget fast",
        "signals.py",
        "return decay * old + (1 - decay) * new",
        "return (1 - decay) * old + decay * new",
        ALGORITHM_1,
    ),
    Mutant(
        "the strict order is the paper's",
        "signals.py",
        'return signal - (updated if self.order == "paper" else state), 0.0, updated',
        "return signal - updated, 0.0, updated",
        ALGORITHM_1,
    ),
    Mutant(
        "a faint signal is amplified",
        "signals.py",
        "signal / jnp.maximum(1.0, jnp.sqrt(variance))",
        "signal / jnp.sqrt(variance)",
        named("signals", "a_faint_signal_is_not_amplified"),
    ),
    Mutant(
        "local signals without the prior",
        "signals.py",
        "reverse=True) + log_p[..., -1:]",
        "reverse=True)",
        named("signals", "local_signals_keep_all_terms_from_their_layer_up"),
    ),
    Mutant(
        "local signals of the layers below",
        "signals.py",
        "axis=terms.ndim - 1, reverse=True)",
        "axis=terms.ndim - 1)",
        named("signals", "local_signals_keep_all_terms_from_their_layer_up"),
    ),
    Mutant(
        "leave-one-out leaves none out",
        "signals.py",
        "(signal - jnp.mean(signal, axis=0)) * (samples / (samples - 1))",
        "signal - jnp.mean(signal, axis=0)",
        named("estimators", "a_leave_one_out_baseline_is_unbiased") + "[True-1-2-2]",
    ),
    Mutant(
        "the chain loses its baseline",
        "signals.py",
        "total = total + baseline",
        "total = total + 0 * baseline",
        PSI,
    ),
    Mutant(
        "a baseline of 50 units",
        "signals.py",
        "def input_dependent_baseline(units: int = 100)",
        "def input_dependent_baseline(units: int = 50)",
        CONSTANTS,
    ),
    Mutant(
        "a running mean that decays by 0.9",
        "signals.py",
        "def running_mean(decay: float = 0.8,",
        "def running_mean(decay: float = 0.9,",
        CONSTANTS,
    ),
    Mutant(
        "all baselines start with one key",
        "signals.py",
        "keys = jax.random.split(key, len(contexts))",
        "keys = [key] * len(contexts)",
        named("independence", "baselines_of_different_layers_start_apart"),
    ),
    # estimators
    Mutant(
        "all samples of a case are the same",
        "estimators/samples.py",
        "jax.random.split(key, samples))",
        "jnp.stack([key] * samples))",
        Q_APART,
    ),
    Mutant(
        "gradients are summed over the samples",
        "estimators/nvil.py",
        "return total / self.samples, (new_state, info)",
        "return total, (new_state, info)",
        UNBIASED,
    ),
    Mutant(
        "a warm-up leaves log Q at its full weight",
        "estimators/nvil.py",
        "weights]), log_q * weights",
        "weights]), log_q",
        WARM_UP,
    ),
    Mutant(
        "a warm-up weighs the first layer too",
        "estimators/nvil.py",
        "jnp.arange(layers) == 0",
        "jnp.arange(layers) < 0",
        WARM_UP,
    ),
    Mutant(
        "a warm-up weighs only the signals",
        "estimators/nvil.py",
        "jnp.sum(weighted_p) + jnp.sum(signal * by_phi)",
        "jnp.sum(log_p) + jnp.sum(signal * by_phi)",
        WARM_UP,
    ),
    Mutant(
        "a warm-up never ends",
        "estimators/nvil.py",
        "Warming(updates + 1, state)",
        "Warming(updates, state)",
        named("estimators", "a_warm_up_counts_its_updates_and_tells_of_the_true_bound"),
    ),
    Mutant(
        "the bound that a warm-up tells of is the weighted one",
        "estimators/nvil.py",
        "bound=jnp.mean(jnp.sum(log_p, axis=-1)",
        "bound=jnp.mean(jnp.sum(weighted_p, axis=-1)",
        named("estimators", "a_warm_up_counts_its_updates_and_tells_of_the_true_bound"),
    ),
    Mutant(
        "the baselines are not trained",
        "estimators/nvil.py",
        " + jnp.sum(signal * baseline)",
        "",
        PSI,
    ),
    Mutant(
        "the signal is differentiated",
        "estimators/nvil.py",
        "signal, unscaled, new_state = jax.lax.stop_gradient((signal, unscaled, new_state))",
        "unscaled, new_state = jax.lax.stop_gradient((unscaled, new_state))",
        PSI,
    ),
    Mutant(
        "the bound of the samples is summed",
        "estimators/nvil.py",
        "bound=jnp.mean(jnp.sum(log_p, axis=-1)",
        "bound=jnp.sum(jnp.sum(log_p, axis=-1)",
        named("estimators", "info_reports_the_raw_bound"),
    ),
    Mutant(
        "one dream for the whole minibatch",
        "estimators/wake_sleep.py",
        "sample_dreams(sleep, pair, x)",
        "jax.tree.map(lambda v: jnp.repeat(v, len(x), axis=0), pair.model.sample(sleep, 1))",
        P_APART,
    ),
    Mutant(
        "the sleep phase is left out",
        "estimators/wake_sleep.py",
        " + jnp.sum(dream_log_q)",
        "",
        named("contract", "wake_sleep_with_more_cases_and_samples") + "[2-1]",
    ),
    # learning
    Mutant(
        "latents are drawn with the minibatch's key",
        "learning.py",
        "self.estimator.gradients(draw_key, state.params",
        "self.estimator.gradients(data_key, state.params",
        KEYS,
    ),
    Mutant(
        "the first statistics are drawn with the minibatch's key",
        "learning.py",
        "data_key, init_key = jax.random.split(key)",
        "data_key = init_key = key",
        KEYS,
    ),
    Mutant(
        "every update draws the same",
        "learning.py",
        "jax.random.fold_in(state.key, state.step)",
        "state.key",
        KEYS,
    ),
    Mutant(
        "every seed trains alike",
        "learning.py",
        'key = seeded_key(seed, "training")',
        'key = seeded_key(0, "training")',
        KEYS,
    ),
    Mutant(
        "training walks downhill",
        "learning.py",
        "descent = jax.tree.map(jnp.negative, trained(gradients))",
        "descent = trained(gradients)",
        LEARNS,
    ),
    Mutant(
        "the average begins with the untrained parameters",
        "learning.py",
        "due = (step % AVERAGE_EVERY == 0) | (step < AVERAGE_EVERY)",
        "due = step % AVERAGE_EVERY == 0",
        named("own_run", "the_average_of_few_updates_is_the_last"),
    ),
    Mutant(
        "the average is the last",
        "learning.py",
        "return old + (new - old) / parts.astype(old.dtype)",
        "return new",
        named("own_run", "averaged_parameters_are_the_mean_of_the_last_share"),
    ),
    Mutant(
        "a tenth of the cases is held out",
        "learning.py",
        "max(100, cases // 20)",
        "max(100, cases // 10)",
        named("training", "the_default_validation_set_is_a_share_with_a_floor_and_a_cap"),
    ),
    # training
    Mutant(
        "the validation bound is measured on training rows",
        "training.py",
        "_validated(learner, learned, held_out,",
        "_validated(learner, learned, rows,",
        HELD_OUT,
    ),
    Mutant(
        "validation cases are trained on",
        "runs/run.py",
        "return Experiment(training.centred(pair, train), learner, train, held_out)",
        "return Experiment(training.centred(pair, train), learner, source, held_out)",
        HELD_OUT,
    ),
    Mutant(
        "every validation draws the same",
        "training.py",
        "held_out, validation_samples, done)",
        "held_out, validation_samples, 0)",
        HELD_OUT,
    ),
    Mutant(
        "the worst parameters are kept",
        "training.py",
        "elif agreed(found.bound > best.bound):",
        "elif agreed(best.step == 0 or found.bound < best.bound):",
        named("training", "the_best_parameters_are_those_of_the_best_validation_bound"),
    ),
    Mutant(
        "a report has the last update's bound",
        "training.py",
        "total = jax.tree.map(jnp.add, total, info)",
        "total = info",
        LOOP,
    ),
    Mutant(
        "a report averages over all updates so far",
        "training.py",
        "since = rows.everywhere(jax.tree.map(jnp.zeros_like, since))",
        "since = rows.everywhere(jax.tree.map(jnp.asarray, since))",
        named("independence", "a_report_averages_over_its_own_updates_alone"),
    ),
    Mutant(
        "patience lasts a report longer",
        "training.py",
        "step - best.step >= patience * report_every",
        "step - best.step > patience * report_every",
        named("training", "patience_ends_training_after_so_many_reports_without_a_better_bound"),
    ),
    Mutant(
        "a validation of one sample",
        "training.py",
        "validation: int | Any | None = None,\n    validation_samples: int = 10,",
        "validation: int | Any | None = None,\n    validation_samples: int = 1,",
        CONSTANTS,
    ),
    # evaluation
    Mutant(
        "the same key in every block of an evaluation",
        "evaluation.py",
        "samples, jax.random.fold_in(key, i), objective)",
        "samples, key, objective)",
        BLOCKS,
    ),
    Mutant(
        "the same key in every sample of an evaluation",
        "evaluation.py",
        "objective(jax.random.fold_in(key, i), pair, x)",
        "objective(key, pair, x)",
        BLOCKS,
    ),
    Mutant(
        "the same draws whatever the seed of an evaluation",
        "evaluation.py",
        'seeded_key(seed, "evaluation")',
        'seeded_key(0, "evaluation")',
        BLOCKS,
    ),
    Mutant(
        "the padding of the last block counts",
        "evaluation.py",
        "[np.asarray(part, float)[: len(rows)] for part in function(i, padded)]",
        "[np.asarray(part, float) for part in function(i, padded)]",
        IN_BLOCKS,
    ),
    Mutant(
        "the standard error of all there is",
        "evaluation.py",
        "np.std(means, ddof=1)",
        "np.std(means)",
        IN_BLOCKS,
    ),
    Mutant(
        "the perplexity of words for that of documents",
        "evaluation.py",
        "np.mean(values[written] / lengths[written])",
        "np.sum(values[written]) / np.sum(lengths)",
        named("layers", "perplexities_by_hand"),
    ),
    # checks of data
    Mutant(
        "values are not checked",
        "layers.py",
        "        source.check(after(given, self.domain))\n",
        "",
        named("mistakes", "a_layer_of_ones_own_says_what_it_explains"),
    ),
    Mutant(
        "only the first case is checked",
        "rows.py",
        "wrong = ~domain.allows(values)",
        "wrong = ~domain.allows(values[:1])",
        named("mistakes", "a_layer_of_ones_own_says_what_it_explains"),
    ),
    Mutant(
        "a pair without a mean stays without",
        "training.py",
        "mean = Constant(jnp.asarray(train.first().mean(), center.value.dtype))",
        "mean = Constant(center.value)",
        named("mistakes", "a_pair_without_a_mean_takes_that_of_its_training_cases"),
    ),
    Mutant(
        "a mean that was given is replaced",
        "training.py",
        "if not isinstance(center, Unset):",
        "if center is None:",
        named("mistakes", "a_pair_without_a_mean_takes_that_of_its_training_cases"),
    ),
    # apply
    Mutant(
        "codes of one sample, over and over",
        "apply.py",
        "jax.random.split(key, samples)",
        "jnp.stack([key] * samples)",
        named("apply", "codes_are_the_posterior_means_of_q") + "[factorial]",
    ),
    Mutant(
        "samples whatever the seed",
        "apply.py",
        'seeded_key(seed, "sample")',
        'seeded_key(0, "sample")',
        named("apply", "samples_have_their_latents_and_means"),
    ),
    # topics, codes and scikit-learn's manners
    Mutant(
        "words that a unit lowers for those that it raises",
        "topic_words.py",
        "np.sqrt(before) - np.sqrt(share)",
        "np.sqrt(share) - np.sqrt(before)",
        named("topics", "a_topic_is_the_words_that_its_unit_raises"),
    ),
    Mutant(
        "coherence that is not normalised",
        "topic_words.py",
        " / -np.log(together)",
        "",
        named("topics", "the_coherence_of_a_topic_by_hand"),
    ),
    Mutant(
        "distances of the first 64 bits",
        "codes.py",
        "np.bitwise_count(words ^ query)",
        "np.bitwise_count((words ^ query)[:, :1])",
        named("search", "the_nearest_codes_are_those_with_the_fewest_other_bits"),
    ),
    Mutant(
        "an index of any parameters is taken",
        "runs/index.py",
        "if index.parameters != _checksum(run):",
        "if not index.parameters:",
        named("search", "an_index_of_other_parameters_or_of_nothing_is_refused"),
    ),
    Mutant(
        "partial_fit sees its first cases again and again",
        "sklearn/minibatches.py",
        "[self.done * batch_size :]",
        "",
        named("sklearn", "every_case_is_given_once_in_its_order"),
    ),
    # rows
    Mutant(
        "a minibatch never draws the last case",
        "rows.py",
        "jax.random.randint(which, (size,), 0, self.shape[0])",
        "jax.random.randint(which, (size,), 0, max(1, self.shape[0] - 1))",
        MINIBATCH,
    ),
    Mutant(
        "a minibatch is contiguous",
        "rows.py",
        "jax.random.randint(which, (size,), 0, self.shape[0])",
        "(jax.random.randint(which, (), 0, self.shape[0]) + jnp.arange(size)) % self.shape[0]",
        MINIBATCH,
    ),
    Mutant(
        "grey levels are binarized by the key that chose the rows",
        "rows.py",
        "which, how = jax.random.split(key)",
        "which = how = key",
        named("independence", "grey_levels_are_not_binarized_by_the_key_that_chose_the_rows"),
    ),
    Mutant(
        "the first cases are held out",
        "rows.py",
        "order = np.random.default_rng(seed).permutation(cases)",
        "order = np.arange(cases)",
        SPLIT,
    ),
    Mutant(
        "what is held out stays in",
        "rows.py",
        "self.select(np.sort(order[count:]))",
        "self.select(np.sort(order))",
        SPLIT,
    ),
    # random
    Mutant(
        "a uniform number may be 0",
        "random.py",
        "* step + step / 2",
        "* step",
        named("apply", "uniform_numbers_are_never_0_or_1"),
    ),
    Mutant(
        "a rotation of the hash",
        "random.py",
        "(13, 15, 26, 6)",
        "(13, 15, 26, 7)",
        named("models", "our_threefry_is_that_of_jax"),
    ),
    Mutant(
        "half of the numbers are drawn twice",
        "random.py",
        "jnp.concatenate([first, second], axis=-1)",
        "jnp.concatenate([first, first], axis=-1)",
        named("models", "uniform_numbers_of_a_row_are_its_own"),
    ),
    Mutant(
        "all purposes have one key",
        "random.py",
        "np.uint32(zlib.crc32(purpose.encode()))",
        "np.uint32(7)",
        named("apply", "purposes_have_keys_of_their_own"),
    ),
    # optimisers
    Mutant(
        "Adam's epsilon is not corrected for the bias",
        "optimisers.py",
        "(eps * root).astype(mean.dtype)",
        "jnp.asarray(eps).astype(mean.dtype)",
        named("training", "adam_is_that_of_optax"),
    ),
    Mutant(
        "the inference network at the model's rate",
        "optimisers.py",
        "Parameters(learning_rate, _times(learning_rate, inference_ratio), learning_rate)",
        "Parameters(learning_rate, learning_rate, learning_rate)",
        RATES,
    ),
    Mutant(
        "the baselines at the inference network's rate",
        "optimisers.py",
        "_times(learning_rate, inference_ratio), learning_rate)",
        "_times(learning_rate, inference_ratio), _times(learning_rate, inference_ratio))",
        RATES,
    ),
    Mutant(
        "biases decay",
        "optimisers.py",
        "leaf.ndim > 1",
        "leaf.ndim > 0",
        named("training", "only_weights_decay_and_by_the_rate_of_their_group"),
    ),
    Mutant(
        "connections within layers decay like all other weights",
        "optimisers.py",
        "decay, mask=which) for decay, which in decays if decay",
        "weight_decay, mask=which) for decay, which in decays if decay",
        named("training", "connections_within_layers_have_a_decay_of_their_own"),
    ),
    Mutant(
        "ten times the paper's rate",
        "optimisers.py",
        "learning_rate: float | Schedule = 3e-4",
        "learning_rate: float | Schedule = 3e-3",
        CONSTANTS,
    ),
    Mutant(
        "the cosine schedule ends elsewhere",
        "optimisers.py",
        "alpha=final_rate / learning_rate",
        "alpha=final_rate",
        named("training", "schedules_go_from_the_rate_to_the_final_rate"),
    ),
    # diagnostics
    Mutant(
        "the noise is left in the signal-to-noise ratio",
        "diagnostics.py",
        "max(0.0, square_of_mean - variance / draws)",
        "max(0.0, square_of_mean)",
        named("diagnostics", "signal_to_noise_of_a_case_worked_by_hand"),
    ),
    # runs
    Mutant(
        "wake-sleep at NVIL's rate",
        "runs/config.py",
        'rate = rate / 3 if self.estimator == "wake-sleep" else rate',
        "rate = rate",
        named("independence", "the_command_line_s_rates"),
    ),
    Mutant(
        "a result of one sample",
        "reproduce/results.py",
        "\nSAMPLES = 10\n",
        "\nSAMPLES = 1\n",
        CONSTANTS,
    ),
    Mutant(
        "the paper's minibatches of 20 are of 50",
        "reproduce/table1.toml",
        "batch_size = 20",
        "batch_size = 50",
        named("reproduce", "the_paper_s_protocol_is_that_of_section_4"),
    ),
    Mutant(
        "the lock is shared",
        "runs/lock.py",
        "fcntl.LOCK_EX | fcntl.LOCK_NB",
        "fcntl.LOCK_SH | fcntl.LOCK_NB",
        named("runs", "a_lock_that_was_removed_while_it_was_opened_is_taken_anew"),
    ),
    Mutant(
        "a lock that was removed is trusted",
        "runs/lock.py",
        "if os.fstat(descriptor).st_ino == path.stat().st_ino:",
        "if True:",
        named("runs", "a_lock_that_was_removed_while_it_was_opened_is_taken_anew"),
    ),
    Mutant(
        "the checksum is not looked at",
        "runs/storage.py",
        'if metadata.get("sha256", "") != _checksum(stored):',
        "if False:",
        DAMAGED + "[a bit]",
    ),
    Mutant(
        "three checkpoints are kept",
        "runs/checkpoints.py",
        "checkpoint_paths(folder)[:-2]",
        "checkpoint_paths(folder)[:-3]",
        DAMAGED + "[empty]",
    ),
    Mutant(
        "older formats are read",
        "runs/storage.py",
        "if number != FORMAT:",
        "if number > FORMAT:",
        named("cli", "a_run_of_the_first_format_is_refused_with_what_to_do"),
    ),
    Mutant(
        "reports that will come again are kept",
        "runs/metrics.py",
        'if values["updates"] <= updates]',
        'if values["updates"] <= updates + 100]',
        FAULTS,
    ),
    Mutant(
        "metrics are written in place",
        "runs/storage.py",
        "os.replace(name, path)\n",
        "path.write_bytes(Path(name).read_bytes())\n",
        FAULTS,
    ),
    Mutant(
        "half a line counts as a report",
        "runs/metrics.py",
        'text.split("\\n")[:-1]',
        'text.split("\\n")',
        named("runs", "hostile_metrics_do_no_harm"),
    ),
    Mutant(
        "a run that diverged keeps where it went",
        "runs/run.py",
        "save(error.checkpoint)",
        "save(reached or error.checkpoint)",
        named("runs", "a_run_that_diverges_goes_back_to_the_last_report"),
    ),
    Mutant(
        "where the data has moved to is forgotten",
        "runs/run.py",
        "if now != before.config:",
        "if False:",
        named("runs", "a_run_whose_data_has_moved_goes_on_from_its_new_place"),
    ),
    Mutant(
        "any data will do in the place of data that has moved",
        "runs/run.py",
        "if dataset.fingerprint != self.facts.fingerprint:",
        "if data is None and dataset.fingerprint != self.facts.fingerprint:",
        named("runs", "a_run_whose_data_has_moved_goes_on_from_its_new_place"),
    ),
    Mutant(
        "data from Python goes by the name in the config",
        "runs/run.py",
        'source = dataset.source or ("-" if streamed else FROM_PYTHON)',
        "source = config.data",
        named("runs", "a_run_on_data_from_python_says_so_and_is_evaluated_on_no_other"),
    ),
    Mutant(
        "a sweep's tables lose what is not in its new grid",
        "runs/sweep.py",
        "if here.get(point.name) != point.values]",
        "if False]",
        named("sweep", "a_grid_grows_and_loses_nothing_that_is_done"),
    ),
    # data
    Mutant(
        "grey levels upside down",
        "data/grey.py",
        "(uniform(key, probabilities.shape) < probabilities)",
        "(uniform(key, probabilities.shape) > probabilities)",
        named("data", "grey_levels_are_binarized_anew_at_every_draw_and_once_for_the_test"),
    ),
    Mutant(
        "grey levels are binarized once",
        "data/grey.py",
        "(uniform(key, probabilities.shape) < probabilities)",
        "(0.5 < probabilities)",
        named("data", "grey_levels_are_binarized_anew_at_every_draw_and_once_for_the_test"),
    ),
    Mutant(
        "a sparse row takes an entry of the next",
        "sparse.py",
        ".at[inside]",
        ".at[inside + 1]",
        named("layers", "sparse_rows_are_the_dense_ones") + "[0.3]",
    ),
    Mutant(
        "the gradient from sparse cases forgets the centre",
        "sparse.py",
        "gradient = -x.center[:, None]",
        "gradient = 0 * x.center[:, None]",
        named("layers", "gradients_from_sparse_cases_are_those_from_dense_ones"),
    ),
    Mutant(
        "of sparse cases only the first piece counts",
        "sparse.py",
        "fori_loop(1, -(-last[-1] // size)",
        "fori_loop(1, 1",
        named("layers", "gradients_from_sparse_cases_are_those_from_dense_ones"),
    ),
    Mutant(
        "a later piece of sparse cases forgets those before it",
        "sparse.py",
        "jnp.sum(last < start",
        "0 * jnp.sum(last < start",
        named("layers", "gradients_from_sparse_cases_are_those_from_dense_ones"),
    ),
    Mutant(
        "pieces of sparse cases overlap where they are added in chunks",
        "sparse.py",
        "piece * size, size",
        "piece * self.piece, size",
        named("layers", "gradients_from_sparse_cases_are_those_from_dense_ones"),
    ),
    Mutant(
        "a stream starts over with every window",
        "data/streams.py",
        "(step - self.begin) * size",
        "0 * (step - self.begin) * size",
        named("streams", "every_case_is_seen_once_in_order_and_the_windows_change_nothing"),
    ),
    Mutant(
        "true is 0 in a table",
        "data/readers.py",
        '"1" if found[2] else "0"',
        '"0" if found[2] else "1"',
        named("data", "tables_as_spreadsheets_and_frames_write_them"),
    ),
    Mutant(
        "numbers above bits are a case",
        "data/readers.py",
        "if names is None and _names_above_bits(numbers):",
        "if False:",
        named("data", "numbers_that_may_name_the_columns_of_bits_are_asked_about"),
    ),
    Mutant(
        "choices of words are taken where there is no text",
        "data/loading.py",
        "if not contents.text and",
        "if False and",
        named("data", "choices_of_words_are_refused_where_there_is_no_text_to_choose_them_from"),
    ),
    Mutant(
        "test documents choose words too",
        "data/text.py",
        'every[_training(every.shape[0])] if first == "all" else every',
        "every",
        named("data", "the_words_of_text_without_a_split_are_those_of_its_training_documents"),
    ),
    Mutant(
        "svmlight counts from zero",
        "data/readers.py",
        "zero_based = choices.first_index == 0",
        "zero_based = True",
        named("data", "svmlight_counts_from_one_unless_told"),
    ),
    Mutant(
        "a file may be unpickled",
        "data/readers.py",
        'np.load(path, mmap_mode="r", allow_pickle=False)',
        "np.load(path, allow_pickle=True)",
        named("data", "hostile_files_are_refused_and_nothing_is_executed"),
    ),
    Mutant(
        "an archive may be as large as it likes",
        "data/readers.py",
        "if sum(entry.file_size for entry in archive.infolist()) > physical_memory():",
        "if False:",
        named("data", "archives_that_unpack_to_more_than_memory_are_refused"),
    ),
    Mutant(
        "a download of another checksum is kept",
        "data/download.py",
        "if remote.sha256 == _sha256(path):",
        "if True:",
        named("download", "the_wrong_file_is_refused_and_the_next_address_tried"),
    ),
)


def copy_of_the_package(folder: Path) -> Path:
    """A copy that shares the cache of compiled functions."""
    folder.mkdir()
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name)
        else:
            shutil.copy(source, folder / name)
    (ROOT / ".cache").mkdir(exist_ok=True)
    (folder / ".cache").symlink_to(ROOT / ".cache")
    return folder


def start_tests(folder: Path, tests: Sequence[str], *options: str, seconds: int = 0) -> int:
    """Run pytest in a copy, in a process of its own that has all but the package imported already.

    Its output is in `folder`/output. After `seconds` it is ended, if it has not ended by itself.
    """
    child = os.fork()
    if child:
        return child
    signal.alarm(seconds)
    os.chdir(folder)
    sys.path[:0] = [str(folder / "src")]
    os.environ["PYTHONPATH"] = str(folder / "src")  # for what a test starts
    output = os.open("output", os.O_WRONLY | os.O_CREAT, 0o600)
    for stream in (1, 2):
        os.dup2(output, stream)
    import pytest

    code = 3
    try:
        quiet = ("-W", "ignore::pytest.PytestAssertRewriteWarning")  # of plugins that are imported already
        every = ("-m", "not pages")  # slow ones too
        plain = ("-p", "no:cacheprovider", "-p", "no:xdist", "--tb=no", "-rfE")
        code = pytest.main([*plain, *every, *quiet, *options, *tests])
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def prepare() -> None:
    """Import what every child needs; JAX takes its settings from the environment, which conftest.py prepares."""
    os.environ |= {"NVIL_UNCHECKED": "1", "COLUMNS": "300"}
    sys.path.insert(0, str(ROOT / "tests"))
    for name in ("conftest", "equinox", "optax", "scipy.sparse", "safetensors.numpy"):
        importlib.import_module(name)
    del sys.modules["conftest"]  # each child has its own
    sys.path.remove(str(ROOT / "tests"))


def verdict(code: int, output: str) -> tuple[bool, str]:
    """Whether a test failed by an assertion, and what is to be said of it."""
    failed = re.search(r"^FAILED \S*?::(.*?) - (.*)$", output, re.MULTILINE)
    if code == 0:
        return False, "SURVIVED"
    if code != 1 or failed is None:
        last = output.strip().splitlines()[-1:] or [""]
        return False, f"NO TEST FAILED, but pytest ended with {code}: {last[0]}"
    if not re.match(r"assert |AssertionError|Failed: DID NOT RAISE", failed[2]):
        return False, f"FAILED BY AN ERROR in {failed[1]}: {failed[2][:150]}"
    return True, f"killed by {failed[1]}"


def outcomes(mutants: Sequence[Mutant], original: Path, jobs: int) -> Iterator[tuple[Mutant, bool, str, float]]:
    """`(mutant, whether it was killed, what is to be said of it, seconds)`, as they come."""
    waiting, running = list(mutants), {}
    while waiting or running:
        while waiting and len(running) < jobs:
            mutant = waiting.pop(0)
            # With the bytecode of the original, which need not be made again.
            folder = Path(shutil.copytree(original, original.parent / f"mutant{len(waiting)}", symlinks=True))
            path = folder / PACKAGE / mutant.file
            path.write_text(mutant.applied(path.read_text()))
            running[start_tests(folder, mutant.tests, "-x", seconds=SECONDS)] = mutant, folder, time.monotonic()
        process, status = os.wait()
        mutant, folder, began = running.pop(process)
        killed, words = verdict(os.waitstatus_to_exitcode(status), (folder / "output").read_text(errors="replace"))
        shutil.rmtree(folder)
        yield mutant, killed, words, time.monotonic() - began


def main() -> int:
    parser = argparse.ArgumentParser(description="Make each mutant and see that a test fails.")
    parser.add_argument("--only", default="", help="those with this in their name")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="at a time; by default one per core")
    options = parser.parse_args()
    mutants = [mutant for mutant in MUTANTS if options.only in mutant.name]
    tests = sorted({test for mutant in mutants for test in mutant.tests})
    began = time.monotonic()
    prepare()
    print(f"{len(tests)} tests without any mutant ...", flush=True)
    left = []
    with tempfile.TemporaryDirectory(prefix="mutant") as name:
        original = copy_of_the_package(Path(name) / "original")
        _, status = os.waitpid(start_tests(original, tests), 0)
        if status:
            print((original / "output").read_text(errors="replace"))
            print("They must pass before mutants mean anything.")
            return 1
        print(f"pass in {time.monotonic() - began:.0f} s; {len(mutants)} mutants, {options.jobs} at a time", flush=True)
        for i, (mutant, killed, words, seconds) in enumerate(outcomes(mutants, original, options.jobs), 1):
            print(f"{i:3}/{len(mutants)} {seconds:5.1f} s  {mutant.name} ({mutant.file}): {words}", flush=True)
            if not killed:
                left.append(mutant.name)
    print(f"{len(mutants) - len(left)} of {len(mutants)} mutants killed in {time.monotonic() - began:.0f} s")
    for name in left:
        print(f"  not killed: {name}")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
