"""Two views of one latent vector, one of them turned: when does a second projection pay?"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dive_jax.operators import dual, relevance_moment, shared
from dive_jax.options import StudyOptions
from dive_jax.report.line_plots import Panel, Point, panels
from dive_jax.report.tables import Column
from dive_jax.studies.cells import Watch
from dive_jax.studies.keeping import kept
from dive_jax.studies.triples import Triples

DIM, LATENT, NOISE = 32, 8, 0.6
ANGLES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2)
"""Radians by which the document view is turned, in each of the planes (i, i + 8)."""

SIZES = (32, 64, 128, 256, 512, 1024, 2048)
RANKS = (4, 8, 16)
QUERIES, SEEDS, MASTER = 300, 5, 20260809
_CUT = 10

COLUMNS = (
    Column("rank", "rank"),
    Column("angle", "angle", 1),
    Column("n", "n"),
    Column("shared", "shared nDCG@10", 4),
    Column("dual", "dual nDCG@10", 4),
    Column("gap", "dual - shared", 4),
    Column("error", "standard error", 4),
)
"""Columns of the table; means over five paired seeds."""


def turn(angle: float) -> Float[np.ndarray, "dim dim"]:
    """Returns the rotation of the planes (i, i + 8), i < 8, by an angle in radians."""
    matrix = np.eye(DIM)
    for i in range(LATENT):
        j, (cos, sin) = i + LATENT, (np.cos(angle), np.sin(angle))
        matrix[[i, i, j, j], [i, j, i, j]] = cos, -sin, sin, cos
    return matrix


def ndcg(scores: Float[Array, "queries documents"]) -> Float[Array, ""]:
    """Returns nDCG@10 where document i is the one relevant document of query i.

    Example:
      >>> print(f"{ndcg(jnp.array([[0.9, 0.1], [0.7, 0.2]])):.4f}")
      0.8155
    """
    own = jnp.diagonal(scores)
    above = jnp.sum(scores > own[:, None], axis=1).astype(scores.dtype)
    return jnp.mean(jnp.where(above < _CUT, 1 / jnp.log2(above + 2), 0.0))


def _views(
    rng: np.random.Generator, rows: int, mixing: np.ndarray, matrix: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    latent = rng.normal(size=(rows, LATENT)) @ mixing.T
    query = latent + NOISE * rng.normal(size=(rows, DIM))
    document = latent @ matrix.T + NOISE * rng.normal(size=(rows, DIM))
    return query.astype(np.float32), document.astype(np.float32)


@jax.jit
def _scored(
    train: tuple[Array, Array, Array], test: tuple[Array, Array]
) -> Float[Array, "ranks families"]:
    moment = relevance_moment(*train).matrix
    query, document = test
    rows = []
    for rank in RANKS:
        fits = (fit(moment, rank).matrix for fit in (shared, dual))
        dot = jax.lax.Precision.HIGHEST
        scores = (
            jnp.matmul(jnp.matmul(query, fit, precision=dot), document.T, precision=dot)
            for fit in fits
        )
        rows.append(jnp.stack([ndcg(each) for each in scores]))
    return jnp.stack(rows)


def _mixing(rng: np.random.Generator) -> np.ndarray:
    return rng.normal(size=(DIM, LATENT)) / np.sqrt(DIM)


def sample(angle: float, size: int, seed: int) -> tuple[Triples, Float[Array, "dim dim"]]:
    """Returns triples of the two views, and the moment that they are a sample of.

    Args:
      angle: Radians.
      size: Triples, at most the largest size; samples of one seed are nested.
      seed: Of the latent vectors and the noise.
    """
    rng = np.random.default_rng([MASTER, seed])
    mixing, matrix = _mixing(rng), turn(angle)
    query, document = _views(rng, SIZES[-1], mixing, matrix)
    _, negative = _views(rng, SIZES[-1], mixing, matrix)
    ids = tuple(str(row) for row in range(size))
    moment = jnp.asarray(mixing @ mixing.T @ matrix.T, jnp.float32)
    return Triples(ids, query[:size], document[:size], negative[:size]), moment


def cell(angle: float, size: int, seeds: int) -> list[list[list[float]]]:
    """Returns nDCG@10 by seed, rank and family (shared, dual) at one angle and sample size."""
    found = []
    for seed in range(seeds):
        # The same latent vectors and noise at every angle, and nested samples.
        rng = np.random.default_rng([MASTER, seed])
        mixing, matrix = _mixing(rng), turn(angle)
        test = _views(rng, QUERIES, mixing, matrix)
        query, document = _views(rng, SIZES[-1], mixing, matrix)
        _, negative = _views(rng, SIZES[-1], mixing, matrix)
        train = tuple(jnp.asarray(each[:size]) for each in (query, document, negative))
        found.append(np.asarray(_scored(train, tuple(map(jnp.asarray, test)))).tolist())
    return found


def measure(options: StudyOptions, folder: Path, watch: Watch) -> list[dict[str, Any]]:
    """Returns a row a rank, angle and sample size; finished cells are read.

    Args:
      options: --smoke takes two angles, three sizes and two seeds.
      folder: Where finished cells lie.
      watch: Where to tell how it goes.
    """
    angles = ANGLES[::6] if options.smoke else ANGLES
    sizes = SIZES[::3] if options.smoke else SIZES
    seeds = 2 if options.smoke else SEEDS
    todo = [(angle, size) for angle in angles for size in sizes]
    rows: list[dict[str, Any]] = []
    with watch.progress(len(todo), "two views", "cells") as bar:
        for done, (angle, size) in enumerate(todo, 1):
            values = np.array(
                kept(
                    folder / f"{angle:g}-{size}.json",
                    lambda angle=angle, size=size: cell(angle, size, seeds),
                )
            )
            for place, rank in enumerate(RANKS):
                one, other = values[:, place].T
                gaps = other - one
                rows.append(
                    {"rank": rank, "angle": angle, "n": size}
                    | {"shared": float(one.mean()), "dual": float(other.mean())}
                    | {"gap": float(gaps.mean())}
                    | {"error": float(gaps.std(ddof=1) / np.sqrt(seeds))}
                )
            bar.update(done, f"{angle:g} rad, n {size}")
    rows.sort(key=lambda row: (row["rank"], row["angle"], row["n"]))
    return rows


def contour(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, int | None]]:
    """Returns rank -> angle -> the least sample size at which dual has the higher mean."""
    found: dict[str, dict[str, int | None]] = {}
    for row in rows:
        at = found.setdefault(str(row["rank"]), {})
        name = f"{row['angle']:g}"
        if at.setdefault(name, None) is None and row["gap"] > 0:
            at[name] = row["n"]
    return found


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draws dual - shared against the sample size, a panel a rank and a line an angle."""
    parts = []
    for rank in dict.fromkeys(row["rank"] for row in rows):
        lines: dict[str, list[Point]] = {}
        for row in rows:
            if row["rank"] == rank:
                point = Point(row["n"], row["gap"], row["error"])
                lines.setdefault(f"{row['angle']:g} rad", []).append(point)
        parts.append(Panel(f"rank {rank}", lines))
    panels(
        parts,
        path,
        title="Two views: dual - shared, nDCG@10",
        x="training triples",
        y="nDCG@10",
        octaves=True,
    )
