import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dive_jax.operators import rademacher_bound
from tests.operators import reference

RANDOM = np.random.default_rng(29)
TRIPLES = RANDOM.normal(size=(3, 12, 4))
SIGNS = RANDOM.choice([-1.0, 1.0], size=(9, 12))


@pytest.mark.parametrize("rank", [1, 2, 4])
def test_it_is_the_mean_of_the_suprema(rank):
    query, apart = TRIPLES[0], TRIPLES[1] - TRIPLES[2]
    means = np.einsum("dn,ni,nj->dij", SIGNS, query, apart) / 12
    dual = [np.linalg.norm(reference.dual(mean, rank)) for mean in means]
    shared = [np.linalg.norm(reference.shared(mean, rank)) for mean in means]
    radius = max(np.linalg.norm(np.outer(x, d)) for x, d in zip(query, apart, strict=True))
    with jax.enable_x64(True):
        got = rademacher_bound(*jnp.asarray(TRIPLES), jnp.asarray(SIGNS), rank=rank, bound=2.0)
    np.testing.assert_allclose(got.dual, 2 * np.mean(dual), rtol=1e-9)
    np.testing.assert_allclose(got.shared, 2 * np.mean(shared), rtol=1e-9)
    np.testing.assert_allclose(got.error, 2 * np.std(dual, ddof=1) / 3, rtol=1e-9)
    np.testing.assert_allclose(got.radius, radius, rtol=1e-9)
    np.testing.assert_allclose(got.limit, 2 * radius / 12**0.5, rtol=1e-9)
    assert got.shared <= got.dual <= got.limit


def test_drawn_signs_compile_and_one_draw_has_no_error():
    given = jnp.asarray(TRIPLES, jnp.float32)

    @jax.jit
    def bound(key):
        signs = jax.random.rademacher(key, (1, 12), jnp.float32)
        return rademacher_bound(*given, signs, rank=2)

    got = bound(jax.random.key(0))
    assert got.error == 0
    assert 0 < got.shared <= got.dual < got.limit
    nothing = rademacher_bound(given[0], given[1], given[1], jnp.ones((2, 12)), rank=1)
    assert not np.any(jnp.stack(nothing))


@pytest.mark.errors
def test_wrong_shapes_are_told():
    rows = jnp.ones((3, 2))
    with pytest.raises(ValueError, match=r"signs: wanted shape \[draws, 3\], got \[1, 2\]"):
        rademacher_bound(rows, rows, rows, jnp.ones((1, 2)), rank=1)
