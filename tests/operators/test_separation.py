import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dive_jax.operators import (
    Views,
    approximation_gap,
    separating,
    separation,
    separation_of,
    shared,
    views,
    whiten,
)

RANDOM = np.random.default_rng(19)
DIM = 5


def random_views(seed=0):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(2 * DIM, 2 * DIM))
    joint = root @ root.T / (2 * DIM) + 0.1 * np.eye(2 * DIM)
    return Views(joint[:DIM, DIM:], joint[:DIM, :DIM], joint[DIM:, DIM:])


def latent_views(noise_query, noise_document):
    """Both sides see one latent vector through the same map, with noise of their own."""
    map_ = np.random.default_rng(4).normal(size=(DIM, 3)) * [2.0, 1.0, 0.5]
    signal = map_ @ map_.T
    sides = (signal + noise**2 * np.eye(DIM) for noise in (noise_query, noise_document))
    return Views(signal, *sides)


def there(moments):
    return Views(*(jnp.asarray(matrix) for matrix in moments))


def inverse_root(matrix):
    """By a different road: the polar-like iteration of Denman and Beavers."""
    y, z = matrix, np.eye(len(matrix))
    for _ in range(60):
        y, z = (y + np.linalg.inv(z)) / 2, (z + np.linalg.inv(y)) / 2
    return z


def test_whitening_is_by_the_inverse_roots():
    moments = random_views()
    roots = inverse_root(moments.query), inverse_root(moments.document)
    with jax.enable_x64(True):
        got = jax.jit(whiten)(there(moments))
    np.testing.assert_allclose(got.matrix, roots[0] @ moments.cross @ roots[1], atol=1e-9)
    np.testing.assert_allclose(got.whiteners.query, roots[0], atol=1e-9)
    np.testing.assert_allclose(got.whiteners.document, roots[1], atol=1e-9)
    assert (got.ranks.query, got.ranks.document) == (DIM, DIM)
    narrow = whiten(there(Views(*(m.astype(np.float32) for m in moments))))
    np.testing.assert_allclose(narrow.matrix, got.matrix, atol=1e-4)


def test_directions_without_variance_are_cut():
    moments = there(Views(*(m.astype(np.float32) for m in random_views())))
    flat = moments.query.at[0].set(0).at[:, 0].set(0)
    got = whiten(moments._replace(query=flat))
    assert (got.ranks.query, got.ranks.document) == (DIM - 1, DIM)
    assert np.isfinite(got.matrix).all()
    np.testing.assert_allclose(got.matrix[0], 0, atol=1e-6)
    assert int(whiten(moments, cutoff=0.9).ranks.query) < DIM
    nothing = whiten(Views(*(jnp.zeros((DIM, DIM)),) * 3))
    assert (nothing.ranks.query, nothing.ranks.document) == (0, 0)
    assert not nothing.matrix.any()
    bad = whiten(moments._replace(query=moments.query.at[0, 0].set(jnp.nan)))
    assert np.isnan(bad.matrix).all()


def test_moments_of_pairs():
    query, document = RANDOM.normal(size=(2, 30, DIM)) + 3
    weights = RANDOM.uniform(0, 2, 30)
    joint = np.cov(np.concatenate([query, document], axis=1).T, bias=True, aweights=weights)
    with jax.enable_x64(True):
        got = views(*map(jnp.asarray, (query, document)), weights=jnp.asarray(weights))
    expected = joint[:DIM, DIM:], joint[:DIM, :DIM], joint[DIM:, DIM:]
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)


@pytest.mark.parametrize("rank", [1, 3, 5])
def test_the_optimum_is_attained_and_not_beaten(rank):
    moments = random_views()
    with jax.enable_x64(True):
        given = there(moments)
        white = whiten(given)
        best = separating(white, rank)
        reached = separation_of(best, given)
        limit = jax.device_get(separation(white.matrix, rank))
        trials = jnp.asarray(RANDOM.normal(size=(200, 2, rank, DIM)))
        trials = jnp.einsum("nri,nrj->nij", trials[:, 0], trials[:, 1])
        others = jax.vmap(separation_of, in_axes=(0, None))(trials, given)
        spread = jnp.einsum("ij,ia,jb,ab->", best, given.query, given.document, best)
        semi = shared(white.matrix, rank).matrix
        length = jnp.sum(semi * white.matrix) / jnp.sqrt(jnp.sum(semi**2))
    np.testing.assert_allclose(reached, limit.dual, rtol=1e-9)
    np.testing.assert_allclose(spread, 1, rtol=1e-9)
    np.testing.assert_allclose(length, limit.shared, rtol=1e-9)
    assert (np.asarray(others) <= limit.dual).all()
    assert 0.2 * limit.dual < np.asarray(others).max()  # the trials were not far off
    assert limit.shared <= limit.dual


