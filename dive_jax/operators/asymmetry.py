"""What a dual fit holds and a shared one does not, as thin factors, for all ranks at once."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from dive_jax.operators.checks import check_rank, check_square, product


class Asymmetry(NamedTuple):
    """V = dual fit - shared fit of a moment, for every rank up to a count, as left @ right^T.

    Attributes:
      left: [*batch, dim, 2 count]: the dual fit's columns, then the shared one's.
      right: The other factor, in the same order; rank r uses the first r columns of each kind.
      scale: Squared norms of both fits added, for each rank, [*batch, count].
      positive: How many of the eigenvalues used are positive beyond rounding.
    """

    left: Float[Array, "*batch dim both"]
    right: Float[Array, "*batch dim both"]
    scale: Float[Array, "*batch count"]
    positive: Int[Array, "*batch"]


def asymmetry(moment: Float[Array, "dim dim"], *, ranks: tuple[int, ...]) -> Float[Array, " ranks"]:
    """Gives the squared distance of the two fits of a moment: the uncorrected evidence for dual.

    Args:
      moment: Square, any sign.
      ranks: Ranks of the fits, each from 1 to dim, in any order.

    Returns:
      The squared Frobenius norm of dual fit - shared fit, for each rank. Noise alone makes it
      large; `cars` corrects for that.

    Raises:
      ValueError: If the moment is not square, or a rank is out of range.

    Source:
      arXiv 2609.32488, raw plug-in asymmetry.

    Example:
      >>> print(asymmetry(jnp.array([[0.0, 2.0], [0.0, 0.0]]), ranks=(1, 2)))
      [3. 3.]
    """
    moment = check_square("moment", moment)
    for rank in ranks:
        check_rank(rank, moment.shape[0])
    fits = jax.tree.map(lambda leaf: leaf[0], asymmetry_of(moment[None], max(ranks)))
    return inner(fits, fits)[jnp.asarray(ranks) - 1]


@partial(jax.jit, static_argnames="count")
def asymmetry_of(moments: Float[Array, "batch dim dim"], count: int) -> Asymmetry:
    """Decomposes each moment once, and all of them in one call (see `ordering`).

    The right singular vectors are the eigenvectors of C^T C, and the dual fit is C projected onto
    them. Squaring costs digits of the small singular values only, which count by their squares
    here: the fit is as far from the best one as rounding of C could have made it, in norm.

    Args:
      moments: Square matrices.
      count: Greatest rank wanted, at most dim.
    """
    greatest = jnp.max(jnp.abs(moments), axis=(1, 2), keepdims=True)
    scaled = moments / jnp.where(greatest == 0, 1.0, greatest)
    turned = jnp.swapaxes(scaled, 1, 2)
    stack = jnp.concatenate([product(turned, scaled), (scaled + turned) / 2])
    values, axes = leading(stack, count)
    dual, shared = jnp.split(axes, 2)
    images = product(moments, dual)
    eigen = values[len(moments) :] * greatest[:, :, 0]
    strengths = jnp.where(eigen <= 0, 0.0, eigen)
    scale = jnp.cumsum(jnp.sum(images**2, axis=1) + strengths**2, axis=1)
    rounding = moments.shape[1] * jnp.finfo(moments.dtype).eps * greatest[:, :, 0]
    return Asymmetry(
        jnp.concatenate([images, -strengths[:, None, :] * shared], axis=2),
        jnp.concatenate([dual, shared], axis=2),
        scale,
        jnp.sum(eigen > rounding, axis=1, dtype=jnp.int32),
    )


def leading(
    matrices: Float[Array, "batch dim dim"], count: int
) -> tuple[Float[Array, "batch count"], Float[Array, "batch dim count"]]:
    """Returns the greatest eigenvalues of symmetric matrices, descending, and their vectors."""
    values, vectors = jnp.linalg.eigh(matrices, symmetrize_input=False)
    return values[:, ::-1][:, :count], vectors[:, :, ::-1][:, :, :count]


def inner(first: Asymmetry, other: Asymmetry) -> Float[Array, "*batch count"]:
    """Returns the Frobenius inner product of two asymmetries, rank by rank, from their factors."""
    overlaps = product(jnp.swapaxes(first.left, -1, -2), other.left)
    overlaps = overlaps * product(jnp.swapaxes(first.right, -1, -2), other.right)
    count = first.scale.shape[-1]
    blocks = overlaps.reshape(*overlaps.shape[:-2], 2, count, 2, count).sum(axis=(-4, -2))
    nested = jnp.cumsum(jnp.cumsum(blocks, axis=-2), axis=-1)
    return jnp.diagonal(nested, axis1=-2, axis2=-1)
