import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from jax.test_util import check_grads
from scipy.special import log1p

from dive_jax.losses import active, hinge, softplus_hinge
from dive_jax.numerics.vectors import unit
from tests import reference

RANDOM = np.random.default_rng(2027)
POSITIVE, NEGATIVE = RANDOM.uniform(-1, 1, (2, 40))
LOSSES = {
    "hinge": (hinge, reference.hinge),
    "softplus": (softplus_hinge, reference.softplus_hinge),
}
both = pytest.mark.parametrize(("loss", "formula"), LOSSES.values(), ids=LOSSES)
cosines = hnp.arrays(np.float32, 9, elements=st.floats(-1, 1, width=32))


@both
def test_losses_are_the_reference(loss, formula):
    with jax.enable_x64(True):
        got = loss(jnp.asarray(POSITIVE), jnp.asarray(NEGATIVE), margin=0.7)
        assert got.dtype == jnp.float64
        np.testing.assert_allclose(got, formula(POSITIVE, NEGATIVE, 0.7), rtol=1e-14)
    narrow = loss(jnp.asarray(POSITIVE), jnp.asarray(NEGATIVE), margin=0.7)
    np.testing.assert_allclose(narrow, formula(POSITIVE, NEGATIVE, 0.7), atol=3e-7)


def test_hinge_is_optaxs_with_the_margin_as_unit():
    p, n = jnp.asarray(POSITIVE), jnp.asarray(NEGATIVE)
    expected = 0.7 * optax.losses.hinge_loss((p - n) / 0.7, jnp.ones(40))
    np.testing.assert_allclose(hinge(p, n, margin=0.7), expected, atol=1e-6)


def test_softplus_is_scipys_logarithm():
    got = softplus_hinge(jnp.asarray(POSITIVE), jnp.asarray(NEGATIVE), margin=0.7)
    np.testing.assert_allclose(got, log1p(np.exp(0.7 - POSITIVE + NEGATIVE)), rtol=1e-6)


@given(cosines, cosines, st.sampled_from([0.1, 0.7, 2.0]))
@settings(max_examples=60, deadline=None)
def test_active_is_where_the_hinge_has_a_value_and_a_gradient(p, n, margin):
    p, n = jnp.asarray(p), jnp.asarray(n)
    alive = np.asarray(active(p, n, margin=margin))
    np.testing.assert_array_equal(alive, np.asarray(p) - np.asarray(n) < np.float32(margin))
    np.testing.assert_array_equal(alive, hinge(p, n, margin=margin) > 0)
    by_p, by_n = jax.grad(lambda p, n: jnp.sum(hinge(p, n, margin=margin)), (0, 1))(p, n)
    np.testing.assert_array_equal(by_p, np.where(alive, -1, 0))
    np.testing.assert_array_equal(by_n, np.where(alive, 1, 0))


@given(cosines, cosines)
@settings(max_examples=30, deadline=None)
def test_losses_follow_permutations_and_ignore_a_common_shift(p, n):
    order = RANDOM.permutation(9)
    for loss in (hinge, softplus_hinge):
        got = np.asarray(loss(jnp.asarray(p), jnp.asarray(n), margin=0.7))
        turned = loss(jnp.asarray(p[order]), jnp.asarray(n[order]), margin=0.7)
        np.testing.assert_array_equal(turned, got[order])
        shifted = loss(jnp.asarray(p + 1), jnp.asarray(n + 1), margin=0.7)
        np.testing.assert_allclose(shifted, got, atol=1e-6)
        swapped = loss(jnp.asarray(-n), jnp.asarray(-p), margin=0.7)
        np.testing.assert_array_equal(swapped, got)


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["plain", "jit"])
def test_a_lead_equal_to_the_margin_is_cleared(wrap):
    p, n = jnp.array([0.75, 0.75]), jnp.array([0.25, 0.5])
    value = wrap(lambda p, n: hinge(p, n, margin=0.5))(p, n)
    slope = wrap(jax.grad(lambda p: jnp.sum(hinge(p, n, margin=0.5))))(p)
    np.testing.assert_array_equal(value, [0, 0.25])
    np.testing.assert_array_equal(slope, [0, -1])
    np.testing.assert_array_equal(active(p, n, margin=0.5), [False, True])