def test_a_planar_turn_costs_the_shared_family_its_cosine():
    for angle in (0.0, 0.4, 1.2):
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        got = separation(jnp.asarray(0.7 * turn, jnp.float32), 1)
        np.testing.assert_allclose(got.dual, 0.7, rtol=1e-6)
        np.testing.assert_allclose(got.shared, 0.7 * np.cos(angle), rtol=1e-5)


def test_matched_views_need_no_second_projection():
    moments = latent_views(0.6, 0.6)
    with jax.enable_x64(True):
        given = there(moments)
        white = whiten(given)
        np.testing.assert_allclose(white.matrix, white.matrix.T, atol=1e-12)
        assert jnp.linalg.eigvalsh(white.matrix)[0] > -1e-12
        for rank in (1, 2, 4):
            got = separation(white.matrix, rank)
            np.testing.assert_allclose(got.shared, got.dual, rtol=1e-10)
            # Before whitening: the best operator is itself a shared one, and the gap is 0.
            best = separating(white, rank)
            np.testing.assert_allclose(best, best.T, atol=1e-10)
            assert jnp.linalg.eigvalsh(best)[0] > -1e-10
            np.testing.assert_allclose(separation_of(best, given), got.dual, rtol=1e-9)
            np.testing.assert_allclose(approximation_gap(given.cross, rank).gap, 0, atol=1e-9)


def test_views_of_unequal_noise_do():
    # Isotropic noise leaves both whiteners functions of the signal: T stays symmetric.
    moments = latent_views(0.2, 1.5)
    # Noise on one side that is not alike in all directions turns it.
    crooked = moments._replace(document=moments.document + np.diag([0, 0, 9.0, 0, 0]))
    with jax.enable_x64(True):
        even, uneven = (whiten(there(given)).matrix for given in (moments, crooked))
        one, other = (separation(matrix, 2) for matrix in (even, uneven))
        np.testing.assert_allclose(even, even.T, atol=1e-10)
        np.testing.assert_allclose(one.shared, one.dual, rtol=1e-9)
        assert np.abs(uneven - uneven.T).max() > 0.01
        assert float(other.shared) < 0.999 * float(other.dual)


def test_gradients_are_finite_where_nothing_separates():
    def total(matrix):
        return sum(separation(matrix, 2))

    for bad in (jnp.zeros((DIM, DIM)), jnp.eye(DIM), -jnp.eye(DIM)):
        assert np.isfinite(jax.grad(total)(bad)).all()
    moments = there(Views(*(m.astype(np.float32) for m in random_views())))
    assert separation_of(jnp.zeros((DIM, DIM)), moments) == 0
    slope = jax.grad(lambda m: separation_of(m, moments))(jnp.zeros((DIM, DIM)))
    assert np.isfinite(slope).all()
    assert not separating(whiten(moments._replace(cross=jnp.zeros((DIM, DIM)))), 2).any()


def test_a_grid_of_ranks_is_one_mapped_call():
    matrix = jnp.asarray(RANDOM.normal(size=(DIM, DIM)), jnp.float32)
    grid = jax.jit(jax.vmap(separation, in_axes=(None, 0)))(matrix, jnp.arange(1, DIM + 1))
    assert (np.diff(grid.dual) >= 0).all()
    np.testing.assert_allclose(grid.shared[2], separation(matrix, 3).shared, rtol=1e-5)


def test_wrong_numbers_are_told():
    moments = Views(*(jnp.eye(2),) * 3)
    with pytest.raises(ValueError, match="cutoff: wanted 0 <= cutoff < 1, got 1"):
        whiten(moments, cutoff=1.0)
    with pytest.raises(ValueError, match="wanted 1 <= rank <= 2, got 3"):
        separation(jnp.eye(2), 3)
