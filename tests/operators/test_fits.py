import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from dive_jax.numerics.vectors import unit
from dive_jax.operators import bilinear, dual, factors, shared
from dive_jax.types import TwoSided
from tests.operators import reference

RANDOM = np.random.default_rng(7)
MATRIX = RANDOM.normal(size=(5, 5))
FITS = {"dual": (dual, reference.dual), "shared": (shared, reference.shared)}


def generic_optimum(matrix, rank, family):
    """Least squares over the factors by a quasi-Newton method, the best of some starts."""
    size = (rank, len(matrix))

    def loss(flat):
        sides = flat.reshape(-1, *size)
        ours, theirs = sides[0], sides[-1]
        apart = ours.T @ theirs - matrix
        slopes = [2 * theirs @ apart.T, 2 * ours @ apart]
        slope = np.stack(slopes) if family == "dual" else slopes[0] + slopes[1]
        return np.sum(apart**2), slope.ravel()

    count = (2 if family == "dual" else 1) * rank * len(matrix)
    starts = (np.random.default_rng(seed).normal(size=count) for seed in range(8))
    done = (minimize(loss, start, jac=True, options={"gtol": 1e-9}) for start in starts)
    return min(one.fun for one in done)


@pytest.mark.parametrize("family", FITS)
@pytest.mark.parametrize("rank", [1, 2, 5])
def test_no_generic_optimiser_finds_a_nearer_operator(family, rank):
    with jax.enable_x64(True):
        got = FITS[family][0](jnp.asarray(MATRIX), rank)
        fit = np.asarray(got.matrix)
    np.testing.assert_allclose(fit, FITS[family][1](MATRIX, rank), atol=1e-12)
    best = generic_optimum(MATRIX, rank, family)
    np.testing.assert_allclose(reference.error(MATRIX, fit), best, atol=1e-7)


@pytest.mark.parametrize("family", FITS)
def test_smaller_ranks_are_prefixes_and_axes_are_orthonormal(family):
    fit = FITS[family][0]
    full, small = fit(jnp.asarray(MATRIX, jnp.float32), 5), fit(jnp.asarray(MATRIX, jnp.float32), 2)
    for one, other in ((full.query, small.query), (full.document, small.document)):
        np.testing.assert_allclose(one[:2], other, atol=1e-6)
        np.testing.assert_allclose(one @ one.T, np.eye(5), atol=1e-6)
        assert (np.diff(full.values) <= 0).all()


@pytest.mark.parametrize("family", FITS)
def test_the_sign_of_each_axis_is_decided(family):
    for sign in (1, -1):
        got = FITS[family][0](jnp.asarray(sign * MATRIX, jnp.float32), 5)
        leading = np.take_along_axis(got.query, np.abs(got.query).argmax(1)[:, None], 1)
        assert (leading > 0).all()


def test_both_agree_on_semi_definite_moments_of_the_rank():
    root = RANDOM.normal(size=(2, 5))
    matrix = jnp.asarray(root.T @ root, jnp.float32)
    one, other = dual(matrix, 3), shared(matrix, 3)
    assert (one.kept, other.kept) == (2, 2)
    assert (one.values[2], other.values[2]) == (0, 0)
    np.testing.assert_allclose(one.matrix, matrix, atol=1e-5)
    np.testing.assert_allclose(other.matrix, matrix, atol=1e-5)
    np.testing.assert_allclose(one.query[:2], other.query[:2], atol=1e-4)


def test_zero_and_negative_definite_moments():
    zero = jnp.zeros((5, 5))
    for fit in (dual, shared):
        assert fit(zero, 2).kept == 0
        assert not np.any(fit(zero, 2).matrix)
    negative = jnp.diag(-jnp.arange(1.0, 6.0))
    assert shared(negative, 5).kept == 0
    assert not np.any(factors(shared(negative, 5)).query)
    np.testing.assert_allclose(dual(negative, 5).matrix, negative, atol=1e-5)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_not_hidden(bad):
    matrix = jnp.asarray(MATRIX, jnp.float32).at[1, 2].set(bad)
    for fit in (dual, shared):
        got = fit(matrix, 2)
        assert np.isnan(got.values).all()
        assert got.kept == 0
        assert np.isnan(factors(got).query).all()


