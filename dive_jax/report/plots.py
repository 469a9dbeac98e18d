"""Pictures of training, as PNG files whose bytes repeat. matplotlib is imported when used."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Num

from dive_jax import files

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Panel(NamedTuple):
    """One curve's place in the figure.

    Attributes:
      key: Column of the history.
      title: What is shown, for people.
      unit: Label of the vertical axis.
      last: Format of the last epoch's mean.
      scale: Factor from the column to the unit.
      top: Upper end of the vertical axis; None follows the values.
      from_zero: Whether the vertical axis starts at 0.
    """

    key: str
    title: str
    unit: str
    last: str = "{:.3g}"
    scale: float = 1.0
    top: float | None = None
    from_zero: bool = True


PANELS = (
    Panel("active_ratio", "Active triplets", "inside the margin (%)", "{:.1f} %", 100.0, 100.0),
    Panel("triplet", "Triplet loss", "mean shortfall (cosine units)"),
    Panel("view", "Head contrast", "NT-Xent (nats), before its weight", from_zero=False),
    Panel("geometry", "Geometry loss", "smooth L1 of cosines, before its weight"),
)

_SIZE = 3.6, 2.9  # One panel, in inches.
_DPI = 150
_MEAN = "#174a87"
_SEED = "#f0a04b"
_INK = "#333333"
_FAINT = "#dddddd"


def training_curves(
    history: Mapping[str, Num[np.ndarray, "epochs seeds"]], path: Path, *, title: str = ""
) -> None:
    """Draws active ratio and loss terms by epoch: a thin line a seed, a thick one for the mean.

    Args:
      history: Logged values by column, one row an epoch and one column a seed; the columns of
        `PANELS` that it holds are drawn.
      path: PNG file; written aside first, then renamed.
      title: A line above all panels.

    Raises:
      ValueError: If the history holds none of the columns, or no epoch.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = [panel for panel in PANELS if panel.key in history and len(history[panel.key])]
    if not panels:
        raise ValueError(
            f"a history to draw: wanted one of the columns {[each.key for each in PANELS]} with at "
            f"least one epoch, got {list(history)}"
        )
    columns = 2 if len(panels) > 1 else 1
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(columns * _SIZE[0], rows * _SIZE[1]), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis, panel in zip(axes, panels, strict=False):
        _draw(axis, panel, np.asarray(history[panel.key], np.float64) * panel.scale)
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    for axis in axes[max(0, len(panels) - columns) : len(panels)]:
        axis.set_xlabel("epoch", fontsize=9, color=_INK)
    axes[0].legend(fontsize=8, frameon=False, labelcolor=_INK)
    if title:
        figure.suptitle(title, fontsize=11, color=_INK)
    save(figure, path)


def _draw(axis: "Axes", panel: Panel, values: Num[np.ndarray, "epochs seeds"]) -> None:
    """Draws one panel and tells the last epoch's mean as a number."""
    from matplotlib.ticker import MaxNLocator

    count, seeds = values.shape
    epochs, mean = np.arange(1, count + 1), values.mean(axis=1)
    dots: dict[str, Any] = {"marker": "o", "markersize": 4} if count == 1 else {}
    dots["clip_on"] = False
    if seeds > 1:
        axis.plot(epochs, values[:, 0], color=_SEED, linewidth=0.9, label="each seed", **dots)
        axis.plot(epochs, values[:, 1:], color=_SEED, linewidth=0.9, **dots)
    label = f"mean of {seeds} seeds" if seeds > 1 else "one seed"
    axis.plot(epochs, mean, color=_MEAN, linewidth=1.6, label=label, **dots)
    axis.set_title(panel.title, loc="left", fontsize=10, color=_INK)
    last = f"{panel.last.format(mean[-1])} at epoch {count}"
    axis.set_title(last, loc="right", fontsize=8, color=_INK)
    axis.set_ylabel(panel.unit, fontsize=8, color=_INK)
    if panel.from_zero:
        axis.set_ylim(0, panel.top or 1.05 * np.nanmax(values, initial=1e-9))
    axis.set_xlim(0, count)
    axis.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axis.tick_params(labelsize=8, colors=_INK)
    axis.grid(color=_FAINT, linewidth=0.6)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)


def save(figure: "Figure", path: Path) -> None:
    """Writes a figure as PNG, whole or not at all; the same figure gives the same bytes."""
    with files.replacing(path) as aside:
        figure.savefig(aside, format="png", dpi=_DPI, metadata={"Software": None})
