import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dive_jax.operators import RelevanceMoment, relevance_moment
from tests.operators import reference

RANDOM = np.random.default_rng(5)
TRIPLES = RANDOM.normal(size=(3, 11, 4))
WEIGHTS = RANDOM.uniform(0, 2, 11)


@pytest.mark.parametrize("block", [1, 4, 11, 4096])
def test_it_is_the_weighted_mean_whatever_the_block(block):
    expected = reference.moment(*TRIPLES, WEIGHTS)
    with jax.enable_x64(True):
        given = jnp.asarray(TRIPLES)
        got = relevance_moment(*given, weights=jnp.asarray(WEIGHTS), block=block)
        assert got.total.dtype == jnp.float64
        np.testing.assert_allclose(got.matrix, expected, rtol=1e-12)
        plain = relevance_moment(*given, block=block).matrix
        np.testing.assert_allclose(plain, reference.moment(*TRIPLES), rtol=1e-12)
    narrow = relevance_moment(*jnp.asarray(TRIPLES, jnp.float32), block=block)
    np.testing.assert_allclose(narrow.matrix, reference.moment(*TRIPLES), atol=1e-6)


def test_a_stream_adds_up_and_padding_weighs_nothing():
    given, weights = jnp.asarray(TRIPLES, jnp.float32), jnp.asarray(WEIGHTS, jnp.float32)
    first = relevance_moment(*given[:, :6], weights=weights[:6])
    padded = jnp.concatenate([given[:, 6:], 7 * jnp.ones((3, 2, 4))], axis=1)
    mass = jnp.concatenate([weights[6:], jnp.zeros(2)])
    streamed = relevance_moment(*padded, weights=mass, before=first)
    whole = relevance_moment(*given, weights=weights)
    for one, other in zip(streamed, whole, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_no_weight_is_no_moment_and_has_no_nan_gradient():
    given = jnp.asarray(TRIPLES, jnp.float32)

    def size(weights):
        return jnp.sum(relevance_moment(*given, weights=weights).matrix ** 2)

    assert size(jnp.zeros(11)) == 0
    assert np.isfinite(jax.grad(size)(jnp.zeros(11))).all()


def test_narrow_vectors_are_widened_before_they_are_summed():
    given = jnp.asarray(TRIPLES, jnp.bfloat16)
    got = relevance_moment(*given)
    assert isinstance(got, RelevanceMoment)
    assert got.total.dtype == jnp.float32
    exact = reference.moment(*np.asarray(given, np.float64))
    np.testing.assert_allclose(got.matrix, exact, atol=1e-5)


def test_it_maps_and_compiles():
    given = jnp.asarray(RANDOM.normal(size=(3, 2, 11, 4)), jnp.float32)
    mapped = jax.jit(jax.vmap(relevance_moment, in_axes=(0, 0, 0)))(*given)
    alone = relevance_moment(*given[:, 1])
    np.testing.assert_allclose(mapped.total[1], alone.total, rtol=1e-5, atol=1e-6)


@pytest.mark.errors
def test_wrong_shapes_are_told():
    rows = jnp.ones((3, 2))
    with pytest.raises(ValueError, match=r"one shape and type, got float32\[3, 2\], float32\[2, 2"):
        relevance_moment(rows, rows[:2], rows)
    with pytest.raises(ValueError, match=r"weights: wanted floats of shape \[3\]"):
        relevance_moment(rows, rows, rows, weights=jnp.ones(2))
    with pytest.raises(ValueError, match="block: wanted at least 1, got 0"):
        relevance_moment(rows, rows, rows, block=0)
