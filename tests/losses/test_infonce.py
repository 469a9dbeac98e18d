"""InfoNCE against float64, a library's cross-entropy, and its bad points."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.test_util import check_grads

from dive_jax.losses import infonce

SEEDS = st.integers(0, 2**31)


def case(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(5, 7)), rng.normal(size=5), rng.random((5, 7)) < 0.6


@given(SEEDS)
def test_it_is_the_formula(seed: int):
    similarity, positive, negatives = case(seed)
    got = infonce(
        jnp.float32(similarity), jnp.float32(positive), jnp.asarray(negatives), temperature=0.3
    )
    for i in range(5):
        terms = [np.exp(similarity[i, j] / 0.3) for j in range(7) if negatives[i, j]]
        own = np.exp(positive[i] / 0.3)
        assert got[i] == pytest.approx(-np.log(own / (own + sum(terms))), rel=2e-5, abs=1e-6)


@given(SEEDS)
def test_it_is_a_cross_entropy(seed: int):
    similarity, positive, _ = case(seed)
    every = jnp.ones((5, 7), bool)
    got = infonce(jnp.float32(similarity), jnp.float32(positive), every, temperature=1.0)
    logits = jnp.concatenate([jnp.float32(positive)[:, None], jnp.float32(similarity)], axis=1)
    wanted = optax.losses.softmax_cross_entropy_with_integer_labels(logits, jnp.zeros(5, jnp.int32))
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_what_is_no_negative_has_no_effect():
    similarity, positive, negatives = case(3)
    spoilt = np.where(negatives, similarity, np.nan)
    clean, dirty = (
        jax.value_and_grad(
            lambda s, p: jnp.sum(infonce(s, p, jnp.asarray(negatives))), argnums=(0, 1)
        )(jnp.float32(each), jnp.float32(positive))
        for each in (similarity, spoilt)
    )
    jax.tree.map(np.testing.assert_array_equal, clean, dirty)
    assert (np.asarray(clean[1][0])[~negatives] == 0).all()


def test_without_negatives_it_is_silent():
    none = jnp.zeros((2, 3), bool)
    value, slope = jax.value_and_grad(lambda p: jnp.sum(infonce(jnp.ones((2, 3)), p, none)))(
        jnp.array([1.0, jnp.nan])
    )
    assert value == 0
    np.testing.assert_array_equal(slope, [0, 0])


def test_gradients_and_large_scores():
    similarity, positive, negatives = case(4)

    def total(s: jax.Array, p: jax.Array) -> jax.Array:
        s, p = jnp.asarray(s), jnp.asarray(p)
        return jnp.sum(infonce(s, p, jnp.asarray(negatives), temperature=0.5))

    check_grads(total, (jnp.float32(similarity), jnp.float32(positive)), 1, atol=1e-2, rtol=1e-2)
    huge = infonce(jnp.full((1, 2), 1e6), jnp.array([-1e6]), jnp.ones((1, 2), bool))
    assert np.isfinite(huge).all()
    wide = infonce(jnp.bfloat16(similarity), jnp.bfloat16(positive), jnp.asarray(negatives))
    assert wide.dtype == jnp.float32


@pytest.mark.errors
@pytest.mark.parametrize(
    ("similarity", "positive", "negatives", "temperature", "wanted"),
    [
        (jnp.ones(3), jnp.ones(3), jnp.ones(3, bool), 1.0, r"similarity: wanted shape"),
        (jnp.ones((2, 3)), jnp.ones(3), jnp.ones((2, 3), bool), 1.0, "positive: wanted one value"),
        (jnp.ones((2, 3)), jnp.ones(2), jnp.ones((3, 2), bool), 1.0, "negatives: wanted bool"),
        (jnp.ones((2, 3)), jnp.ones(2), jnp.ones((2, 3), bool), 0.0, "temperature: wanted 0 <"),
    ],
)
def test_wrong_shapes_are_refused(similarity, positive, negatives, temperature, wanted):
    with pytest.raises(ValueError, match=wanted):
        infonce(similarity, positive, negatives, temperature=temperature)
