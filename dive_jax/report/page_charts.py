"""Charts as SVG inside a page: sharp at any size, their words text, their colours the page's."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Num

from dive_jax.report.markup import Html, joined, tag
from dive_jax.report.page_style import SERIES
from dive_jax.report.style import spaced

_WIDTH = 380  # About what a phone shows, so that the words keep their size there.
_LETTER = 7.2  # Mean width of a letter of the charts' font.
_MOST_POINTS = 200


class Dot(NamedTuple):
    """One result: x, the mean there, its deviation (0 where there is none), and what it is."""

    x: float
    mean: float
    deviation: float = 0.0
    kind: str = ""


class Line(NamedTuple):
    """A method's results; `series` chooses colour and shape."""

    name: str
    dots: Sequence[Dot]
    series: int


class _Scale(NamedTuple):
    """From values to places on the picture; rising values may go up, that is, to lower places."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 1)


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Returns round numbers within a range, evenly spaced, with at most `most` steps in it.

    Example:
      >>> ticks(0.58, 0.79), ticks(0, 50), ticks(1, 1)
      ([0.6, 0.65, 0.7, 0.75], [0.0, 10.0, 20.0, 30.0, 40.0, 50.0], [1.0])
    """
    if not high > low:
        return [float(low)]
    unit = 10.0 ** math.floor(math.log10((high - low) / most))
    step = next(s * unit for s in (1, 2, 5, 10, 20) if (high - low) / (s * unit) <= most)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{index * step:.12g}") for index in range(first, last + 1)]


def _digits(values: Sequence[float]) -> int:
    """Returns the digits after the point that tell all values apart from rounded ones."""
    return max(len(f"{value:.10f}".rstrip("0").partition(".")[2]) for value in values)


def _range(values: Sequence[float], *, zero: bool = False) -> tuple[float, float]:
    """Returns the range of an axis: all values with some room, from 0 on if wanted."""
    low, high = min(values), max(values)
    room = 0.08 * (high - low) or 0.05 * abs(high) or 1.0
    return (0.0 if zero and low >= 0 else low - room), high + room


def _text(x: float, y: float, words: object, anchor: str, **more: object) -> Html:
    return tag("text", words, x=round(x, 1), y=round(y, 1), text_anchor=anchor, **more)


def _levels(scale: _Scale, left: float, right: float) -> list[Html]:
    """Returns the lines and numbers of the vertical axis."""
    drawn, values = [], ticks(scale.low, scale.high)
    digits = _digits(values)
    for value in values:
        y = scale(value)
        drawn.append(tag("line", x1=left, x2=right, y1=y, y2=y, class_="grid"))
        drawn.append(_text(left - 7, y + 4.5, f"{value:,.{digits}f}", "end"))
    return drawn


def _shape(series: int, x: float, y: float) -> dict[str, str]:
    """Returns a path around a place: circle, square, triangle, diamond, by number."""
    circle = f"M{x - 5:g} {y:g}a5 5 0 1 0 10 0a5 5 0 1 0 -10 0z"
    square = f"M{x - 4.5:g} {y - 4.5:g}h9v9h-9z"
    triangle = f"M{x:g} {y - 6:g}l5.8 10.4h-11.6z"
    diamond = f"M{x:g} {y - 6.4:g}l6.4 6.4l-6.4 6.4l-6.4 -6.4z"
    return {"d": (circle, square, triangle, diamond)[series % 4]}


def _dot(line: Line, dot: Dot, x: _Scale, y: _Scale) -> Html:
    """Returns a result with its deviation; resting on it tells the numbers."""
    across, up = x(math.log2(dot.x)), y(dot.mean)
    spread = f" ± {dot.deviation:.4f}" if dot.deviation else ""
    kind = f" as {dot.kind}" if dot.kind else ""
    told = tag("title", f"{line.name}{kind}: {dot.mean:.4f}{spread} at {dot.x:,g} bytes a vector")
    parts: list[object] = [told]
    if dot.deviation:
        ends = {"y1": y(dot.mean - dot.deviation), "y2": y(dot.mean + dot.deviation)}
        parts.append(tag("line", x1=across, x2=across, class_="bar", **ends))
    return tag("g", *parts, tag("path", class_="dot", **_shape(line.series, across, up)))


def _sizes(values: Sequence[float], scale: _Scale, bottom: float) -> list[Html]:
    """Returns the numbers of the horizontal axis: the sizes themselves, where they have room."""
    drawn, edge = [], math.inf
    for value in sorted(set(values), reverse=True):
        x, half = scale(math.log2(value)), len(f"{value:,g}") * _LETTER / 2
        if x + half + 6 <= edge:
            drawn.append(_text(x, bottom + 20, f"{value:,g}", "middle"))
            drawn.append(tag("line", x1=x, x2=x, y1=bottom, y2=bottom + 5, class_="axis"))
            edge = x - half
    return drawn


def _names(lines: Sequence[Line], x: _Scale, y: _Scale, top: float, bottom: float) -> list[Html]:
    """Returns each line's name beside its largest size, none over another of the same size."""
    drawn = []
    ends = [(max(line.dots, key=lambda dot: dot.x), line) for line in lines]
    for size in sorted({dot.x for dot, _ in ends}):
        here = sorted(((dot.mean, line) for dot, line in ends if dot.x == size), key=lambda e: e[0])
        shares = np.array([(bottom - y(mean)) / (bottom - top) for mean, _ in here])
        places = spaced(shares, 16 / (bottom - top))
        for (mean, line), place in zip(here, places, strict=True):
            up, name = bottom - float(place) * (bottom - top), line.name
            if len(name) > 20:
                name = f"{name[:19]}…"
            words = joined([name, tag("tspan", f" {mean:.3f}".replace("0.", "."))])
            at, style = x(math.log2(size)), _class(line, "name")
            if at + 11 + (len(name) + 5) * _LETTER <= _WIDTH:
                drawn.append(_text(at + 11, up + 4.5, words, "start", class_=style))
            else:  # above, for a line may come from the left
                drawn.append(_text(at + 7, up - 10, words, "end", class_=style))
    return drawn


