"""Products with binary matrices: sums of rows by our own functions in C, wherever they give what XLA gives."""

import logging
import os
import platform
import shlex
import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

import nvil
from helpers import drawn_in_order
from nvil import estimators, kernels
from nvil.contracts import trained
from nvil.layers import sample_in_order
from nvil.products import _entries, product
from nvil.rows import as_rows
from nvil.sparse import repeated

SHAPES = [(1, 512, 8), (7, 65, 16), (8, 64, 17), (9, 63, 130), (20, 784, 35), (65, 100, 160), (600, 270, 200)]
"""Cases, inputs, outputs: about the edges of bytes, blocks, vectors and strips; the last is shared by threads."""
KINDS = ["off", "few", "half", "most", "on", "centred", "negative", "mixed", "three"]


@pytest.fixture(autouse=True)
def _compiled():
    """A compiler that is there must be able to compile them: nothing is skipped then."""
    if os.environ.get("NVIL_KERNELS") == "off":
        pytest.skip("NVIL_KERNELS is off")
    try:
        kernels._compiler()
    except FileNotFoundError:
        pytest.skip("there is no C compiler here, and XLA has all products")
    assert kernels.available()


def matrix(random, kind, cases, inputs):
    """Bits, all of them less 1, columns of two values that are no bits, and of three: each product is exact."""
    share = {"off": 0, "half": 0.5, "most": 0.9, "on": 1}.get(kind, 0.15)
    x = (random.random((cases, inputs)) < share).astype(np.float32)
    if kind == "centred":
        return x - random.choice([0.25, 0.5, 0.75], inputs)
    if kind == "mixed":
        return random.integers(-3, 4, inputs) * x + random.integers(-3, 4, inputs)
    return {"negative": -x, "three": x + (random.random((cases, inputs)) < 0.1)}.get(kind, x)


def products(x, weights, delta):
    """x W and, as the gradient of W, x' delta, each compiled."""
    x, weights, delta = (jnp.asarray(each, jnp.float32) for each in (x, weights, delta))
    gradient = jax.grad(lambda weights, x: jnp.sum(product(x, weights) * delta))
    return jax.jit(product)(x, weights), jax.jit(gradient)(weights, x)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_product_is_exact(shape, kind, monkeypatch):
    monkeypatch.setattr("nvil.products.WORTHWHILE", 0)
    cases, inputs, outputs = shape
    random = np.random.default_rng(KINDS.index(kind))
    x = matrix(random, kind, cases, inputs)
    weights, delta = random.integers(-8, 9, (inputs, outputs)), random.integers(-8, 9, (cases, outputs))
    forward, gradient = products(x, weights, delta)
    np.testing.assert_array_equal(forward, x @ weights)
    np.testing.assert_array_equal(gradient, x.T @ delta)


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("off", True),
        ("few", True),
        ("half", True),
        ("centred", True),
        ("negative", False),
        ("most", False),
        ("three", False),
    ],
)
def test_binary_columns_are_found(kind, found):
    """Where they are not, as with bits times -1, XLA has the product, and nothing but its time would tell."""
    x = jnp.asarray(matrix(np.random.default_rng(0), kind, 40, 100), jnp.float32)
    assert bool(jax.jit(lambda x: _entries(x)[0])(x)) == found


def test_centred_data_has_the_same_product_to_rounding():
    random = np.random.default_rng(0)
    x = (random.random((50, 100)) < 0.2).astype(np.float32)
    x = x - x.mean(axis=0)
    weights, delta = random.normal(size=(100, 64)), random.normal(size=(50, 64))
    forward, gradient = products(x, weights, delta)
    np.testing.assert_allclose(forward, x.astype(float) @ weights, atol=1e-5)
    np.testing.assert_allclose(gradient, x.T.astype(float) @ delta, atol=1e-5)


