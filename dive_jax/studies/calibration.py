"""The local theory against simulation: risks of both fits, how often SURE takes the dual one."""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dive_jax.operators import (
    Operator,
    dual,
    dual_only,
    dual_only_dimension,
    local_risks,
    shared,
    sure_power,
    sure_select,
)
from dive_jax.options import StudyOptions
from dive_jax.report.line_plots import Panel, Point, panels
from dive_jax.report.tables import Column
from dive_jax.studies.cells import Watch
from dive_jax.studies.keeping import kept

DIM, RANK = 12, 3
VALUES = (3.0, 2.0, 1.5)
RATIOS = (0.0, 0.5, 1.0, 2.0)
"""Signal over cost: squared norm of the dual-only direction over variance * kappa."""

SIZES = (64, 256, 1024, 4096)
RISK_DRAWS, CHOICE_DRAWS = 20_000, 200_000
_AT_ONCE = 2_000
_SEED = 20260809

COLUMNS = (
    Column("n", "n"),
    Column("ratio", "signal / cost", 1),
    Column("shared_risk", "shared risk", 2),
    Column("shared_limit", "limit", 0),
    Column("dual_risk", "dual risk", 2),
    Column("dual_limit", "limit", 0),
    Column("prob_dual", "Pr(dual)", 3),
    Column("prob_limit", "limit", 3),
)
"""Columns of the table."""


def target() -> tuple[Float[np.ndarray, "dim dim"], Float[np.ndarray, "rank dim"]]:
    """Returns the shared target, and orthonormal rows that span its range."""
    rng = np.random.default_rng(_SEED)
    axes = np.linalg.qr(rng.normal(size=(DIM, DIM)))[0][:, :RANK].T
    return axes.T @ np.diag(VALUES) @ axes, axes


def direction(axes: Float[np.ndarray, "rank dim"], ratio: float) -> Float[np.ndarray, "dim dim"]:
    """Returns a dual-only direction whose squared norm is ratio * kappa."""
    noise = np.random.default_rng(_SEED + 1).normal(size=(DIM, DIM))
    only = np.asarray(dual_only(jnp.asarray(axes), jnp.asarray(noise)))
    return only / np.linalg.norm(only) * np.sqrt(ratio * dual_only_dimension(DIM, RANK))


@functools.partial(jax.jit, static_argnames="fit")
def _errors(
    near: Float[Array, "dim dim"],
    size: Float[Array, ""],
    key: Array,
    *,
    fit: Callable[[Array, int], Operator],
) -> Float[Array, ""]:
    """Returns the summed squared errors of a fit over some draws, times the sample size.

    One family a program: two batched decompositions in one may wait for each other on a CPU.
    """
    noise = jax.random.normal(key, (_AT_ONCE, DIM, DIM), near.dtype)
    seen = near[None] + noise / jnp.sqrt(size)

    def error(moment: Float[Array, "dim dim"]) -> Float[Array, ""]:
        return jnp.sum((fit(moment, RANK).matrix - near) ** 2)

    return size * jnp.sum(jax.vmap(error)(seen))


def risks(size: int, ratio: float, draws: int) -> dict[str, float]:
    """Returns the scaled risks of both fits at one sample size, by simulation.

    Args:
      size: n; the target is the dual fit of S + H / sqrt(n), which both estimate.
      ratio: Signal over cost.
      draws: Simulated moments, rounded up to whole batches.
    """
    base, axes = target()
    moved = base + direction(axes, ratio) / np.sqrt(size)
    near = dual(jnp.asarray(moved, jnp.float32), RANK).matrix
    totals, batches = np.zeros(2), -(-draws // _AT_ONCE)
    for batch in range(batches):
        key = jax.random.fold_in(jax.random.key(_SEED), batch)
        given = near, jnp.float32(size), key
        totals += [float(_errors(*given, fit=fit)) for fit in (shared, dual)]
    one, other = totals / (batches * _AT_ONCE)
    return {"shared_risk": float(one), "dual_risk": float(other)}


@jax.jit
def _chosen(axes: Array, signal: Array, key: Array) -> Array:
    noise = jax.random.normal(key, (_AT_ONCE, DIM, DIM), axes.dtype)
    choose = jax.vmap(lambda each: sure_select(axes, each, variance=1.0).dual)
    return jnp.sum(choose(signal[None] + noise))


def share_dual(ratio: float, draws: int) -> float:
    """Returns how often SURE chooses the dual fit under Gaussian noise about the direction."""
    _, axes = target()
    signal = jnp.asarray(direction(axes, ratio), jnp.float32)
    batches, count = -(-draws // _AT_ONCE), 0
    for batch in range(batches):
        key = jax.random.fold_in(jax.random.key(_SEED + 2), batch)
        count += int(_chosen(jnp.asarray(axes, jnp.float32), signal, key))
    return count / (batches * _AT_ONCE)


def measure(options: StudyOptions, folder: Path, watch: Watch) -> list[dict[str, Any]]:
    """Returns a row a sample size and ratio, smallest size first; finished rows are read.

    Args:
      options: --smoke takes one batch of draws and the two largest sizes.
      folder: Where finished parts lie.
      watch: Where to tell how it goes.
    """
    sizes = SIZES[-2:] if options.smoke else SIZES
    risk_draws = _AT_ONCE if options.smoke else RISK_DRAWS
    choice_draws = _AT_ONCE if options.smoke else CHOICE_DRAWS
    rows: list[dict[str, Any]] = []
    todo = [(size, ratio) for size in sizes for ratio in RATIOS]
    kappa = dual_only_dimension(DIM, RANK)
    with watch.progress(len(todo), "calibration", "cells") as bar:
        for done, (size, ratio) in enumerate(todo, 1):
            found = kept(
                folder / f"risks-{size}-{ratio:g}.json",
                lambda size=size, ratio=ratio: risks(size, ratio, risk_draws),
            )
            share = kept(
                folder / f"choice-{ratio:g}.json",
                lambda ratio=ratio: share_dual(ratio, choice_draws),
            )
            limits = local_risks(DIM, RANK, signal=ratio * float(kappa))
            power = sure_power(kappa, signal=ratio * float(kappa))
            rows.append(
                {"n": size, "ratio": ratio, **found, "prob_dual": share}
                | {"shared_limit": float(limits.shared), "dual_limit": float(limits.dual)}
                | {"prob_limit": float(power)}
            )
            bar.update(done, f"n {size}, ratio {ratio:g}")
    return rows


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draws both risks over their limits against the sample size, a panel a family."""
    parts = []
    for family in ("shared", "dual"):
        lines: dict[str, list[Point]] = {}
        for row in rows:
            share = row[f"{family}_risk"] / row[f"{family}_limit"]
            lines.setdefault(f"ratio {row['ratio']:g}", []).append(Point(row["n"], share - 1))
        parts.append(Panel(f"{family} risk", lines))
    panels(
        parts,
        path,
        title="Local risks against their limits",
        x="n",
        y="risk / limit - 1",
        octaves=True,
    )
