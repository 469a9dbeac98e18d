import jax
import jax.numpy as jnp
import numpy as np

from dive_jax.models.selection import gumbel, selected, straight_through


def test_ties_go_to_the_lower_coordinate():
    assert selected(jnp.zeros(8), 4).tolist() == [0, 1, 2, 3]
    assert selected(jnp.array([0.0, 2.0, 1.0, 2.0, 1.0]), 3).tolist() == [1, 2, 3]


def test_without_noise_the_mask_is_the_selection():
    scores = jnp.asarray(np.random.default_rng(0).normal(size=16), jnp.float32)
    mask = straight_through(scores, jnp.zeros(16), 8)
    np.testing.assert_array_equal(jnp.flatnonzero(mask), selected(scores, 8))
    assert set(np.unique(mask)) == {0.0, 1.0}


def test_noise_changes_the_mask_but_never_its_count():
    key = jax.random.key_data(jax.random.key(0))
    masks = []
    for _ in range(20):
        key, noise = gumbel(key, 16)
        masks.append(np.asarray(straight_through(jnp.zeros(16), noise, 8)))
    assert (np.sum(masks, axis=1) == 8).all()
    assert len({tuple(each) for each in masks}) > 10


def test_the_gradient_is_that_of_the_soft_max():
    rng = np.random.default_rng(1)
    scores, noise, weights = jnp.asarray(rng.normal(size=(3, 6)), jnp.float32)
    got = jax.jit(
        jax.grad(lambda z: jnp.sum(weights * straight_through(z, noise, 3, temperature=0.7)))
    )(scores)
    logits = np.float64(scores + noise) / 0.7
    shares = np.exp(logits) / np.exp(logits).sum()
    wanted = (np.diag(shares) - np.outer(shares, shares)) @ np.float64(weights) / 0.7
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-6)