@pytest.mark.parametrize("values", [[0, 1, 0.5], [0, np.nan], [np.inf], [0, np.inf], [1e-8, 1], [-1e8, 1], [1, -1]])
def test_other_values_have_the_product_of_xla(values):
    random = np.random.default_rng(0)
    x = (random.random((20, 100)) < 0.2).astype(np.float32)
    x[:, 3] = random.choice(values, 20)
    weights, delta = random.normal(size=(100, 64)), random.normal(size=(20, 64))
    forward, gradient = products(x, weights, delta)
    with np.errstate(invalid="ignore"):  # inf - inf
        np.testing.assert_allclose(forward, x.astype(float) @ weights, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(gradient, x.T.astype(float) @ delta, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("centre", [0.0, 0.1, 1 / 3, 0.5, 0.7, 0.9])
def test_a_case_has_the_same_product_in_any_company(centre):
    random = np.random.default_rng(0)
    x = (random.random((40, 100)) < centre).astype(np.float32)
    x[:, 0], x[:, 1] = 0, 1
    x = jnp.asarray(x - np.float32(centre))
    weights = jnp.asarray(random.normal(size=(100, 64)), jnp.float32)
    whole = jax.jit(product)(x, weights)
    for some in (slice(0, 1), slice(7, 9), slice(30, 40)):
        np.testing.assert_array_equal(jax.jit(product)(x[some], weights), whole[some])


ON_SOME_CORES = """
import os, sys
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(sys.argv[1])])  # of which XLA has a thread each
import hashlib, jax, jax.numpy as jnp, numpy as np
from nvil import kernels
from nvil.products import product
random = np.random.default_rng(0)
x = jnp.asarray((random.random((600, 784)) < 0.3) - random.random(784), jnp.float32)
weights, delta = (jnp.asarray(random.normal(size=shape), jnp.float32) for shape in ((784, 400), (600, 400)))
gradient = jax.grad(lambda weights: jnp.sum(product(x, weights) * delta))
results = jax.jit(product)(x, weights), jax.jit(gradient)(weights)
print(kernels.available(), *(hashlib.sha256(np.asarray(each).tobytes()).hexdigest() for each in results))
"""


def test_several_threads_have_the_bits_of_one():
    """400 columns are strips of other widths for two threads than for one."""
    alone, together = (
        subprocess.run([sys.executable, "-c", ON_SOME_CORES, cores], capture_output=True, text=True, check=True).stdout
        for cores in ("1", "2")
    )
    assert alone.startswith("True")
    assert alone == together


def test_it_is_a_product_where_jit_is_disabled_and_where_the_sharding_is_given():
    random = np.random.default_rng(0)
    x = jnp.asarray((random.random((20, 100)) < 0.2).astype(np.float32))
    weights = jnp.asarray(random.integers(-8, 9, (100, 64)), jnp.float32)
    with jax.disable_jit():
        np.testing.assert_array_equal(product(x, weights), x @ weights)
    mesh, spec = jax.make_mesh((1,), ("cases",), axis_types=(jax.sharding.AxisType.Auto,)), jax.sharding.PartitionSpec
    spread = jax.shard_map(product, mesh=mesh, in_specs=(spec("cases"), spec()), out_specs=spec("cases"))
    np.testing.assert_array_equal(jax.jit(spread)(x, weights), x @ weights)


def test_what_is_binary_is_found_once_for_all_products_with_it():
    def both(x, one, other):
        return jax.grad(lambda weights: jnp.sum(product(x, weights[0])) + jnp.sum(product(x, weights[1]) ** 2))(
            (one, other)
        )

    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((20, 100), (100, 64), (100, 72))]
    program = jax.jit(both).lower(*shapes).compile().as_text()
    assert program.count('custom_call_target="nvil_entries"') == 1
    assert program.count('custom_call_target="nvil_add_rows"') == 3  # the first product is not needed


@pytest.mark.parametrize("kind", ["few", "centred"])
def test_several_minibatches_are_one(kind):
    random = np.random.default_rng(0)
    x = jnp.asarray(np.stack([matrix(random, kind, 10, 100) for _ in range(3)]), jnp.float32)
    weights = jnp.asarray(random.integers(-8, 9, (100, 64)), jnp.float32)

    def total(weights, product):
        return jnp.sum(jax.vmap(lambda x: product(x, weights))(x) ** 2)

    np.testing.assert_array_equal(jax.vmap(lambda x: product(x, weights))(x), x @ weights)
    np.testing.assert_allclose(jax.grad(total)(weights, product), jax.grad(total)(weights, jnp.matmul), rtol=1e-5)
    program = jax.jit(lambda weights: jax.grad(total)(weights, product)).lower(weights).compile().as_text()
    assert program.count('custom_call_target="nvil_add_rows"') == 2  # and no gradient for each of them


@pytest.mark.usefixtures("float64")
def test_derivatives_are_those_of_the_product():
    random = np.random.default_rng(0)
    x, weights, direction = (random.normal(size=shape) for shape in ((5, 100), (100, 64), (100, 64)))

    def derivatives(product):
        def value(x, weights):
            return jnp.sum(jnp.tanh(product(x, weights)))

        gradient = jax.grad(value, argnums=(0, 1))
        forward = jax.jvp(lambda weights: gradient(x, weights), (weights,), (direction,))
        every = jax.vmap(gradient, (None, 0))(x, jnp.stack([weights, direction]))
        return gradient(x, weights), forward, every

    ours, theirs = (jax.tree.leaves(derivatives(function)) for function in (product, jnp.matmul))
    for own, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("size", [1e-6, 1e-9])
def test_a_small_tangent_of_x_is_not_taken_for_bits(size):
    random = np.random.default_rng(0)
    x = jnp.asarray((random.random((20, 100)) < 0.2).astype(np.float32))
    weights, delta = (jnp.asarray(random.normal(size=shape), jnp.float32) for shape in ((100, 64), (20, 64)))
    tangent = jnp.full_like(x, -size)

    def gradient(x):
        return jax.grad(lambda weights: jnp.sum(product(x, weights) * delta))(weights)

    _, forward = jax.jvp(lambda x: product(x, weights), (x,), (tangent,))
    np.testing.assert_allclose(forward, tangent @ weights, rtol=1e-4, atol=1e-6 * size)
    _, backward = jax.jvp(gradient, (x,), (tangent,))
    np.testing.assert_allclose(backward, tangent.T @ delta, rtol=1e-4, atol=1e-6 * size)


def test_an_exported_program_needs_none_of_our_functions():
    x, weights = jnp.zeros((20, 100)), jnp.ones((100, 64))
    exported = jax.export.export(jax.jit(product))(x, weights)  # which refuses a program with functions of ours
    assert "nvil_" not in exported.mlir_module()
    np.testing.assert_array_equal(exported.call(x + 1, weights), 100.0 * np.ones((20, 64)))


def test_an_update_is_the_same_with_and_without(monkeypatch):
    random = np.random.default_rng(0)
    x = jnp.asarray((random.random((20, 100)) < 0.3).astype(np.float32))
    pair = nvil.sbn(100, (80, 60), mean=np.asarray(x).mean(axis=0))
    estimator = estimators.nvil()
    baselines, state = estimator.init(jax.random.key(0), pair, x)
    params = nvil.Parameters(*pair, baselines)

    def gradients():
        def of(params, x):
            return trained(estimator.gradients(jax.random.key(1), params, x, state)[0])

        compiled = jax.jit(of).lower(params, x).compile()
        return compiled.as_text().count("nvil_add_rows"), jax.tree.leaves(compiled(params, x))

    there, ours = gradients()
    monkeypatch.setattr(kernels, "available", lambda: False)
    gone, theirs = gradients()
    assert there > gone == 0
    for own, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-4, atol=1e-4)


