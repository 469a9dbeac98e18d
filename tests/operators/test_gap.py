import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.test_util import check_grads

from dive_jax.operators import approximation_gap
from tests.operators import reference

MATRIX = np.random.default_rng(11).normal(size=(6, 6))


@given(st.integers(0, 2**16), st.integers(1, 6), st.sampled_from(["any", "low", "negative"]))
@settings(max_examples=40, deadline=None)
def test_the_errors_are_those_of_the_fits(seed, rank, kind):
    matrix = np.random.default_rng(seed).normal(size=(6, 6))
    if kind == "low":
        matrix[2:] = 0
    if kind == "negative":
        matrix = -matrix @ matrix.T
    shared = reference.error(matrix, reference.shared(matrix, rank))
    dual = reference.error(matrix, reference.dual(matrix, rank))
    with jax.enable_x64(True):
        got = jax.device_get(approximation_gap(jnp.asarray(matrix), rank))
    small = 1e-10 * np.sum(matrix**2)
    np.testing.assert_allclose([got.shared_error, got.dual_error], [shared, dual], atol=small)
    np.testing.assert_allclose(got.gap, shared - dual, atol=small)
    np.testing.assert_allclose(got.skew + got.negative + got.tail, got.shared_error, rtol=1e-12)
    assert min(got) >= 0


def test_the_three_terms_at_a_target_where_they_are_known():
    target = np.diag([5.0, 3.0, 2.0, -4.0, 0.0, 0.0])
    target[4, 5], target[5, 4] = 1.5, -1.5
    with jax.enable_x64(True):
        got = approximation_gap(jnp.asarray(target), 2)
    np.testing.assert_allclose([got.skew, got.negative, got.tail], [4.5, 16, 4], atol=1e-12)
    np.testing.assert_allclose([got.dual_error, got.gap], [9 + 4 + 4.5, 7], atol=1e-12)


def test_no_gap_on_semi_definite_targets_of_the_rank():
    root = np.random.default_rng(2).normal(size=(2, 6))
    target = jnp.asarray(root.T @ root, jnp.float32)
    for rank in (2, 4, 6):
        got = approximation_gap(target, rank)
        assert 0 <= got.gap < 1e-5 * float(jnp.sum(target**2))
    assert approximation_gap(target, 1).gap < 1e-5 * float(jnp.sum(target**2))


def test_a_grid_of_ranks_is_one_mapped_call():
    ranks = jnp.arange(1, 7)
    stack = jnp.asarray(np.stack([MATRIX, MATRIX.T, 2 * MATRIX]), jnp.float32)
    over_ranks = jax.vmap(approximation_gap, in_axes=(None, 0))
    grid = jax.jit(jax.vmap(over_ranks, in_axes=(0, None)))(stack, ranks)
    for rank in (1, 4, 6):
        alone = approximation_gap(stack[2], rank)
        for one, other in zip(grid, alone, strict=True):
            np.testing.assert_allclose(one[2, rank - 1], other, rtol=1e-4, atol=1e-4)
    assert (np.diff(grid.dual_error, axis=1) <= 0).all()


def test_gradients():
    with jax.enable_x64(True):
        for field in ("shared_error", "dual_error", "gap"):
            check_grads(
                jax.jit(lambda m, field=field: getattr(approximation_gap(m, 2), field)),
                (jnp.asarray(MATRIX),),
                order=1,
                modes=["rev"],
            )
    for bad in (jnp.zeros((6, 6)), jnp.eye(6), -jnp.eye(6)):
        slopes = jax.jacrev(lambda m: jnp.stack(approximation_gap(m, 2)))(bad)
        assert np.isfinite(slopes).all()


def test_what_is_not_finite_is_not_hidden():
    got = approximation_gap(jnp.asarray(MATRIX, jnp.float32).at[0, 0].set(jnp.nan), 2)
    assert np.isnan(got).all()


def test_a_rank_out_of_range_is_told():
    with pytest.raises(ValueError, match="wanted 1 <= rank <= 6, got 7"):
        approximation_gap(jnp.eye(6), 7)
