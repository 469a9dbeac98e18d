"""CARS against always shared and always dual: regret, accuracy and fold wins."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from dive_jax.operators import cars
from dive_jax.options import StudyOptions
from dive_jax.report.line_plots import Panel, Point, panels
from dive_jax.report.tables import Column
from dive_jax.studies.cells import Watch
from dive_jax.studies.keeping import kept
from dive_jax.studies.operator_losses import RANKS, collected, losses, moment_of
from dive_jax.studies.triples import Triples

FOLDS, FOLD_SEED, SAMPLE_SEED = 5, 20260923, 20260924
SMALLEST, LARGEST = 32, 4096
PROJECTED, PROJECTION_SEED = 256, 20260923
"""Width that CARS sees: one seeded orthonormal projection for both sides."""

RULES: tuple[str, ...] = ("shared", "dual", "cars")

COLUMNS = (
    Column("dataset", "dataset", align="left"),
    Column("encoder", "encoder", align="left"),
    Column("rule", "rule", align="left"),
    Column("regret", "regret", 4),
    Column("accuracy", "accuracy", 3),
    Column("wins", "fold wins"),
)
"""Columns of the table; means over the cells of a fold, then over folds."""


def folds(count: int) -> list[np.ndarray]:
    """Returns the rows of each fold, of rows sorted by query id.

    Source:
      arXiv 2609.32488, selection.
    """
    return np.array_split(np.random.default_rng(FOLD_SEED).permutation(count), FOLDS)


def nested(pool: Int[np.ndarray, " rows"], fold: int) -> list[np.ndarray]:
    """Returns nested samples of a fold's pool: doubling from 32, and the whole pool if it is small.

    Example:
      >>> [len(each) for each in nested(np.arange(100), 0)]
      [32, 64, 100]
    """
    order = pool[np.random.default_rng(SAMPLE_SEED + fold).permutation(len(pool))]
    sizes, size = [], SMALLEST
    while size <= min(len(pool), LARGEST):
        sizes.append(size)
        size *= 2
    if len(pool) <= LARGEST and len(pool) not in sizes:
        sizes.append(len(pool))
    return [order[:size] for size in sizes]


def projection(dim: int) -> Float[np.ndarray, "dim narrow"]:
    """Returns the seeded orthonormal projection that CARS sees vectors through."""
    narrow = min(PROJECTED, dim)
    noise = np.random.default_rng(PROJECTION_SEED).normal(size=(dim, narrow))
    return np.linalg.qr(noise)[0].astype(np.float32)


def _cell(sample: Triples, target: Any, narrow: np.ndarray, seed: int) -> dict[str, Any]:
    ranks = [rank for rank in RANKS if rank <= narrow.shape[1]]
    found = losses(moment_of(sample), target, ranks)
    small = (jnp.asarray(side @ narrow) for side in sample[1:])
    chosen = jax.device_get(cars(*small, ranks=ranks, seed=seed))
    return {
        "ranks": ranks,
        **found._asdict(),
        "score": chosen.score.tolist(),
        "cars": chosen.dual.tolist(),
    }


def _judged(cell: dict[str, Any]) -> dict[str, list[tuple[float, bool]]]:
    """Returns rule -> (regret, right) of every rank of a cell; a tie of losses is shared."""
    told: dict[str, list[tuple[float, bool]]] = {rule: [] for rule in RULES}
    for one, other, dual in zip(cell["shared"], cell["dual"], cell["cars"], strict=True):
        better = other < one
        for rule, takes in (("shared", False), ("dual", True), ("cars", dual)):
            told[rule].append(((other if takes else one) - min(one, other), takes == better))
    return told


def summary(cells: Sequence[Sequence[dict[str, Any]]]) -> dict[str, Any]:
    """Returns regret, accuracy and wins of each rule, overall and by fold.

    Args:
      cells: Fold -> its cells; each tells of its ranks the losses of both families, and CARS.

    Returns:
      "regret" and "accuracy": rule -> mean over the folds; "wins": rule -> folds of strictly lowest
      regret; "folds": the same by fold.

    Source:
      arXiv 2609.32488, selection.
    """
    by_fold = []
    for fold in cells:
        judged = [_judged(cell) for cell in fold]
        pairs = {rule: [pair for each in judged for pair in each[rule]] for rule in RULES}
        regret = {rule: float(np.mean([each[0] for each in pairs[rule]])) for rule in RULES}
        accuracy = {rule: float(np.mean([each[1] for each in pairs[rule]])) for rule in RULES}
        by_fold.append({"regret": regret, "accuracy": accuracy})
    wins = dict.fromkeys(RULES, 0)
    for fold in by_fold:
        least = min(fold["regret"].values())
        winners = [rule for rule in RULES if fold["regret"][rule] == least]
        if len(winners) == 1:
            wins[winners[0]] += 1
    means = {
        name: {rule: float(np.mean([fold[name][rule] for fold in by_fold])) for rule in RULES}
        for name in ("regret", "accuracy")
    }
    return {**means, "wins": wins, "folds": by_fold}


def measure(options: StudyOptions, folder: Path, watch: Watch) -> list[dict[str, Any]]:
    """Returns a row a dataset, encoder and rule; finished cells are read.

    Args:
      options: Datasets and encoders; --smoke takes samples of up to 64 triples.
      folder: Where finished cells lie.
      watch: Where to tell how it goes.
    """
    rows: list[dict[str, Any]] = []
    for each in collected(options):
        found = _measured(each.train, folder / each.dataset / each.encoder, options, watch)
        told = summary(found)
        for rule in RULES:
            row: dict[str, Any] = {"dataset": each.dataset, "encoder": each.encoder}
            row |= {"rule": rule}
            row |= {name: told[name][rule] for name in ("regret", "accuracy", "wins")}
            row["folds"] = [
                {name: fold[name][rule] for name in ("regret", "accuracy")}
                for fold in told["folds"]
            ]
            rows.append(row)
    return rows


def _measured(
    triples: Triples, folder: Path, options: StudyOptions, watch: Watch
) -> list[list[dict[str, Any]]]:
    narrow, parts = projection(triples.query.shape[1]), folds(len(triples.ids))
    found = []
    with watch.progress(FOLDS, f"selection on {folder.parent.name}", "folds") as bar:
        for fold, rows in enumerate(parts):
            target = moment_of(triples.take(rows))
            pool = np.sort(np.concatenate([each for n, each in enumerate(parts) if n != fold]))
            samples = nested(pool, fold)
            if options.smoke:
                samples = [each for each in samples if len(each) <= 2 * SMALLEST]
            found.append(
                [
                    kept(
                        folder / f"{fold}-{len(sample)}.json",
                        lambda s=sample, t=target: _cell(triples.take(s), t, narrow, FOLD_SEED),
                    )
                    for sample in samples
                ]
            )
            bar.update(fold + 1, "")
    return found


def told(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns "dataset, encoder" -> regret, accuracy and wins by rule."""
    found: dict[str, Any] = {}
    for row in rows:
        entry = found.setdefault(f"{row['dataset']}, {row['encoder']}", {})
        for name in ("regret", "accuracy", "wins"):
            entry.setdefault(name, {})[row["rule"]] = row[name]
    return {"selection": found}


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draws each fold's regret, a panel a dataset and encoder, a line a rule."""
    parts = []
    for name in dict.fromkeys((row["dataset"], row["encoder"]) for row in rows):
        lines = {
            row["rule"]: [Point(fold, each["regret"]) for fold, each in enumerate(row["folds"])]
            for row in rows
            if (row["dataset"], row["encoder"]) == name
        }
        parts.append(Panel(", ".join(name), lines))
    panels(parts, path, title="Regret of each rule", x="fold", y="mean regret")
