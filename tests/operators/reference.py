"""Float64 formulas of the operators in NumPy, written from the definitions. Slow on purpose."""

import math

import numpy as np


def moment(query, positive, negative, weights=None):
    weights = np.ones(len(query)) if weights is None else weights
    rows = zip(weights, query, positive, negative, strict=True)
    total = sum(w * np.outer(x, y - z) for w, x, y, z in rows)
    return total / math.fsum(weights)


def dual(matrix, rank):
    left, singular, right = np.linalg.svd(np.asarray(matrix, np.float64))
    return sum(singular[j] * np.outer(left[:, j], right[j]) for j in range(rank))


def shared(matrix, rank):
    matrix = np.asarray(matrix, np.float64)
    values, axes = np.linalg.eigh((matrix + matrix.T) / 2)
    best = np.argsort(-values)[:rank]
    kept = [max(values[j], 0.0) * np.outer(axes[:, j], axes[:, j]) for j in best]
    return sum(kept)


def error(matrix, fit):
    return float(np.sum((np.asarray(matrix) - fit) ** 2))


def completed(axes):
    """An orthogonal matrix whose first columns are the given rows."""
    rank = len(axes)
    basis, _ = np.linalg.qr(np.concatenate([axes, np.eye(axes.shape[1])]).T)
    return np.concatenate([axes.T, basis[:, rank:]], axis=1)


def dual_only(axes, direction):
    """From the blocks [[E, F], [G, .]] in the basis of the axes and what is orthogonal to them."""
    basis, rank = completed(axes), len(axes)
    blocks = basis.T @ direction @ basis
    corner, upper, lower = blocks[:rank, :rank], blocks[:rank, rank:], blocks[rank:, :rank]
    out = np.zeros_like(blocks)
    out[:rank, :rank] = (corner - corner.T) / 2
    out[rank:, :rank] = (lower - upper.T) / 2
    out[:rank, rank:] = -((lower - upper.T) / 2).T
    return basis @ out @ basis.T


def cars(query, apart, halves, ranks):
    """Scores and mean squared norms, [splits, ranks], from whole matrices."""
    scores, sizes = np.zeros((2, len(halves), len(ranks)))
    for split, pair in enumerate(halves):
        for place, rank in enumerate(ranks):
            first, other = (
                dual(c, rank) - shared(c, rank)
                for c in (sum(np.outer(query[i], apart[i]) for i in h) / len(h) for h in pair)
            )
            mean = (first + other) / 2
            scores[split, place] = error(mean, 0) - error(first, other) / 2
            sizes[split, place] = (error(first, 0) + error(other, 0)) / 2
    return scores, sizes


def rotation(axes, angle):
    """The rotation matrix, as a product of one rotation a plane."""
    turn = np.eye(axes.shape[1])
    for one, two in zip(axes[::2], axes[1::2], strict=True):
        plane = np.stack([one, two], axis=1)
        small = [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
        turn = (np.eye(len(turn)) - plane @ plane.T + plane @ small @ plane.T) @ turn
    return turn