@pytest.mark.parametrize("family", FITS)
def test_factors_multiply_to_the_matrix(family):
    got = FITS[family][0](jnp.asarray(MATRIX, jnp.float32), 3)
    sides = factors(got)
    np.testing.assert_allclose(sides.query.T @ sides.document, got.matrix, atol=1e-5)
    if family == "shared":
        np.testing.assert_array_equal(sides.query, sides.document)
    rows = jnp.asarray(RANDOM.normal(size=(2, 4, 5)), jnp.float32)
    expected = np.einsum("ni,ij,nj->n", rows[0], got.matrix, rows[1])
    np.testing.assert_allclose(bilinear(sides, *rows), expected, atol=1e-4)


def test_the_root_in_factors_has_a_finite_gradient_at_0():
    got = shared(jnp.zeros((5, 5)), 2)
    size = jax.grad(lambda values: jnp.sum(factors(got._replace(values=values)).query))
    np.testing.assert_array_equal(size(jnp.zeros(2)), 0)


def test_an_operator_does_not_fix_the_cosine():
    """Two splits of the identity: the same scores, the opposite order of cosines."""
    query, documents = jnp.ones((2, 2)), jnp.array([[1.0, 0.0], [0.9, 0.9]])
    even = TwoSided(jnp.eye(2), jnp.eye(2))
    uneven = TwoSided(jnp.diag(jnp.array([10.0, 1.0])), jnp.diag(jnp.array([0.1, 1.0])))
    order = []
    for sides in (even, uneven):
        np.testing.assert_allclose(bilinear(sides, query, documents), [1.0, 1.8], rtol=1e-6)
        ours, theirs = unit(query @ sides.query.T), unit(documents @ sides.document.T)
        order.append(int(jnp.argmax(jnp.sum(ours * theirs, axis=1))))
    assert order == [1, 0]


@given(st.floats(1e-3, 1e3), st.integers(0, 2**16))
@settings(max_examples=25, deadline=None)
def test_scaling_a_moment_scales_its_fit(scale, seed):
    matrix = np.random.default_rng(seed).normal(size=(5, 5)).astype(np.float32)
    for fit in (dual, shared):
        one = fit(jnp.asarray(matrix), 2)
        other = fit(jnp.asarray(np.float32(scale) * matrix), 2)
        np.testing.assert_allclose(other.values, scale * one.values, rtol=1e-4, atol=scale * 1e-5)
        assert one.kept == other.kept


def test_fits_map_and_compile():
    stack = jnp.asarray(RANDOM.normal(size=(3, 5, 5)), jnp.float32)
    for fit in (dual, shared):
        mapped = jax.jit(jax.vmap(lambda m, fit=fit: fit(m, 2)))(stack)
        assert mapped.matrix.shape == (3, 5, 5)
        np.testing.assert_allclose(mapped.matrix[1], fit(stack[1], 2).matrix, atol=1e-5)


def test_a_rank_out_of_range_is_told():
    for rank in (0, 6):
        for fit in (dual, shared):
            with pytest.raises(ValueError, match=f"wanted 1 <= rank <= 5, got {rank}"):
                fit(jnp.eye(5), rank)


@pytest.mark.errors
def test_wrong_matrices_are_told():
    for fit in (dual, shared):
        with pytest.raises(ValueError, match=r"moment: wanted a square matrix, got \[2, 3\]"):
            fit(jnp.ones((2, 3)), 1)
        with pytest.raises(ValueError, match=r"moment: wanted floats, got int32"):
            fit(jnp.ones((2, 2), jnp.int32), 1)
        with pytest.raises(ValueError, match=r"moment: wanted shape \[dim dim\], none 0"):
            fit(jnp.ones((0, 0)), 1)
    with pytest.raises(ValueError, match=r"two of one shape, got \[1, 2\] and \[2, 2\]"):
        bilinear(TwoSided(jnp.ones((1, 2)), jnp.eye(2)), jnp.ones((1, 2)), jnp.ones((1, 2)))