def sparse_and_dense(values=np.uint8, width=300, picked=(3, 0, 5, 3, 19)):
    """A minibatch of word counts, and the same as an array. Case 0 has no words, case 3 has many."""
    random = np.random.default_rng(0)
    counts = random.integers(1, 200, (20, width)) * (random.random((20, width)) < 0.01)
    counts[0], counts[3, :100] = 0, 1
    rows = as_rows(scipy.sparse.csr_array(counts.astype(values) - (0.5 * (counts > 0) if values == np.float32 else 0)))
    minibatch = rows.on_device().sparse().take(jnp.asarray(picked), jax.random.key(0))
    return minibatch, rows.dense()[list(picked)].astype(np.float32)


@pytest.mark.parametrize("outputs", [1, 15, 50, 200])
@pytest.mark.parametrize(
    ("values", "width"), [(np.uint8, 300), (np.uint16, 300), (np.float32, 300), (np.uint8, 70_000)]
)
def test_a_product_with_sparse_rows_is_exact(values, width, outputs, monkeypatch):
    random = np.random.default_rng(0)
    sparse, dense = sparse_and_dense(values, width)
    assert str(sparse.columns.dtype) == ("uint16" if width == 300 else "int32")
    weights, delta = random.integers(-8, 9, (width, outputs)), random.integers(-8, 9, (len(dense), outputs))
    forward, gradient = products_with(sparse, weights, delta)
    np.testing.assert_array_equal(forward, dense @ weights)
    np.testing.assert_array_equal(gradient, dense.T @ delta)
    center = random.integers(0, 3, width).astype(np.float32)
    forward, gradient = products_with(sparse - jnp.asarray(center), weights, delta)
    np.testing.assert_array_equal(forward, (dense - center) @ weights)
    np.testing.assert_array_equal(gradient, (dense - center).T @ delta)


