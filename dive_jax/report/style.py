"""How every picture looks: colours, axes, and names at the ends of lines. Nothing heavy here."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float, Num

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#333333"
FAINT = "#dddddd"
MEAN = "#174a87"
SEED = "#f0a04b"
PALE = "#9dbbdd"
GREY = "#b5b5b5"
PALETTE = (
    "#174a87",
    "#e07b1a",
    "#2a9d6f",
    "#c2334d",
    "#7b53b5",
    "#8c6239",
    "#d66bb0",
    "#1fa3b8",
    "#a3a51f",
    "#6b6b6b",
    "#0b5d3b",
    "#f0a04b",
    "#6f9bd6",
    "#e58a97",
)
MARKERS = "osD^vPX"

_POINTS = 72
_EARLY, _SIDE = 0.95, 0.03
_LINE_HEIGHT = 1.25
_TICK_GAP, _TICKS = 0.3, 20  # In octaves, and the most labels that fit.


class End(NamedTuple):
    """Where a line ends, in data units, and what to write beside it."""

    x: float
    y: float
    text: str
    colour: str


def new_figure(width: float, height: float) -> "Figure":
    """Returns an empty figure of a size in inches that needs no screen."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def colour(index: int) -> str:
    """Returns the colour of the line drawn as number `index`; they repeat after 14."""
    return PALETTE[index % len(PALETTE)]


def marker(index: int) -> str:
    """Returns the marker of the line drawn as number `index`; another period than the colours'."""
    return MARKERS[index % len(MARKERS)] if index < len(PALETTE) else "*"


def dress(axis: "Axes", *, title: str = "", x: str = "", y: str = "") -> None:
    """Gives axes their grid, fonts and names."""
    axis.set_title(title, loc="left", fontsize=10, color=INK)
    axis.set_xlabel(x, fontsize=9, color=INK)
    axis.set_ylabel(y, fontsize=9, color=INK)
    axis.tick_params(labelsize=8, colors=INK)
    axis.grid(color=FAINT, linewidth=0.6)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)


def seed_line(
    axis: "Axes",
    values: Num[np.ndarray, "epochs seeds"],
    colour: str,
    *,
    log: bool = False,
    label: str | None = None,
) -> Float[np.ndarray, " epochs"]:
    """Draws the mean over seeds and, pale, their range; returns the mean."""
    epochs, mean = np.arange(1, len(values) + 1), values.mean(axis=1)
    low, high = values.min(axis=1), values.max(axis=1)
    if log:  # A seed of 0 counts in the mean, but has no place in the range.
        mean = np.where(mean > 0, mean, np.nan)
        low = np.where(low > 0, low, mean)
    if values.shape[1] > 1:
        axis.fill_between(epochs, low, high, color=colour, alpha=0.2, linewidth=0)
    dots: dict[str, Any] = {"marker": "o", "markersize": 4} if len(values) == 1 else {}
    axis.plot(epochs, mean, color=colour, linewidth=1.5, label=label, **dots)
    return mean


def named_lines(
    axis: "Axes",
    columns: Mapping[str, Num[np.ndarray, "_epochs _seeds"]],
    height: float,
    *,
    log: bool,
) -> None:
    """Draws a line a column by epoch, named at its end.

    Args:
      axis: Where.
      columns: Name -> values, one row an epoch and one column a seed.
      height: Height of the axes in inches, about.
      log: Whether the y axis is logarithmic.
    """
    ends = []
    for index, (name, values) in enumerate(columns.items()):
        mean = seed_line(axis, values, colour(index), log=log)
        shown = np.flatnonzero(~np.isnan(mean))
        if len(shown):
            last = int(shown[-1])
            ends.append(End(last + 1, float(mean[last]), name, colour(index)))
    if log and ends:
        log_scale(axis)
    axis.set_xlim(0, max(map(len, columns.values()), default=1))
    name_ends(axis, ends, height)


def log_scale(axis: "Axes") -> None:
    """Makes the y axis logarithmic, with plain numbers at its ticks, more where it spans little."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_yscale("log")
    low, high = axis.get_ylim()
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 50 * low else (1,)))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.yaxis.set_minor_formatter(NullFormatter())


def octaves(axis: "Axes", values: Sequence[float]) -> None:
    """Puts a base-2 logarithmic x axis over values, with ticks at those that have room."""
    low, high = math.log2(min(values)), math.log2(max(values))
    ticks: list[float] = []
    for value in sorted(set(values), reverse=True):
        if not ticks or math.log2(ticks[-1] / value) > max(_TICK_GAP, (high - low) / _TICKS):
            ticks.append(value)
    axis.set_xscale("log", base=2)
    pad = _SIDE * (high - low) or 0.5
    axis.set_xlim(2 ** (low - pad), 2 ** (high + pad))
    axis.set_xticks(ticks, [f"{each:,}" for each in ticks])
    axis.minorticks_off()


def name_ends(axis: "Axes", ends: Sequence[End], height: float, *, size: float = 8) -> None:
    """Writes names to the right of the axes, beside the ends of their lines, none over another.

    A line that ends early is dotted on to the edge.

    Args:
      axis: Axes whose limits are set.
      ends: Ends of the lines, in any order.
      height: Height of the axes in inches, about.
      size: Font size in points.
    """
    to_share, edge = axis.transScale + axis.transLimits, axis.get_xlim()[1]
    shares = np.array([to_share.transform((each.x, each.y)) for each in ends]).reshape(-1, 2)
    order = np.argsort(shares[:, 1], kind="stable")
    gap = size * _LINE_HEIGHT / (height * _POINTS)
    for index, place in zip(order, spaced(shares[order, 1], gap), strict=True):
        end, early = ends[index], shares[index, 0] < _EARLY
        line = {"arrowstyle": "-", "color": end.colour, "linewidth": 0.6, "shrinkA": 0}
        if early:
            axis.plot([end.x, edge], [end.y, end.y], ":", color=end.colour, linewidth=0.8)
        axis.annotate(
            end.text,
            (edge if early else end.x, end.y),
            xytext=(1.03, float(place)),
            textcoords="axes fraction",
            color=end.colour,
            fontsize=size,
            verticalalignment="center",
            annotation_clip=False,
            arrowprops=line | {"shrinkB": 0, "relpos": (0, 0.5)},
        )


def spaced(places: Float[np.ndarray, " names"], gap: float) -> Float[np.ndarray, " names"]:
    """Moves rising places apart, as little as possible in the squares, within 0 to 1.

    Example:
      >>> spaced(np.array([0.5, 0.5, 0.9]), 0.25).tolist()
      [0.375, 0.625, 0.9]
    """
    # Less i * gap each, places need only not fall: pool those that do into their mean.
    pools: list[tuple[float, int]] = []
    for index, place in enumerate(places):
        total, count = float(place) - index * gap, 1
        while pools and pools[-1][0] / pools[-1][1] > total / count:
            before = pools.pop()
            total, count = total + before[0], count + before[1]
        pools.append((total, count))
    level = np.repeat([total / count for total, count in pools], [count for _, count in pools])
    room = max(0.0, 1 - (len(places) - 1) * gap)
    return np.clip(level, 0, room) + gap * np.arange(len(places))
