"""The pictures of the studies."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dive_jax.metrics.decay import first_below, fit_decay
from dive_jax.options import TrainOptions
from dive_jax.report.compare_plots import bars, bytes_curves, curves, dynamics, width_curves
from dive_jax.studies import quantising
from dive_jax.studies.histories import read_history
from dive_jax.studies.rows import Measured

_SILENT = 0.1
"""Active ratio below which training counts as silent."""


def _history(table: Measured, dataset: str, label: str) -> dict[str, np.ndarray]:
    at = table.folders[dataset][label]
    return read_history(at / "histories" / f"{table.rows[label].method}.csv")


def fits(table: Measured, options: TrainOptions) -> dict[str, Any]:
    """Returns dataset -> what its training says of the active ratio, means over the seeds.

    Args:
      table: Of the study "dynamics".
      options: Its options.
    """
    told: dict[str, Any] = {}
    for dataset in table.datasets:
        history = _history(table, dataset, options.method)
        if "active_ratio" not in history:
            continue
        ratio = np.clip(np.mean(history["active_ratio"], axis=1), 0.0, 1.0)
        decay = fit_decay(ratio)
        told[dataset] = {
            "first_epoch_below_tenth": first_below(ratio, _SILENT),
            "last_active_ratio": float(ratio[-1]),
            **decay._asdict(),
        }
    return {"dynamics": told}


def _trajectories(name: str, table: Measured, folder: Path) -> None:
    """Draws the active ratio, and the losses, of a dataset's trained rows."""
    for dataset in table.datasets:
        histories = {label: _history(table, dataset, label) for label in table.rows}
        for column, file in (("active_ratio", "curves.png"), ("loss", "losses.png")):
            if any(column in each for each in histories.values()):
                place = folder / name / Path(dataset) / file
                title = f"{dataset}: {'active triplets' if column == 'active_ratio' else 'loss'}"
                curves(histories, column, place, title=title, log=column == "loss")


def _widths(metrics: Mapping[str, Any], table: Measured, folder: Path) -> None:
    methods: dict[str, list[tuple[int, float, float]]] = {}
    sizes: dict[str, list[tuple[float, float]]] = {}
    full = table.means["frozen"]["ndcg@10"]["mean"] if "frozen" in table.means else None
    for label, entry in table.means.items():
        method, found = table.rows[label].method, entry["ndcg@10"]
        if method != "frozen":
            methods.setdefault(method, []).append((entry["dim"], found["mean"], found["std"]))
        sizes.setdefault(method, []).append((entry["bytes"], found["mean"]))
    title = f"{', '.join(metrics['datasets'])}; {metrics['encoder']}"
    bytes_curves(sizes, folder / "widths.png", title=title)
    if full is not None and methods:
        place = folder / "widths" / "by_width.png"
        width_curves(methods, full, place, title=title)


def _dynamics(metrics: Mapping[str, Any], table: Measured, folder: Path) -> None:
    label = next(iter(table.rows))
    for number, (dataset, found) in enumerate(metrics["dynamics"].items()):
        history = _history(table, dataset, label)
        epochs = np.arange(len(history["active_ratio"]))
        fitted = found["rho0"] * np.exp(-found["beta"] * epochs) + found["rho_star"]
        places = [folder / "dynamics" / Path(dataset) / "dynamics.png"]
        for place in places + ([folder / "dynamics.png"] if not number else []):
            dynamics(
                history,
                fitted,
                place,
                title=f"{dataset}: {label}",
                below=found["first_epoch_below_tenth"],
                margin=table.rows[label].options.wanted_lead,
            )


def draw(
    name: str,
    metrics: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    table: Measured,
    folder: Path,
) -> None:
    """Draws a study: <name>.png, and what it has beside.

    Args:
      name: Which study.
      metrics: What its JSON file holds.
      rows: Its table.
      table: What was measured.
      folder: Where the pictures go.
    """
    if name == "widths":
        _widths(metrics, table, folder)
        return
    if name == "dynamics" and metrics["dynamics"]:
        _dynamics(metrics, table, folder)
        return
    title = f"{metrics['encoder']}, {metrics['full_dim']} to {metrics['dim']} wide"
    if metrics["protocol"] == "select":
        title += ", validation queries"
    shown = [row for row in rows if row["dataset"] != "mean"]
    bars(shown, folder / f"{name}.png", title=title)
    if name in ("compare", "ablation", "audit", "tuned"):
        _trajectories(name, table, folder)
    if any("quantised" in entry for entry in metrics["datasets"].values()):
        bytes_curves(
            quantising.points(metrics),
            folder / "quantised.png",
            title=f"{title}: float32, float16, int8, bits",
        )
