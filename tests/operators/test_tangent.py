import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dive_jax.operators import (
    dual_only,
    dual_only_dimension,
    dual_only_energy,
    local_risks,
    tangent_dimensions,
    tangent_dual,
    tangent_shared,
)
from tests.operators import reference

RANDOM = np.random.default_rng(13)
DIM = 5


def target(rank):
    axes = np.linalg.qr(RANDOM.normal(size=(DIM, DIM)))[0][:rank]
    return axes, np.sqrt(np.linspace(3, 1, rank))[:, None] * axes


@pytest.mark.parametrize("rank", [1, 2, 5])
def test_the_spaces_are_those_that_the_factorings_reach(rank):
    """Derivatives of A^T B and of P^T P at the target: their rank, and where they lie."""
    axes, root = target(rank)
    with jax.enable_x64(True):
        there, root = jnp.asarray(axes), jnp.asarray(root)
        jacobian = jax.jacobian(lambda sides: sides[0].T @ sides[1])(jnp.stack([root, root]))
        both = jacobian.reshape(DIM * DIM, -1).T.reshape(-1, DIM, DIM)
        jacobian = jax.jacobian(lambda root: root.T @ root)(root)
        one = jacobian.reshape(DIM * DIM, -1).T.reshape(-1, DIM, DIM)
        sizes = tangent_dimensions(DIM, rank)
        for moves, project, size in (
            (both, tangent_dual, sizes.dual),
            (one, tangent_shared, sizes.shared),
        ):
            assert np.linalg.matrix_rank(moves.reshape(-1, DIM * DIM)) == size
            kept = jax.vmap(project, in_axes=(None, 0))(there, moves)
            np.testing.assert_allclose(kept, moves, atol=1e-12)
            units = jnp.eye(DIM * DIM).reshape(-1, DIM, DIM)
            matrix = jax.vmap(project, in_axes=(None, 0))(there, units).reshape(DIM**2, -1)
            np.testing.assert_allclose(matrix, matrix.T, atol=1e-12)  # an orthogonal projection
            np.testing.assert_allclose(matrix @ matrix, matrix, atol=1e-12)
            assert round(float(jnp.trace(matrix))) == size
    assert sizes.dual_only == dual_only_dimension(DIM, rank) == rank * (2 * DIM - rank - 1) // 2


@pytest.mark.parametrize("rank", [1, 3, 5])
def test_the_dual_only_part_is_its_block_form(rank):
    axes, _ = target(rank)
    direction = RANDOM.normal(size=(DIM, DIM))
    expected = reference.dual_only(axes, direction)
    with jax.enable_x64(True):
        there = jnp.asarray(axes), jnp.asarray(direction)
        got = dual_only(*there)
        apart = tangent_dual(*there) - tangent_shared(*there)
        energy = dual_only_energy(*there)
    np.testing.assert_allclose(got, expected, atol=1e-12)
    np.testing.assert_allclose(apart, expected, atol=1e-12)
    np.testing.assert_allclose(energy, np.sum(expected**2), rtol=1e-12)
    narrow = dual_only(jnp.asarray(axes, jnp.float32), jnp.asarray(direction, jnp.float32))
    np.testing.assert_allclose(narrow, expected, atol=1e-5)


def test_a_symmetric_direction_has_no_dual_only_part():
    axes, _ = target(2)
    direction = RANDOM.normal(size=(DIM, DIM))
    there = jnp.asarray(axes, jnp.float32), jnp.asarray(direction + direction.T, jnp.float32)
    assert dual_only_energy(*there) == 0
    assert not np.any(dual_only(*there))


def test_published_limits_of_the_local_risks():
    assert tangent_dimensions(12, 3) == (63, 33, 30)
    for ratio, shared in ((0, 33), (0.5, 48), (1, 63), (2, 93)):
        risks = local_risks(12, 3, signal=30.0 * ratio)
        assert (risks.shared, risks.dual, risks.cost) == (shared, 63, 30)
        assert bool(risks.dual_better) == (ratio > 1)
    scaled = local_risks(12, 3, signal=jnp.array(30.0), variance=0.5)
    assert (scaled.shared, scaled.dual) == (33 / 2 + 30, 63 / 2)


def test_dimensions_map_over_a_grid_of_ranks():
    ranks = jnp.arange(1, 6)
    got = jax.vmap(lambda rank: local_risks(DIM, rank, signal=1.0).cost)(ranks)
    np.testing.assert_array_equal(got, [dual_only_dimension(DIM, r) for r in range(1, 6)])


def test_wrong_ranks_are_told():
    with pytest.raises(ValueError, match="wanted 1 <= rank <= 5, got 6"):
        tangent_dimensions(5, 6)


@pytest.mark.errors
def test_wrong_shapes_are_told():
    with pytest.raises(ValueError, match=r"axes: wanted \[rank, 3\], rank <= 3, got \[1, 2\]"):
        dual_only(jnp.ones((1, 2)), jnp.eye(3))
    with pytest.raises(ValueError, match=r"direction: wanted a square matrix, got \[2, 3\]"):
        tangent_shared(jnp.ones((1, 3)), jnp.ones((2, 3)))