def products_with(sparse, weights, delta):
    weights, delta = jnp.asarray(weights, jnp.float32), jnp.asarray(delta, jnp.float32)
    gradient = jax.grad(lambda weights, x: jnp.sum((x @ weights) * delta))
    compiled = jax.jit(gradient).lower(weights, sparse).compile()
    assert "nvil_add_sparse_transposed" in compiled.as_text()
    return jax.jit(lambda x, weights: x @ weights)(sparse, weights), compiled(weights, sparse)


@pytest.mark.parametrize("times", [1, 3])
def test_what_sparse_rows_are_summed_to_is_exact(times):
    random = np.random.default_rng(0)
    sparse, dense = sparse_and_dense()
    sparse, dense = repeated(sparse, times), np.tile(dense, (times, 1))
    other = jnp.asarray(random.integers(-8, 9, dense.shape), jnp.float32)
    delta = jnp.asarray(random.integers(-8, 9, len(dense)), jnp.float32)
    inner = jax.jit(lambda x, other: x.inner(other))
    np.testing.assert_array_equal(inner(sparse, other), np.sum(dense * np.asarray(other), axis=1))
    gradient = jax.grad(lambda other: jnp.sum(inner(sparse, other) * delta))(other)
    np.testing.assert_array_equal(gradient, dense * np.asarray(delta)[:, None])
    np.testing.assert_array_equal(jax.jit(lambda x: x.sums())(sparse), dense.sum(axis=1))


def test_several_weights_of_sparse_rows_are_multiplied_one_by_one():
    sparse, dense = sparse_and_dense()
    weights = jnp.asarray(np.random.default_rng(0).integers(-8, 9, (3, 300, 20)), jnp.float32)
    np.testing.assert_array_equal(jax.vmap(lambda weights: sparse @ weights)(weights), dense @ weights)
    gradient = jax.grad(lambda weights: jnp.sum((sparse @ weights) ** 2) / 2)
    np.testing.assert_array_equal(jax.vmap(gradient)(weights), dense.T @ (dense @ np.asarray(weights)))


def test_entries_out_of_bounds_are_passed_over():
    """A damaged file ends nothing but itself."""
    sparse, dense = sparse_and_dense()
    beyond = eqx.tree_at(lambda x: x.columns, sparse, sparse.columns.at[jnp.asarray(sparse.begin[0])].set(300))
    dense[np.array([0, 3]), int(sparse.columns[sparse.begin[0]])] = 0  # case 3 is there twice
    weights = np.random.default_rng(0).integers(-8, 9, (300, 20))
    np.testing.assert_array_equal(products_with(beyond, weights, np.ones((5, 20)))[0], dense @ weights)
    longer = eqx.tree_at(lambda x: x.end, sparse, sparse.end.at[-1].set(2**31 - 1))
    np.testing.assert_array_equal(
        products_with(longer, weights, np.ones((5, 20)))[0][:-1], sparse_and_dense()[1][:-1] @ weights
    )


def test_an_update_from_documents_is_the_same_with_and_without(monkeypatch):
    sparse, dense = sparse_and_dense()
    pair = nvil.sbn(300, (20,), lengths=(4,), mean=dense.mean(axis=0))
    estimator = estimators.nvil(samples=2)
    params = nvil.Parameters(*pair, estimator.init(jax.random.key(0), pair, jnp.asarray(dense))[0])
    state = estimator.init(jax.random.key(0), pair, jnp.asarray(dense))[1]

    def gradients():
        def of(params, x):
            return trained(estimator.gradients(jax.random.key(1), params, x, state)[0])

        compiled = jax.jit(of).lower(params, sparse).compile()
        return compiled.as_text().count("nvil_"), jax.tree.leaves(compiled(params, sparse))

    there, ours = gradients()
    monkeypatch.setattr(kernels, "available", lambda: False)
    gone, theirs = gradients()
    assert there > gone == 0
    for own, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(("cases", "units"), [(1, 1), (7, 2), (9, 33), (40, 150), (100, 200)])
