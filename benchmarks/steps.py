"""The same weights, vectors and judgments for both sides of `step_throughput.py`; NumPy only."""

import zlib
from typing import Any, NamedTuple

import numpy as np

QUERIES, DOCUMENTS, JUDGED, NEAR, HARD = 400, 2000, 3, 2, 8
LEARNING_RATE, WEIGHT_DECAY = 2e-4, 1e-4
MARGIN, TEMPERATURE, VIEW, GEOMETRY = 0.7, 0.1, 0.01, 10.0
BATCH_MARGIN, BATCH_TEMPERATURE = 0.2, 0.05
RECOVERY, PREDICTION = 0.1, 0.01
SMEC_RATE, SELECTION_RATE, MEMORY, SMEC_NEAR, SMEC_DRAWN, SMEC_MET = 5e-6, 1e-2, 5000, 10, 2, 128
PROJECTION_TEMPERATURE, PROJECTION_DECAY, CLIP = 0.05, 1e-5, 5.0


class Case(NamedTuple):
    """One shape: embedding width, hidden width, coordinates kept, heads, batch, steps a call."""

    full_dim: int
    hidden: int
    dim: int
    heads: int
    batch: int
    steps: int

    @property
    def width(self) -> int:
        """The columns that DIVE's losses read."""
        return self.dim * self.heads


class Collection(NamedTuple):
    """Vectors and judgments, and the triplets of each step.

    Attributes:
      query: Unit vectors [QUERIES, full_dim].
      document: Unit vectors [DOCUMENTS, full_dim].
      judged: Relevant documents of each query [QUERIES, JUDGED].
      gains: Their gains.
      near: Neighbours of each document [DOCUMENTS, NEAR].
      hard: Hard negatives of each query [QUERIES, HARD].
      triplets: Rows of query, positive and negative [3, steps * batch].
    """

    query: np.ndarray
    document: np.ndarray
    judged: np.ndarray
    gains: np.ndarray
    near: np.ndarray
    hard: np.ndarray
    triplets: np.ndarray


def _unit(rng: np.random.Generator, rows: int, dim: int) -> np.ndarray:
    vectors = rng.normal(size=(rows, dim))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def _others(rng: np.random.Generator, rows: int, count: int) -> np.ndarray:
    """Draws for each row distinct documents."""
    return np.argsort(rng.random((rows, DOCUMENTS)), axis=1)[:, :count].astype(np.int32)


def collection(case: Case) -> Collection:
    """Draws everything from a seed; a query lies near its relevant documents."""
    rng = np.random.default_rng(case.full_dim)
    document = _unit(rng, DOCUMENTS, case.full_dim)
    drawn = _others(rng, QUERIES, JUDGED + HARD)
    judged, hard = drawn[:, :JUDGED], drawn[:, JUDGED:]
    query = document[judged].mean(axis=1) + 0.5 * _unit(rng, QUERIES, case.full_dim)
    query /= np.linalg.norm(query, axis=1, keepdims=True)
    count = case.steps * case.batch
    asked = rng.integers(0, QUERIES, count)
    positive = judged[asked, rng.integers(0, JUDGED, count)]
    negative = rng.integers(0, DOCUMENTS, count)
    return Collection(
        query.astype(np.float32),
        document,
        judged,
        np.tile(np.array([2, 1, 1], np.float32), (QUERIES, 1)),
        _others(rng, DOCUMENTS, NEAR),
        hard,
        np.stack([asked, positive, negative]).astype(np.int32),
    )


def weight(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Draws a parameter by its name: kernels [in, out] of about unit gain, biases near 0.

    Scores that select are kept apart from each other, a normalisation's scale near 1, and the last
    layer of what is added to the vectors is small.
    """
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    drawn = rng.standard_normal(shape, np.float32)
    if name.endswith("scale"):
        return 1 + 0.1 * drawn
    if len(shape) < 2:
        return 0.01 * drawn
    gain = 0.3 if name.endswith("out.kernel") else 1.0
    return drawn * np.float32(gain / np.sqrt(shape[0]))


def flat(tree: Any, prefix: str = "") -> dict[str, Any]:
    """Names the leaves of nested dicts by their path, dots between."""
    if not isinstance(tree, dict):
        return {prefix: tree} if not isinstance(tree, tuple) else {}
    return {
        name: leaf
        for key, each in tree.items()
        for name, leaf in flat(each, f"{prefix}.{key}" if prefix else key).items()
    }


def product_flops(case: Case, width: int) -> float:
    """Returns the operations of a residual adapter's five products and DIVE's other ones, a step.

    Forward and backward: two products of the hidden layer, three of the output layer. The blocks of
    the contrast take three products each, the student's Gram matrix three, the teacher's one.
    """
    rows, block = 3 * case.batch, case.batch * case.heads
    adapter = rows * case.hidden * (2 * case.full_dim + 3 * width)
    contrast = 3 * 3 * block**2 * case.dim
    geometry = rows**2 * (3 * case.dim + case.full_dim)
    return 2.0 * (adapter + contrast + geometry)
