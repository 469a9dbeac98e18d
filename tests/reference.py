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


def batch_hinge(similarity, positive, negatives, margin, temperature, mode):
    losses = []
    for i, p in enumerate(np.asarray(positive, np.float64)):
        others = [float(s) for s, n in zip(similarity[i], negatives[i], strict=True) if n]
        if not others:
            losses.append(0.0)
            continue
        power = math.fsum(math.exp(s / temperature) for s in others)
        size = len(others) if mode == "mean" else 1
        losses.append(max(0.0, margin + temperature * math.log(power / size) - p))
    return np.array(losses)


def first_occurrence(rows, mask):
    seen, first = set(), []
    for row, real in zip(rows, mask, strict=True):
        first.append(bool(real) and row not in seen)
        if real:
            seen.add(row)
    return np.array(first, bool)


def rank_terms(similarity, gains, query_mask=None, document_mask=None, kept=None):
    """Every triple by itself; totals, counts, and the totals' gradients by their own query."""
    s, y = np.asarray(similarity, np.float64), np.maximum(np.asarray(gains, np.float64), 0)
    queries, documents = s.shape
    totals, counts, slopes = np.zeros(queries), np.zeros(queries), np.zeros_like(s)
    columns = [j for j in range(documents) if document_mask is None or document_mask[j]]
    for i in range(queries):
        if query_mask is not None and not query_mask[i]:
            continue
        for j in sorted(columns, key=lambda j: -y[i, j])[:kept]:
            for k in columns:
                if y[i, j] > y[i, k]:
                    weight, gap = y[i, j] - y[i, k], s[i, k] - s[i, j]
                    totals[i] += weight * (max(gap, 0.0) + math.log1p(math.exp(-abs(gap))))
                    counts[i] += 1
                    pull = weight * 0.5 * (1 + math.tanh(0.5 * gap))
                    slopes[i, k] += pull
                    slopes[i, j] -= pull
    return totals, counts, slopes


def prefix_similarities(queries, documents, widths):
    return np.array(
        [[[np.dot(unit(q[:m]), unit(d[:m])) for d in documents] for q in queries] for m in widths]
    )


def pair_distillation(adapted, frozen, widths, mask=None):
    rows = [i for i in range(len(adapted)) if mask is None or mask[i]]
    losses = np.zeros((len(widths), len(adapted)))
    for a, m in enumerate(widths):
        for i in rows:
            gaps = [
                abs(
                    np.dot(unit(frozen[i]), unit(frozen[j]))
                    - np.dot(unit(adapted[i][:m]), unit(adapted[j][:m]))
                )
                for j in rows
                if j != i
            ]
            losses[a, i] = sum(gaps) / len(gaps) if gaps else 0.0
    return losses


def neighbour_distillation(adapted, neighbours, frozen, widths, mask=None):
    losses = np.zeros((len(widths), len(adapted)))
    for a, m in enumerate(widths):
        for i, row in enumerate(adapted):
            gaps = [
                abs(float(frozen[i][j]) - np.dot(unit(row[:m]), unit(other[:m])))
                for j, other in enumerate(neighbours[i])
                if mask is None or mask[i][j]
            ]
            losses[a, i] = sum(gaps) / len(gaps) if gaps else 0.0
    return losses


def absolute_error(first, second):
    return np.array(
        [
            math.fsum(abs(float(x) - float(y)) for x, y in zip(a, b, strict=True))
            for a, b in zip(first, second, strict=True)
        ]
    )


def squared_error(first, second):
    return np.array(
        [
            math.fsum((float(x) - float(y)) ** 2 for x, y in zip(a, b, strict=True)) / len(a)
            for a, b in zip(first, second, strict=True)
        ]
    )


def prediction_error(queries, predicted, gains, query_mask=None, document_mask=None, kept=None):
    totals, weights = np.zeros(len(queries)), np.zeros(len(queries))
    columns = [j for j in range(len(predicted)) if document_mask is None or document_mask[j]]
    for i, query in enumerate(queries):
        if query_mask is None or query_mask[i]:
            for j in sorted(columns, key=lambda j: -gains[i][j])[:kept]:
                gain = max(float(gains[i][j]), 0.0)
                totals[i] += gain * absolute_error([query], [predicted[j]])[0]
                weights[i] += gain
    return totals, weights
