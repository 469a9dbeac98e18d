"""Turning queries in chosen planes: the controlled departure from a shared geometry."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from dive_jax.operators.checks import Scalar, check_array, check_axes, product


def rotate_queries(
    query: Float[Array, "rows dim"], axes: Float[Array, "count dim"], angle: Scalar
) -> Float[Array, "rows dim"]:
    """Turns every query by one angle in each of the planes (axis 0, axis 1), (axis 2, axis 3), ….

    Args:
      query: Query vectors.
      axes: Orthonormal rows, an even number: two a plane.
      angle: In radians, from the first axis of a plane to the second.

    Returns:
      The turned queries, as long as before, in their type.

    Raises:
      ValueError: If the number of axes is odd or above dim.

    Source:
      arXiv 2609.32488, the rotation study.

    Example:
      >>> turned = rotate_queries(jnp.array([[1.0, 0.0, 2.0]]), jnp.eye(3)[:2], jnp.pi / 6)
      >>> print([f"{value:.3f}" for value in turned[0]])
      ['0.866', '0.500', '2.000']
    """
    wide = check_array("query", query, "rows dim")
    axes = check_axes(axes, wide.shape[1]).astype(wide.dtype)
    if axes.shape[0] % 2:
        raise ValueError(f"axes: wanted an even number, two a plane, got {axes.shape[0]}")
    angle = jnp.asarray(angle, wide.dtype)
    first, second = (product(wide, side.T) for side in (axes[::2], axes[1::2]))
    less, sine = jnp.cos(angle) - 1, jnp.sin(angle)
    moved = product(less * first - sine * second, axes[::2])
    moved = moved + product(sine * first + less * second, axes[1::2])
    return (wide + moved).astype(query.dtype)
