"""Other sides of `operator_fits.py`: plain NumPy, SciPy's iterations, thin NumPy by hand."""

from collections.abc import Callable

import fits_data
import numpy as np
from scipy.sparse.linalg import LinearOperator, eigsh, svds
from worker import Ready

Fit = Callable[[np.ndarray, np.ndarray, int], tuple[np.ndarray, np.ndarray, np.ndarray]]


def _greatest(values: np.ndarray, axes: np.ndarray, rank: int) -> tuple[np.ndarray, ...]:
    best = np.argsort(-values)[:rank]
    return axes[:, best].T, np.maximum(values[best], 0), axes[:, best].T


def full_dual(query: np.ndarray, apart: np.ndarray, rank: int) -> tuple[np.ndarray, ...]:
    left, values, right = np.linalg.svd(query.T @ apart / len(query))
    return left[:, :rank].T, values[:rank], right[:rank]


def full_shared(query: np.ndarray, apart: np.ndarray, rank: int) -> tuple[np.ndarray, ...]:
    moment = query.T @ apart / len(query)
    return _greatest(*np.linalg.eigh((moment + moment.T) / 2), rank)


def thin_dual(query: np.ndarray, apart: np.ndarray, rank: int) -> tuple[np.ndarray, ...]:
    ours, mine = np.linalg.qr(query.T)
    theirs, other = np.linalg.qr(apart.T)
    left, values, right = np.linalg.svd(mine @ other.T / len(query))
    return (ours @ left[:, :rank]).T, values[:rank], right[:rank] @ theirs.T


def thin_shared(query: np.ndarray, apart: np.ndarray, rank: int) -> tuple[np.ndarray, ...]:
    basis, parts = np.linalg.qr(np.concatenate([query, apart]).T)
    core = parts[:, : len(query)] @ parts[:, len(query) :].T / len(query)
    values, axes = np.linalg.eigh((core + core.T) / 2)
    return _greatest(values, basis @ axes, rank)


def _operator(query: np.ndarray, apart: np.ndarray) -> LinearOperator:
    """Gives the moment by its products with vectors, formed only where that is cheaper."""
    count, dim = query.shape
    if 2 * count >= dim:
        moment = query.T @ apart / count
        return LinearOperator((dim, dim), moment.dot, moment.T.dot, dtype=np.float32)
    return LinearOperator(
        (dim, dim),
        lambda v: query.T @ (apart @ v) / count,
        lambda v: apart.T @ (query @ v) / count,
        dtype=np.float32,
    )


def scipy_dual(query: np.ndarray, apart: np.ndarray, rank: int) -> tuple[np.ndarray, ...]:
    left, values, right = svds(_operator(query, apart), k=rank, random_state=0)
    return left.T[::-1], values[::-1], right[::-1]


def scipy_shared(query: np.ndarray, apart: np.ndarray, rank: int) -> tuple[np.ndarray, ...]:
    moment = _operator(query, apart)
    start = np.random.default_rng(0).standard_normal(moment.shape[0]).astype(np.float32)
    half = LinearOperator(
        moment.shape, lambda v: (moment.matvec(v) + moment.rmatvec(v)) / 2, dtype=np.float32
    )
    return _greatest(*eigsh(half, k=rank, which="LA", v0=start), rank)


FITS: dict[str, Fit] = {
    name.replace("_", " "): fit
    for name, fit in globals().items()
    if name.endswith(("_dual", "_shared"))
}


def build(family: str, how: str, dim: int, count: int) -> Ready:
    """Fits a family in one of three ways; the result is its values and some products."""
    query, apart = fits_data.triples(dim, count)

    def run() -> tuple[np.ndarray, ...]:
        return FITS[f"{how} {family}"](query, apart, fits_data.RANK)

    axes, values, document = run()
    products = axes.T @ (values[:, None] * (document @ fits_data.probes(dim)))
    return Ready(run, (values, products))
