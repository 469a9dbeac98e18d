"""Is the evidence for dual of the right size? Raw plug-in asymmetry against the corrected score."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dive_jax.operators import asymmetry, cars
from dive_jax.options import StudyOptions
from dive_jax.report.line_plots import Panel, Point, panels
from dive_jax.report.tables import Column
from dive_jax.studies import two_view
from dive_jax.studies.cells import Watch
from dive_jax.studies.keeping import kept
from dive_jax.studies.operator_losses import RANKS, collected, losses, moment_of
from dive_jax.studies.triples import Triples, sizes

SIMULATED = "simulation"
BINS = 10

COLUMNS = (
    Column("data", "data", align="left"),
    Column("estimate", "estimate", align="left"),
    Column("decile", "decile"),
    Column("fits", "fits"),
    Column("estimated", "estimated gain", 4),
    Column("held_out", "held-out gain", 4),
)
"""Columns of the table: means of a tenth of the fits, ordered by the estimate."""


class _Fit(NamedTuple):
    """A sample of triples, and the moment that its fits are held against."""

    name: str
    sample: Triples
    target: Any


def _estimates(fit: _Fit, seed: int) -> dict[str, Any]:
    """Returns raw and corrected estimates and the held-out gain of dual, by rank.

    All are in units of the squared norm of the target.
    """
    moment, size = moment_of(fit.sample), float(jnp.sum(fit.target**2))
    ranks = tuple(rank for rank in RANKS if rank <= moment.shape[0])
    raw = jax.device_get(asymmetry(moment, ranks=ranks))
    sides = (jnp.asarray(each) for each in fit.sample[1:])
    corrected = jax.device_get(cars(*sides, ranks=ranks, seed=seed).score)
    found = losses(moment, fit.target, ranks)
    return {
        "raw": (raw / size).tolist(),
        "corrected": (corrected / size).tolist(),
        "held_out": (np.array(found.shared) - np.array(found.dual)).tolist(),
    }


def _simulated(smoke: bool) -> Iterator[_Fit]:
    """Yields samples of two views at several angles; the target is the moment itself."""
    angles = two_view.ANGLES[::3] if smoke else two_view.ANGLES
    counts = two_view.SIZES[:1] if smoke else two_view.SIZES
    for angle in angles:
        for seed in range(1 if smoke else two_view.SEEDS):
            for count in counts:
                name = f"{angle:g}-{seed}-{count}"
                yield _Fit(name, *two_view.sample(angle, count, seed))


def _real(options: StudyOptions) -> Iterator[tuple[str, _Fit]]:
    for each in collected(options):
        target, count = moment_of(each.test), len(each.train.ids)
        for seed in options.seeds:
            order = np.random.default_rng(seed).permutation(count)
            for size in sizes(count)[: 2 if options.smoke else None]:
                name = f"{each.encoder}-{seed}-{size}"
                yield each.dataset, _Fit(name, each.train.take(order[:size]), target)


def deciles(
    estimated: np.ndarray, held_out: np.ndarray, bins: int = BINS
) -> list[tuple[int, float, float]]:
    """Returns fits, mean estimate and mean held-out gain of each tenth, least estimates first.

    Example:
      >>> deciles(np.array([2.0, 1.0]), np.array([5.0, 6.0]), 2)
      [(1, 1.0, 6.0), (1, 2.0, 5.0)]
    """
    order = np.argsort(estimated, kind="stable")
    parts = [part for part in np.array_split(order, bins) if len(part)]
    return [
        (len(part), float(estimated[part].mean()), float(held_out[part].mean())) for part in parts
    ]


def measure(options: StudyOptions, folder: Path, watch: Watch) -> list[dict[str, Any]]:
    """Returns a row a kind of data, estimate and decile; finished fits are read.

    Args:
      options: Datasets, encoders and seeds; --smoke takes a few small samples.
      folder: Where finished fits lie.
      watch: Where to tell how it goes.
    """
    found: dict[str, list[dict[str, Any]]] = {SIMULATED: [], "embeddings": []}
    with watch.progress(2, "estimates", "kinds of data") as bar:
        for fit in _simulated(options.smoke):
            path = folder / SIMULATED / f"{fit.name}.json"
            found[SIMULATED].append(kept(path, lambda fit=fit: _estimates(fit, 0)))
        bar.update(1, SIMULATED)
        for dataset, fit in _real(options):
            path = folder / dataset / f"{fit.name}.json"
            found["embeddings"].append(kept(path, lambda fit=fit: _estimates(fit, 0)))
        bar.update(2, "embeddings")
    rows = []
    for data, fits in found.items():
        held_out = np.concatenate([each["held_out"] for each in fits])
        for estimate in ("raw", "corrected"):
            values = np.concatenate([each[estimate] for each in fits])
            for number, (count, mean, gain) in enumerate(deciles(values, held_out), 1):
                row = {"data": data, "estimate": estimate, "decile": number, "fits": count}
                rows.append(row | {"estimated": mean, "held_out": gain})
    return rows


def told(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns the root mean squared distance of estimate and held-out gain over the deciles."""
    found: dict[str, dict[str, float]] = {}
    for data in dict.fromkeys(row["data"] for row in rows):
        for estimate in ("raw", "corrected"):
            gaps = [
                row["estimated"] - row["held_out"]
                for row in rows
                if (row["data"], row["estimate"]) == (data, estimate)
            ]
            found.setdefault(data, {})[estimate] = float(np.sqrt(np.mean(np.square(gaps))))
    return {"calibration_error": found}


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draws held-out gain and estimate by decile, a panel a kind of data and estimate."""
    parts = []
    for key in dict.fromkeys((row["data"], row["estimate"]) for row in rows):
        own = [row for row in rows if (row["data"], row["estimate"]) == key]
        lines = {
            "estimated": [Point(row["decile"], row["estimated"]) for row in own],
            "held out": [Point(row["decile"], row["held_out"]) for row in own],
        }
        parts.append(Panel(", ".join(key), lines))
    panels(
        parts,
        path,
        title="Gain of the dual fit: estimated and held out",
        x="decile of the estimate",
        y="share of the target's squared norm",
    )
