import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dive_jax.operators import dual_from_triples, shared_from_triples
from tests.operators import reference

FORMULAS = {"dual": reference.dual, "shared": reference.shared}
FROM_TRIPLES = {"dual": dual_from_triples, "shared": shared_from_triples}


def triples(count, dim, seed=3):
    drawn = np.random.default_rng(seed).normal(size=(3, count, dim))
    drawn[:, count // 2 :] = drawn[:, : count - count // 2]  # repeated rows: R is singular
    return drawn


@pytest.mark.parametrize("family", FORMULAS)
@pytest.mark.parametrize("count", [4, 30])  # few, and too many for that way
def test_the_fit_of_triples_is_that_of_their_moment(family, count):
    query, positive, negative = triples(count, 12)
    wanted = FORMULAS[family](query.T @ (positive - negative) / count, 2)
    with jax.enable_x64(True):
        got = FROM_TRIPLES[family](*map(jnp.asarray, (query, positive, negative)), 2)
        matrix, got = np.asarray(got.matrix), jax.device_get(got)
    np.testing.assert_allclose(matrix, wanted, atol=1e-12)
    np.testing.assert_allclose(got.query @ got.query.T, np.eye(2), atol=1e-12)
    leading = np.take_along_axis(got.query, np.abs(got.query).argmax(1)[:, None], 1)
    assert (leading > 0).all()
    assert got.kept == 2


@pytest.mark.parametrize("family", FORMULAS)
def test_a_rank_above_the_number_of_triples_is_served(family):
    query, positive, negative = triples(4, 12)
    wanted = FORMULAS[family](query.T @ (positive - negative) / 4, 9)
    got = FROM_TRIPLES[family](
        *(jnp.asarray(x, jnp.float32) for x in (query, positive, negative)), 9
    )
    np.testing.assert_allclose(got.matrix, wanted, atol=1e-5)
    assert got.kept <= 4
    assert got.query.shape == (9, 12)


@pytest.mark.parametrize("family", FORMULAS)
def test_triples_that_are_not_finite_are_not_hidden(family):
    query, positive, negative = (jnp.asarray(x, jnp.float32) for x in triples(4, 12))
    got = FROM_TRIPLES[family](query, positive.at[1, 2].set(np.nan), negative, 2)
    assert np.isnan(got.values).all()
    assert got.kept == 0
    with pytest.raises(ValueError, match="wanted 1 <= rank <= 12, got 13"):
        FROM_TRIPLES[family](query, positive, negative, 13)


def test_fits_of_triples_map():
    stack = jnp.asarray(np.stack([triples(4, 12, seed) for seed in (1, 2, 3)]), jnp.float32)
    for family, fit in FROM_TRIPLES.items():
        mapped = jax.jit(jax.vmap(lambda x, fit=fit: fit(*x, 2)))(stack)
        alone = np.asarray(stack[1], np.float64)
        wanted = FORMULAS[family](alone[0].T @ (alone[1] - alone[2]) / 4, 2)
        np.testing.assert_allclose(mapped.matrix[1], wanted, atol=1e-5)
