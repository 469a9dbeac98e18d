"""Lines of results against a size, an angle or a rank, as PNG files whose bytes repeat."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dive_jax.report import style
from dive_jax.report.plots import save
from dive_jax.report.style import End

_WIDE, _HIGH, _INSIDE, _ACROSS = 5.4, 3.8, 3.0, 3


class Point(NamedTuple):
    """Where a line passes: x, the mean there, and its deviation; 0 where there is none."""

    x: float
    mean: float
    deviation: float = 0.0


class Panel(NamedTuple):
    """One pair of axes.

    Attributes:
      title: A line above it.
      lines: Name -> points, in any order; lines without a finite point are left out.
    """

    title: str
    lines: Mapping[str, Sequence[Point]]


def panels(
    parts: Sequence[Panel],
    path: Path,
    *,
    title: str,
    x: str,
    y: str,
    octaves: bool = False,
    zero: bool = True,
) -> None:
    """Draws a panel each, with lines, their deviations as bands, and a line at zero.

    Args:
      parts: At least one.
      path: PNG file; written aside first, then renamed.
      title: A line above all panels.
      x: Name of the horizontal axis.
      y: Name of the vertical axis.
      octaves: Whether the horizontal axis is logarithmic to the base 2, ticks at the points.
      zero: Whether zero is drawn as a dashed line.

    Raises:
      ValueError: If there is no panel, or none holds a finite point.
    """
    shown = [_finite(part) for part in parts]
    shown = [part for part in shown if part.lines]
    if not shown:
        raise ValueError("panels: wanted at least one line with a finite point, got none")
    across = min(len(shown), _ACROSS)
    down = -(-len(shown) // across)
    figure = style.new_figure(_WIDE * across, _HIGH * down)
    axes = figure.subplots(down, across, squeeze=False)
    for axis, part in zip(axes.flat, shown, strict=False):
        style.dress(axis, title=part.title, x=x, y=y)
        if zero:
            axis.axhline(0, color=style.INK, linewidth=0.9, linestyle="--")
        ends = []
        for index, (name, points) in enumerate(part.lines.items()):
            places, means, deviations = np.array(sorted(points)).T
            colour = style.colour(index)
            axis.plot(places, means, color=colour, marker=style.marker(index), markersize=4)
            if deviations.any():
                low, high = means - deviations, means + deviations
                axis.fill_between(places, low, high, color=colour, alpha=0.18, linewidth=0)
            ends.append(End(places[-1], means[-1], name, colour))
        if octaves:
            style.octaves(axis, [point.x for points in part.lines.values() for point in points])
        style.name_ends(axis, ends, _INSIDE)
    for axis in axes.flat[len(shown) :]:
        axis.set_visible(False)
    figure.suptitle(title, fontsize=11, color=style.INK)
    save(figure, path)


def _finite(part: Panel) -> Panel:
    lines = {
        name: [Point(*point) for point in points if np.isfinite(point[1])]
        for name, points in part.lines.items()
    }
    return part._replace(lines={name: points for name, points in lines.items() if points})