def test_units_are_drawn_in_their_order(cases, units):
    random = np.random.default_rng(units)
    margin = random.integers(-9, 6, (cases, units)).astype(np.float32)
    margin[0, 0] = np.nan  # is not positive
    within = random.integers(-3, 4, (units, units)).astype(np.float32)
    program = jax.jit(sample_in_order).lower(margin, within).compile()
    assert "nvil_draw_in_order" in program.as_text()
    np.testing.assert_array_equal(program(margin, within), drawn_in_order(margin, within))
    several = np.stack([margin, margin[::-1]])
    each = jax.jit(jax.vmap(sample_in_order, (0, None)))(several, within)
    np.testing.assert_array_equal(each, [drawn_in_order(margin, within) for margin in several])


def test_units_drawn_in_order_have_no_derivatives_and_are_those_of_blocks(monkeypatch):
    random = np.random.default_rng(0)
    margin, within = random.integers(-9, 6, (20, 70)), np.triu(random.integers(-3, 4, (70, 70)), 1)
    margin, within = jnp.asarray(margin, jnp.float32), jnp.asarray(within, jnp.float32)
    gradient = jax.grad(lambda margin: jnp.sum(sample_in_order(margin, within)))(margin)
    np.testing.assert_array_equal(gradient, 0)
    ours = jax.jit(sample_in_order)(margin, within)
    monkeypatch.setattr(kernels, "available", lambda: False)
    np.testing.assert_array_equal(ours, jax.jit(lambda margin: sample_in_order(margin, within))(margin))


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="these are options for x86")
@pytest.mark.parametrize("options", ["-mno-avx512f", "-mno-avx512dq", "-mno-avx512vbmi2", "-mno-avx"])
def test_an_older_processor_has_the_same_products(options, tmp_path):
    """What the functions are compiled to depends on what the processor can do."""
    compiler = " ".join([*map(shlex.quote, kernels._compiler()), options])
    environment = os.environ | {"CC": compiler, "XDG_CACHE_HOME": str(tmp_path)}
    exact = (
        test_a_product_is_exact,
        test_other_values_have_the_product_of_xla,
        test_a_product_with_sparse_rows_is_exact,
        test_what_sparse_rows_are_summed_to_is_exact,
        test_units_are_drawn_in_their_order,
    )
    tests = [f"{__file__}::{test.__name__}" for test in exact]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:xdist", "-p", "no:cacheprovider", *tests],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-2000:]
    assert list(tmp_path.glob("nvil/kernels/*.so"))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where what is compiled is kept, in a cache folder of its own."""
    monkeypatch.setattr(kernels.platformdirs, "user_cache_dir", lambda *_, **__: str(tmp_path / "cache"))
    return tmp_path / "cache" / "kernels"


def works(library):
    return all(hasattr(library, name) for name in kernels.NAMES)


def test_what_was_compiled_is_kept(folder, monkeypatch):
    assert works(kernels._library())
    (kept,) = folder.iterdir()
    monkeypatch.setenv("CC", "no-such-compiler")
    assert works(kernels._library())
    assert list(folder.iterdir()) == [kept]


@pytest.mark.parametrize("compiler", ["no-such-compiler", "false", '"unbalanced'])
def test_without_a_compiler_that_works_xla_has_the_products(folder, monkeypatch, caplog, compiler):
    monkeypatch.setenv("CC", compiler)
    with caplog.at_level(logging.DEBUG, "nvil"):
        assert not kernels._registered.__wrapped__()
    assert compiler in caplog.text or "closing quotation" in caplog.text
    assert not folder.exists()


@pytest.mark.parametrize("left", [0, 1000, 10_000])
def test_a_library_that_was_cut_off_is_made_again(folder, left):
    kernels._library()
    (kept,) = folder.iterdir()
    whole = kept.read_bytes()
    kept.unlink()  # what is loaded must not change
    kept.write_bytes(whole[:left])
    assert works(kernels._library())
    assert list(folder.iterdir()) == [kept]
    assert len(kept.read_bytes()) == len(whole)


def test_where_nothing_can_be_kept_it_is_compiled_all_the_same(folder):
    folder.parent.write_text("in the way")
    assert works(kernels._library())
    assert folder.parent.read_text() == "in the way"


def test_the_functions_can_be_turned_off(folder, monkeypatch):
    monkeypatch.setenv("NVIL_KERNELS", "off")
    assert not kernels._registered.__wrapped__()
    assert not folder.exists()
