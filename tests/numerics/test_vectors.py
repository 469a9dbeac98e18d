import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from jax.test_util import check_grads
from sklearn.preprocessing import normalize

from dive_jax.numerics.vectors import absolute, squared_norms, unit, widened
from tests import reference

ROWS = np.random.default_rng(2027).normal(size=(5, 7))
entries = st.floats(-1e3, 1e3, width=32)


def weighted(x):
    """A scalar of `unit` whose gradient does not vanish by symmetry."""
    return jnp.sum(unit(x) * jnp.arange(1, x.size + 1, dtype=x.dtype).reshape(x.shape))


def test_unit_is_the_reference_and_sklearn_in_float64():
    with jax.enable_x64(True):
        got = np.asarray(unit(jnp.asarray(ROWS)))
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, [reference.unit(row) for row in ROWS], rtol=1e-15)
    np.testing.assert_allclose(got, normalize(ROWS), rtol=1e-14)


def test_unit_has_second_derivatives():
    with jax.enable_x64(True):
        check_grads(jax.jit(unit), (jnp.asarray(ROWS),), order=2)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float16, jnp.bfloat16])
@pytest.mark.parametrize("wrap", [jax.jit, lambda f: jax.jit(jax.vmap(f))], ids=["jit", "vmap"])
def test_zero_row_has_zero_value_and_gradient(dtype, wrap):
    x = jnp.asarray(ROWS, dtype).at[2].set(0)
    value = wrap(unit)(x)
    gradient = wrap(jax.grad(weighted))(x)
    assert value.dtype == gradient.dtype == dtype
    assert not np.any(value[2])
    assert not np.any(gradient[2])
    assert np.isfinite(np.asarray(gradient, np.float32)).all()
    assert np.all(np.any(np.asarray(gradient, np.float32)[[0, 1, 3, 4]] != 0, axis=1))


def test_second_derivative_at_a_zero_row_is_zero():
    hessian = jax.jit(jax.hessian(weighted))(jnp.zeros((2, 3)))
    assert not np.any(hessian)


def test_forward_mode_at_a_zero_row_is_zero():
    _, tangent = jax.jvp(unit, (jnp.zeros(3),), (jnp.ones(3),))
    assert not np.any(tangent)


@pytest.mark.parametrize(("length", "expected"), [(0.999e-12, 0.0), (1.001e-12, 1.0)])
def test_rows_under_the_shortest_length_have_no_direction(length, expected):
    x = jnp.array([0.6, 0.0, -0.8]) * length
    np.testing.assert_allclose(jnp.linalg.norm(unit(x)), expected, rtol=1e-6)
    gradient = jax.jit(jax.grad(weighted))(x)
    assert np.isfinite(gradient).all()
    assert np.any(gradient) == bool(expected)


@pytest.mark.parametrize("scale", [1e-45, 1e-40, 1e-38, 1e-30, 1e-11, 1e-3, 1e10, 1e20, 1e38])
def test_no_square_overflows(scale):
    got = unit(jnp.array([1.0, -2.0, 2.0]) * scale)
    expected = np.zeros(3) if scale < 1e-13 else np.array([1, -2, 2]) / 3
    np.testing.assert_allclose(got, expected, rtol=1e-6)
    gradient = jax.jit(jax.grad(weighted))(jnp.array([1.0, -2.0, 2.0]) * scale)
    assert np.isfinite(gradient).all()


@given(hnp.arrays(np.float32, (3, 5), elements=entries), st.sampled_from([0.25, 3.0, 1024.0]))
@settings(max_examples=50, deadline=None)
def test_unit_ignores_scale_and_its_gradient_is_tangent(x, factor):
    x = np.where(np.linalg.norm(x, axis=1, keepdims=True) < 1e-3, 1, x).astype(np.float32)
    got = np.asarray(unit(jnp.asarray(x)))
    np.testing.assert_allclose(np.linalg.norm(got, axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(unit(jnp.asarray(x * np.float32(factor))), got, atol=1e-6)
    along = np.sum(np.asarray(jax.jit(jax.grad(weighted))(jnp.asarray(x))) * got, axis=1)
    lengths = np.linalg.norm(x, axis=1)
    np.testing.assert_allclose(along * lengths, 0, atol=1e-4)


def test_low_precision_is_computed_in_float32():
    x = jnp.asarray(ROWS, jnp.bfloat16)
    expected = unit(x.astype(jnp.float32)).astype(jnp.bfloat16)
    np.testing.assert_array_equal(np.asarray(unit(x), np.float32), np.asarray(expected, np.float32))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_not_hidden(bad):
    assert np.isnan(unit(jnp.array([1.0, bad]))).any()


def test_squared_norms_and_their_gradient():
    with jax.enable_x64(True):
        x = jnp.asarray(ROWS)
        expected = [sum(value**2 for value in row) for row in ROWS.tolist()]
        np.testing.assert_allclose(squared_norms(x), expected, rtol=1e-14)
        check_grads(jax.jit(squared_norms), (x,), order=2)
    assert not np.any(jax.grad(lambda x: jnp.sum(squared_norms(x)))(jnp.zeros((2, 3))))


def test_squared_norms_of_low_precision_are_summed_in_float32():
    x = jnp.full((1, 4096), 0.1, jnp.bfloat16)
    got = squared_norms(x)
    assert got.dtype == jnp.float32
    np.testing.assert_allclose(got, 4096 * float(x[0, 0]) ** 2, rtol=1e-5)


def test_absolute_has_gradient_sign_and_zero_at_zero():
    x = jnp.array([-2.5, -0.0, 0.0, 1e-30, 3.0])
    np.testing.assert_array_equal(absolute(x), np.abs(x))
    slope = jax.jit(jax.vmap(jax.grad(absolute)))(x)
    np.testing.assert_array_equal(slope, np.sign(x))
    np.testing.assert_array_equal(jax.vmap(jax.grad(jax.grad(absolute)))(x), np.zeros(5))
    assert absolute(x.astype(jnp.bfloat16)).dtype == jnp.bfloat16


def test_widened_leaves_wide_arrays_alone():
    assert widened(jnp.zeros(1, jnp.bfloat16)).dtype == jnp.float32
    assert widened(jnp.zeros(1, jnp.float16)).dtype == jnp.float32
    assert widened(jnp.zeros(1, jnp.float32)).dtype == jnp.float32
    with jax.enable_x64(True):
        assert widened(jnp.zeros(1, jnp.float64)).dtype == jnp.float64


def test_import_is_light():
    code = """
import sys
import jax
before = set(sys.modules)
import dive_jax.numerics.vectors
heavy = "flax optax orbax absl faiss datasets transformers torch sklearn matplotlib rich".split()
print([name for name in heavy if name in set(sys.modules) - before])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
