"""Pictures of comparisons, as PNG files whose bytes repeat. matplotlib is imported when used."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from jaxtyping import Float, Num

from dive_jax.report import style
from dive_jax.report.plots import save
from dive_jax.report.style import End
from dive_jax.report.tables import cell

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

History: TypeAlias = Mapping[str, Num[np.ndarray, "_epochs _seeds"]]  # Lengths may differ.

NAMES = {
    "ndcg@10": "nDCG@10",
    "recall@10": "Recall@10",
    "unseen": "nDCG@10, unseen documents",
    "active_ratio": "active triplets (share)",
}
"""How people read the keys of tables and histories."""

LEADS = {"greatest_lead": "greatest", "least_lead": "least"}

_ENERGY = "_energy"
_BAR, _PANEL, _ACROSS = 0.27, 3.0, 3
_WIDE, _HIGH, _INSIDE = 7.2, 4.4, 3.5


def _pair(value: Any) -> tuple[float, float]:
    """Returns mean and deviation; NaN and 0 for what is missing."""
    mean, deviation = value if isinstance(value, tuple) else (value, None)
    spread = 0.0 if deviation is None or math.isnan(deviation) else float(deviation)
    return math.nan if mean is None else float(mean), spread


def bars(
    rows: Sequence[Mapping[str, Any]],
    path: Path,
    *,
    title: str,
    measure: str = "ndcg@10",
    reference: str = "frozen",
) -> None:
    """Draws a bar a method, as given from top to bottom, and a panel a dataset.

    Args:
      rows: What a table of results holds: "method", the measure as number, (mean, deviation) or
        None, and "dataset" where there are several.
      path: PNG file; written aside first, then renamed.
      title: A line above all panels.
      measure: Key of the measure.
      reference: Method whose mean is a dashed line through its panel.

    Raises:
      ValueError: If there is no row, or a method twice in one dataset.
    """
    if not rows:
        raise ValueError("bars: wanted at least one row, got none")
    methods = list(dict.fromkeys(row["method"] for row in rows))
    panels: dict[str, dict[str, Any]] = {}
    for row in rows:
        panels.setdefault(row.get("dataset", ""), {})[row["method"]] = _pair(row.get(measure))
    if len(rows) != sum(map(len, panels.values())):
        raise ValueError("bars: wanted one row a method and dataset, got some twice")
    tops = [sum(pair) for values in panels.values() for pair in values.values()]
    top = max([each for each in tops if not math.isnan(each)], default=1.0)
    across = min(len(panels), _ACROSS)
    down = -(-len(panels) // across)
    height = _BAR * len(methods) + 0.7
    figure = style.new_figure(1.6 + across * (_PANEL + 1.1), down * height + 0.4)
    axes = figure.subplots(down, across, squeeze=False, sharey=True)
    for axis, (dataset, values) in zip(axes.flat, panels.items(), strict=False):
        pairs = [values.get(method, (math.nan, 0.0)) for method in methods]
        _bar_panel(axis, methods, pairs, reference)
        axis.set_xlim(0, 1.05 * max(top, 1e-9))
        style.dress(axis, title=dataset if len(panels) > 1 else "", x=NAMES.get(measure, measure))
        axis.grid(visible=False, axis="y")
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    figure.suptitle(title, fontsize=11, color=style.INK)
    save(figure, path)


def _bar_panel(
    axis: "Axes", methods: Sequence[str], pairs: Sequence[tuple[float, float]], reference: str
) -> None:
    """Draws one dataset; the best method is dark, the numbers stand in a column on the right."""
    means, deviations = np.array(pairs).T
    places, known = np.arange(len(methods)), ~np.isnan(means)
    rivals = known & (np.array(methods) != reference)
    best = means[rivals].max(initial=-np.inf)
    colours = np.where(rivals & (means == best), style.MEAN, style.PALE)
    colours[np.array(methods) == reference] = style.GREY
    axis.barh(places[known], means[known], height=0.72, color=colours[known].tolist())
    some = known & (deviations > 0)
    whiskers = {"fmt": "none", "ecolor": style.INK, "elinewidth": 1, "capsize": 2}
    axis.errorbar(means[some], places[some], xerr=deviations[some], **whiskers)
    text: dict[str, Any] = {"color": style.INK, "verticalalignment": "center"}
    above, beside = axis.get_xaxis_transform(), axis.get_yaxis_transform()
    for at in means[known & (np.array(methods) == reference)]:
        axis.axvline(at, color=style.INK, linewidth=1, linestyle="--")
        axis.text(at, 1.03, reference, transform=above, fontsize=7, ha="center", **text)
    for place, pair in enumerate(pairs):
        axis.text(1.03, place, cell(pair, 4), transform=beside, fontsize=8, **text)
    axis.set_yticks(places, methods)
    axis.set_ylim(len(methods) - 0.4, -0.6)


def _one(title: str, x: str, key: str) -> "tuple[Figure, Axes]":
    """Returns a figure of one pair of axes, whose y axis shows what `key` names."""
    figure = style.new_figure(_WIDE, _HIGH)
    axis = figure.subplots()
    style.dress(axis, title=title, x=x, y=NAMES.get(key, key.replace("_", " ")))
    return figure, axis


def curves(
    histories: Mapping[str, History], column: str, path: Path, *, title: str, log: bool = False
) -> None:
    """Draws one logged column by epoch, a line a method: its mean over seeds, and their range.

    Args:
      histories: Method -> logged values, one row an epoch and one column a seed. Methods without
        the column are left out; their numbers of epochs may differ.
      column: Which column.
      path: PNG file; written aside first, then renamed.
      title: A line above.
      log: Whether the values stand on a logarithmic axis; those of 0 or less are then left out.

    Raises:
      ValueError: If no history holds the column, with at least one epoch.
    """
    drawn = {
        name: np.asarray(history[column], np.float64)
        for name, history in histories.items()
        if column in history and len(history[column])
    }
    if not drawn:
        raise ValueError(f"curves: wanted a history with the column {column!r}, got none")
    figure, axis = _one(title, "epoch", column)
    style.named_lines(axis, drawn, _INSIDE, log=log)
    save(figure, path)


def width_curves(
    points: Mapping[str, Sequence[tuple[int, float, float]]],
    full: float,
    path: Path,
    *,
    title: str,
    measure: str = "ndcg@10",
) -> None:
    """Draws quality against width, a line a method, and the frozen vectors' as a dashed line.

    Args:
      points: Method -> (dim, mean, deviation over seeds), in any order.
      full: The frozen vectors' mean.
      path: PNG file; written aside first, then renamed.
      title: A line above.
      measure: Key of the measure.

    Raises:
      ValueError: If there is no point.
    """
    figure, axis = _one(title, "width kept", measure)
    ends = _by_size(axis, points)
    axis.axhline(full, color=style.INK, linewidth=1, linestyle="--")
    ends.append(End(axis.get_xlim()[1], full, f"frozen {full:.3f}", style.INK))
    style.name_ends(axis, ends, _INSIDE)
    save(figure, path)


def bytes_curves(
    points: Mapping[str, Sequence[tuple[float, float]]],
    path: Path,
    *,
    title: str,
    measure: str = "ndcg@10",
) -> None:
    """Draws quality against the bytes that one vector takes, a line a label.

    Args:
      points: Label -> (bytes a vector, value), in any order.
      path: PNG file; written aside first, then renamed.
      title: A line above.
      measure: Key of the measure.

    Raises:
      ValueError: If there is no point.
    """
    figure, axis = _one(title, "bytes a vector", measure)
    even = {name: [(size, value, 0.0) for size, value in each] for name, each in points.items()}
    style.name_ends(axis, _by_size(axis, even), _INSIDE)
    save(figure, path)


def _by_size(axis: "Axes", points: Mapping[str, Sequence[tuple[float, float, float]]]) -> list[End]:
    """Draws (size, mean, deviation), a line a name, over a logarithmic axis; returns the ends."""
    drawn = {name: sorted(each) for name, each in points.items() if each}
    if not drawn:
        raise ValueError(f"points: wanted at least one, got none for {list(points)}")
    ends = []
    look: dict[str, Any] = {"linewidth": 1.3, "markersize": 4, "elinewidth": 0.9, "capsize": 2}
    for index, (name, each) in enumerate(drawn.items()):
        sizes, means, deviations = np.array(each).T
        spread = deviations if deviations.any() else None
        colour, marker = style.colour(index), style.marker(index)
        axis.errorbar(sizes, means, yerr=spread, color=colour, marker=marker, **look)
        ends.append(End(sizes[-1], means[-1], name, colour))
    style.octaves(axis, [size for each in drawn.values() for size, _, _ in each])
    return ends


def dynamics(
    history: History,
    fitted: Float[np.ndarray, " epochs"],
    path: Path,
    *,
    title: str,
    below: int | None = None,
    margin: float | None = None,
) -> None:
    """Draws how training falls silent: active ratio with its fit, losses, energies and leads.

    Args:
      history: Logged values by column, one row an epoch and one column a seed. Each of the four
        panels is drawn if its columns are there: "active_ratio"; losses; "<term>_energy", squared
        gradient norms of the weighted terms; "least_lead" and "greatest_lead", in cosine units.
      fitted: The fitted active ratio of each epoch.
      path: PNG file; written aside first, then renamed.
      title: A line above all panels.
      below: First epoch under a tenth, counted from 1; None if there is none.
      margin: Wanted lead, drawn as a dashed line.

    Raises:
      ValueError: If the history has no active ratio, or no epoch.
    """
    if not len(history.get("active_ratio", ())):
        raise ValueError(f"dynamics: wanted the column 'active_ratio', got {list(history)}")
    figure = style.new_figure(2 * _PANEL + 2.2, 2 * _PANEL)
    axes = figure.subplots(2, 2)
    _silence(axes[0, 0], np.asarray(history["active_ratio"]), fitted, below)
    terms = sorted(name.removesuffix(_ENERGY) for name in history if name.endswith(_ENERGY))
    energies = {each + _ENERGY: each for each in terms}
    parts = (
        (axes[0, 1], "Losses", "mean, before its weight", True, {each: each for each in terms}),
        (axes[1, 0], "Gradient energies", "squared norm, weighted", True, energies),
        (axes[1, 1], "Leads of the positives", "cosine units", False, LEADS),
    )
    for axis, heading, unit, log, names in parts:
        columns = {to: np.asarray(history[key]) for key, to in names.items() if key in history}
        style.dress(axis, title=heading, y=unit, x="epoch")
        style.named_lines(axis, columns, _PANEL - 0.6, log=log)
        axis.set_visible(bool(columns))
    if margin is not None:
        axes[1, 1].axhline(margin, color=style.INK, linewidth=1, linestyle="--")
        axes[1, 1].text(1, margin, f"margin {margin:g}", fontsize=7, color=style.INK, va="bottom")
    figure.suptitle(title, fontsize=11, color=style.INK)
    save(figure, path)


def _silence(
    axis: "Axes",
    ratio: Num[np.ndarray, "epochs seeds"],
    fitted: Float[np.ndarray, " epochs"],
    below: int | None,
) -> None:
    """Draws the active ratio in percent, its fit, and where it falls under a tenth."""
    style.dress(axis, title="Active triplets", y="inside the margin (%)", x="epoch")
    style.seed_line(axis, 100 * ratio, style.MEAN, label="measured")
    epochs = np.arange(1, len(fitted) + 1)
    axis.plot(epochs, 100 * fitted, "--", color=style.SEED, linewidth=1.5, label="fitted decay")
    axis.axhline(10, color=style.INK, linewidth=0.8, linestyle=":")
    told = "never under 10 %" if below is None else f"first under 10 % in epoch {below}"
    axis.set_title(told, loc="right", fontsize=8, color=style.INK)
    axis.set_xlim(0, len(ratio))
    axis.set_ylim(0, 100)
    axis.legend(fontsize=8, frameon=False, labelcolor=style.INK)