def test_a_satisfied_triplet_has_no_gradient_end_to_end():
    """Through unit vectors and a linear map, the rows of cleared triplets stay exactly 0."""
    keys = jax.random.split(jax.random.key(0), 4)
    q, p, n = (jax.random.normal(key, (16, 8)) for key in keys[:3])
    p = p.at[:6].set(q[:6])
    matrix = jnp.eye(8) + 0.1 * jax.random.normal(keys[3], (8, 8))

    def loss(matrix, q, p, n, keep):
        q, p, n = (unit(x @ matrix) for x in (q, p, n))
        rows = hinge(jnp.sum(q * p, 1), jnp.sum(q * n, 1), margin=0.5)
        return jnp.sum(jnp.where(keep, rows, 0.0)), jnp.sum(q * p, 1) - jnp.sum(q * n, 1)

    every = jnp.ones(16, bool)
    gradient = jax.jit(jax.grad(loss, (0, 1, 2, 3), has_aux=True))
    (_, *rows), lead = gradient(matrix, q, p, n, every)
    cleared = np.asarray(lead) >= 0.5
    assert 0 < cleared.sum() < 16
    for by_row in rows:
        assert not np.any(np.asarray(by_row)[cleared])
        assert np.all(np.any(np.asarray(by_row)[~cleared], axis=1))
    (by_matrix, *_), _ = gradient(matrix, q, p, n, jnp.asarray(cleared))
    assert not np.any(by_matrix)


@both
def test_gradients_are_those_of_finite_differences(loss, formula):
    with jax.enable_x64(True):
        far = np.abs(0.7 - POSITIVE + NEGATIVE) > 1e-2  # the hinge has a kink
        args = jnp.asarray(POSITIVE[far]), jnp.asarray(NEGATIVE[far])

        check_grads(jax.jit(lambda p, n: loss(p, n, margin=0.7)), args, order=2)


@both
def test_extreme_and_equal_similarities_stay_finite(loss, formula):
    p, n = jnp.array([1e4, -1e4, 0.0, 0.3]), jnp.array([-1e4, 1e4, 0.0, 0.3])
    value, pull = jax.vjp(lambda p, n: loss(p, n, margin=2), p, n)
    np.testing.assert_allclose(value, formula(p, n, 2), rtol=1e-6)
    assert all(np.isfinite(by).all() for by in pull(jnp.ones(4)))
    assert loss(p[:0], n[:0], margin=0.7).shape == (0,)
    assert np.isnan(loss(jnp.array([jnp.nan]), jnp.array([0.0]), margin=0.7)).all()


@both
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_low_precision_is_computed_in_float32(loss, formula, dtype):
    p, n = jnp.asarray(POSITIVE, dtype), jnp.asarray(NEGATIVE, dtype)
    got = loss(p, n, margin=0.7)
    assert got.dtype == dtype
    exact = loss(p.astype(jnp.float32), n.astype(jnp.float32), margin=0.7)
    np.testing.assert_array_equal(got, exact.astype(dtype))
    alive = active(p.astype(jnp.float32), n.astype(jnp.float32), margin=0.7)
    np.testing.assert_array_equal(active(p, n, margin=0.7), alive)


@both
def test_seeds_and_margins_can_be_mapped(loss, formula):
    p, n = jnp.asarray(POSITIVE.reshape(4, 10)), jnp.asarray(NEGATIVE.reshape(4, 10))
    margins = jnp.array([0.1, 0.5, 0.7, 2.0])
    mapped = jax.jit(jax.vmap(lambda p, n, m: loss(p, n, margin=m)))(p, n, margins)
    for row in range(4):
        alone = loss(p[row], n[row], margin=float(margins[row]))
        np.testing.assert_allclose(mapped[row], alone, atol=1e-6)
    by_margin = jax.grad(lambda m: jnp.sum(hinge(p[0], n[0], margin=m)))(jnp.float32(0.7))
    assert float(by_margin) == int(np.sum(active(p[0], n[0], margin=0.7)))


@pytest.mark.parametrize("function", [hinge, softplus_hinge, active])
@pytest.mark.parametrize("margin", [0.0, -0.1, 2.1, float("nan"), float("inf")])
def test_margins_outside_the_range_are_refused(function, margin):
    p = jnp.zeros(3)
    with pytest.raises(ValueError, match=r"margin: wanted 0 < margin <= 2, got"):
        jax.jit(lambda p: function(p, p, margin=margin))(p)
    function(p, p, margin=2)


@pytest.mark.errors
@pytest.mark.parametrize("function", [hinge, softplus_hinge, active])
def test_wrong_arrays_are_refused(function):
    with pytest.raises(ValueError, match=r"one shape, got \[3\] and \[4\]"):
        jax.jit(lambda p, n: function(p, n, margin=0.7))(jnp.zeros(3), jnp.zeros(4))
    with pytest.raises(ValueError, match=r"positive: wanted shape \[batch\], got \[3, 1\]"):
        function(jnp.zeros((3, 1)), jnp.zeros((3, 1)), margin=0.7)
    with pytest.raises(ValueError, match=r"negative: wanted floats, got int32"):
        function(jnp.zeros(3), jnp.zeros(3, jnp.int32), margin=0.7)