def _class(line: Line, kind: str) -> str:
    return f"{kind} s{line.series % SERIES}"


def _picture(height: int, label: str, parts: Sequence[Html]) -> Html:
    return tag("svg", *parts, viewBox=f"0 0 {_WIDTH} {height}", role="img", aria_label=label)


def bytes_chart(lines: Sequence[Line], *, label: str, reference: float | None = None) -> Html:
    """Draws quality against bytes a vector (logarithmic): a shape and a colour a method.

    Args:
      lines: At least one, each with at least one result; several results of one are connected.
      label: What it shows, for those who do not see it.
      reference: Quality drawn as a dashed line through the whole picture.
    """
    height, left, top, bottom = 300, 44, 14, 258
    dots = [dot for line in lines for dot in line.dots]
    reached = [dot.mean + sign * dot.deviation for dot in dots for sign in (-1, 1)]
    logs = [math.log2(dot.x) for dot in dots]
    pad = 0.06 * (max(logs) - min(logs)) or 1.0
    x = _Scale(min(logs) - pad, max(logs) + pad, left, _WIDTH - 8)
    y = _Scale(*_range(reached if reference is None else [*reached, reference]), bottom, top)
    drawn = _levels(y, left, _WIDTH)
    drawn.append(tag("line", x1=left, x2=_WIDTH, y1=bottom, y2=bottom, class_="axis"))
    drawn += _sizes([dot.x for dot in dots], x, bottom)
    drawn.append(_text((left + _WIDTH) / 2, height - 6, "bytes a vector", "middle"))
    if reference is not None:
        at = y(reference)
        drawn.append(tag("line", x1=left, x2=_WIDTH, y1=at, y2=at, class_="frozen"))
    for line in lines:
        ordered = sorted(line.dots, key=lambda dot: dot.x)
        path = " ".join(f"{x(math.log2(dot.x))},{y(dot.mean)}" for dot in ordered)
        parts = [tag("polyline", points=path, class_="line")] if len(ordered) > 1 else []
        parts += [_dot(line, dot, x, y) for dot in ordered]
        drawn.append(tag("g", *parts, class_=_class(line, "method")))
    return _picture(height, label, [*drawn, *_names(lines, x, y, top, bottom)])


def _kept(epochs: int) -> np.ndarray:
    """Returns the epochs drawn, from 0: all, or evenly spaced ones where there are many."""
    if epochs <= _MOST_POINTS:
        return np.arange(epochs)
    return np.unique(np.linspace(0, epochs - 1, _MOST_POINTS).round().astype(int))


def _curve(
    values: Num[np.ndarray, " epochs"], places: Callable[[int, float], str], kind: str
) -> list[Html]:
    """Returns a curve through the finite values; a single one is a dot."""
    points = [(int(at), float(values[at])) for at in _kept(len(values)) if np.isfinite(values[at])]
    if len(points) == 1:
        across, up = places(points[0][0] + 1, points[0][1]).split(",")
        return [tag("circle", cx=across, cy=up, r=4 if kind == "line" else 2.5, class_="dot")]
    drawn = " ".join(places(at + 1, value) for at, value in points)
    return [tag("polyline", points=drawn, class_=kind)] if points else []


def mean_of(values: Num[np.ndarray, "epochs seeds"]) -> Num[np.ndarray, " epochs"]:
    """Returns the mean over the seeds; NaN where a seed has no value, since it ended earlier."""
    return values.mean(axis=1)


def curves_chart(
    columns: Mapping[str, Num[np.ndarray, "_epochs _seeds"]], *, label: str, zero: bool = True
) -> Html:
    """Draws values by epoch: thin lines the seeds, a thick one their mean, a colour a column.

    Args:
      columns: Name -> values; what is not finite is left out. At least one is finite.
      label: What it shows, for those who do not see it.
      zero: Whether the vertical axis starts at 0, where no value is below.
    """
    height, left, right, top, bottom = 218, 50, _WIDTH - 10, 10, 178
    every = np.concatenate([np.ravel(each) for each in columns.values()])
    epochs = max(len(each) for each in columns.values())
    x = _Scale(min(1, epochs - 1), max(epochs, 2), left, right)
    y = _Scale(*_range(every[np.isfinite(every)].tolist(), zero=zero), bottom, top)
    drawn = _levels(y, left, right)
    drawn.append(tag("line", x1=left, x2=right, y1=bottom, y2=bottom, class_="axis"))
    for epoch in (each for each in ticks(1, epochs) if each == int(each)):
        drawn.append(_text(x(epoch), bottom + 18, f"{epoch:g}", "middle"))
    drawn.append(_text((left + right) / 2, height - 4, "epoch", "middle"))

    def places(epoch: int, value: float) -> str:
        return f"{x(epoch)},{y(value)}"

    for index, values in enumerate(columns.values()):
        seeds = values.T if values.shape[1] > 1 else []
        parts = [part for each in seeds for part in _curve(each, places, "seed")]
        parts += _curve(mean_of(values), places, "line")
        drawn.append(tag("g", *parts, class_=f"s{index % SERIES}"))
    return _picture(height, label, drawn)
