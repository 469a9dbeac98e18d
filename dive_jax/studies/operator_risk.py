"""Held-out losses of both families as the sample grows: when does the dual one overtake?"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dive_jax.options import StudyOptions
from dive_jax.report.line_plots import Panel, Point, panels
from dive_jax.report.tables import Column
from dive_jax.studies.cells import Watch
from dive_jax.studies.keeping import kept
from dive_jax.studies.operator_losses import RANKS, Collected, collected, losses, moment_of
from dive_jax.studies.triples import sizes

COLUMNS = (
    Column("dataset", "dataset", align="left"),
    Column("encoder", "encoder", align="left"),
    Column("rank", "rank"),
    Column("slope", "slope of L_s - L_d on log2 n", 4),
    Column("positive", "positive slopes"),
    Column("seeds", "of"),
    Column("crosses_at", "dual better from n", 0),
)
"""Columns of the table; the slope is mean and deviation over seeds."""


def slope(counts: Sequence[int], gaps: Sequence[float]) -> float:
    """Returns the least-squares slope of L_s - L_d on log2 n.

    Source:
      arXiv 2609.32488, operator risk; the regression is this library's choice.

    Example:
      >>> round(slope([32, 64, 128], [0.0, 0.5, 1.0]), 12)
      0.5
    """
    return float(np.polyfit(np.log2(counts), gaps, 1)[0])


def _gaps(each: Collected, folder: Path, seed: int, counts: Sequence[int]) -> np.ndarray:
    """Returns L_s - L_d by sample size and rank; nested samples of one seed."""
    target = moment_of(each.test)
    order = np.random.default_rng(seed).permutation(len(each.train.ids))
    rows = []
    for count in counts:
        found = kept(
            folder / f"{seed}-{count}.json",
            lambda rows=order[:count]: losses(
                moment_of(each.train.take(rows)), target, RANKS
            )._asdict(),
        )
        rows.append(np.array(found["shared"]) - np.array(found["dual"]))
    return np.array(rows)


def measure(options: StudyOptions, folder: Path, watch: Watch) -> list[dict[str, Any]]:
    """Returns a row a dataset, encoder and rank; finished fits are read.

    Args:
      options: Datasets, encoders and seeds; --smoke takes the two smallest samples.
      folder: Where finished fits lie.
      watch: Where to tell how it goes.
    """
    rows: list[dict[str, Any]] = []
    for each in collected(options):
        counts = sizes(len(each.train.ids))
        counts = counts[:2] if options.smoke else counts
        place, by_seed = folder / each.dataset / each.encoder, []
        with watch.progress(len(options.seeds), f"losses on {each.dataset}", "seeds") as bar:
            for done, seed in enumerate(options.seeds, 1):
                by_seed.append(_gaps(each, place, seed, counts))
                bar.update(done, "")
        gaps = np.stack(by_seed)  # [seeds, sizes, ranks]
        for index, rank in enumerate(RANKS):
            slopes = [slope(counts, one[:, index].tolist()) for one in gaps]
            means = gaps[:, :, index].mean(axis=0)
            over = np.flatnonzero(means > 0)
            spread = float(np.std(slopes, ddof=1)) if len(slopes) > 1 else 0.0
            rows.append(
                {"dataset": each.dataset, "encoder": each.encoder, "rank": rank}
                | {"slope": (float(np.mean(slopes)), spread), "slopes": slopes}
                | {"positive": sum(value > 0 for value in slopes), "seeds": len(slopes)}
                | {"crosses_at": counts[over[0]] if over.size else None}
                | {"sizes": counts, "gaps": gaps[:, :, index].tolist()}
            )
    return rows


def told(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns how many slopes are positive, of how many."""
    positive, of = (sum(row[name] for row in rows) for name in ("positive", "seeds"))
    return {"positive_slopes": positive, "slopes": of}


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draws L_s - L_d against the sample size, a panel a dataset and encoder, a line a rank."""
    parts = []
    for name in dict.fromkeys((row["dataset"], row["encoder"]) for row in rows):
        lines = {}
        for row in rows:
            if (row["dataset"], row["encoder"]) == name:
                gaps = np.array(row["gaps"])
                lines[f"rank {row['rank']}"] = [
                    Point(n, float(gaps[:, i].mean()), float(gaps[:, i].std()))
                    for i, n in enumerate(row["sizes"])
                ]
        parts.append(Panel(", ".join(name), lines))
    panels(
        parts,
        path,
        title="Above 0 the dual fit is nearer to the test moment",
        x="training queries",
        y="L shared - L dual",
        octaves=True,
    )
