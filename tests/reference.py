"""Float64 formulas in NumPy, written pair by pair from the definitions. Slow on purpose."""

import math

import numpy as np


def unit(row):
    length = math.sqrt(math.fsum(float(x) ** 2 for x in row))
    return np.array([0.0 if length < 1e-12 else float(x) / length for x in row])


def hinge(positive, negative, margin):
    return np.array([max(0.0, margin - (p - n)) for p, n in _pairs(positive, negative)])


def softplus_hinge(positive, negative, margin):
    losses = []
    for p, n in _pairs(positive, negative):
        gap = margin - (p - n)
        losses.append(max(gap, 0.0) + math.log1p(math.exp(-abs(gap))))
    return np.array(losses)


def active(positive, negative, margin):
    return np.array([p - n < margin for p, n in _pairs(positive, negative)])


def ntxent(heads, temperature, mask=None):
    """For each positive by itself: minus the log of its share of the denominator."""
    heads = np.asarray(heads, np.float64)
    batch, count, _ = heads.shape
    samples = [i for i in range(batch) if mask is None or mask[i]]
    losses = np.zeros((batch, count))
    for i in samples:
        for h in range(count):
            others = [(j, g) for j in samples for g in range(count) if (j, g) != (i, h)]
            cosines = {pair: float(np.dot(heads[i, h], heads[pair])) for pair in others}
            for g in range(count):
                if g != h:
                    ratio = [math.exp((c - cosines[i, g]) / temperature) for c in cosines.values()]
                    losses[i, h] += math.log(math.fsum(ratio)) / (count - 1)
    return losses


def ntxent_gradient(heads, temperature, weights):
    """Gradient of the weighted sum of the losses, term by term from the soft-max shares."""
    heads = np.asarray(heads, np.float64)
    batch, count, _ = heads.shape
    places = [(i, h) for i in range(batch) for h in range(count)]
    gradient = np.zeros_like(heads)
    for a in places:
        others = [b for b in places if b != a]
        scores = np.array([np.dot(heads[a], heads[b]) / temperature for b in others])
        shares = np.exp(scores - scores.max())
        shares /= shares.sum()
        for b, share in zip(others, shares, strict=True):
            wanted = 1 / (count - 1) if b[0] == a[0] else 0.0
            gradient[a] += weights[a] * (share - wanted) * heads[b] / temperature
            gradient[b] += weights[a] * (share - wanted) * heads[a] / temperature
    return gradient


def smooth_l1(difference, beta):
    size = abs(float(difference))
    return 0.5 * size**2 / beta if size < beta else size - 0.5 * beta


def gram_distillation(student, teacher, beta=1.0, mask=None):
    student, teacher = np.asarray(student, np.float64), np.asarray(teacher, np.float64)
    rows = [i for i in range(len(student)) if mask is None or mask[i]]
    losses = np.zeros(len(student))
    for i in rows:
        found = []
        for j in rows:
            if j != i:
                kept, frozen = np.dot(student[i], student[j]), np.dot(teacher[i], teacher[j])
                found.append(smooth_l1(kept - frozen, beta))
        losses[i] = sum(found) / len(found) if found else 0.0
    return losses


def second_moment(rows):
    """Mean outer product, one row at a time."""
    dim = len(rows[0])
    moment = np.zeros((dim, dim))
    for i in range(dim):
        for j in range(dim):
            moment[i, j] = math.fsum(float(row[i]) * float(row[j]) for row in rows) / len(rows)
    return moment


def covariance(rows):
    """Mean outer product of what is left after the mean row is taken away."""
    dim = len(rows[0])
    middle = [math.fsum(float(row[i]) for row in rows) / len(rows) for i in range(dim)]
    return second_moment([[float(x) - m for x, m in zip(row, middle, strict=True)] for row in rows])


def _pairs(positive, negative):
    return zip(np.asarray(positive, np.float64), np.asarray(negative, np.float64), strict=True)
