import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dive_jax.operators import rotate_queries
from tests.operators import reference

RANDOM = np.random.default_rng(23)
QUERY = RANDOM.normal(size=(7, 6))
AXES = np.linalg.qr(RANDOM.normal(size=(6, 6)))[0]


@pytest.mark.parametrize("planes", [1, 3])
def test_it_is_the_rotation_matrix(planes):
    axes = AXES[: 2 * planes]
    for degrees in (0, 15, 90, -200):
        angle = np.deg2rad(degrees)
        expected = QUERY @ reference.rotation(axes, angle).T
        with jax.enable_x64(True):
            got = rotate_queries(jnp.asarray(QUERY), jnp.asarray(axes), angle)
        np.testing.assert_allclose(got, expected, atol=1e-12)
        np.testing.assert_allclose(
            np.linalg.norm(got, axis=1), np.linalg.norm(QUERY, axis=1), rtol=1e-12
        )


def test_no_angle_changes_nothing_and_half_precision_stays():
    query, axes = jnp.asarray(QUERY, jnp.float16), jnp.asarray(AXES[:2], jnp.float32)
    got = jax.jit(rotate_queries)(query, axes, jnp.array(0.0))
    assert got.dtype == jnp.float16
    np.testing.assert_array_equal(got, query)


def test_an_odd_number_of_axes_is_told():
    with pytest.raises(ValueError, match="wanted an even number, two a plane, got 3"):
        rotate_queries(jnp.ones((2, 6)), jnp.asarray(AXES[:3], jnp.float32), 0.1)
