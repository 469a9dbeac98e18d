"""Training in a page: curves by epoch, and the same as numbers."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Num

from dive_jax.report.markup import Html, Table, lead, table, tag
from dive_jax.report.page_charts import curves_chart, mean_of
from dive_jax.report.tables import Column

_MOST_EPOCHS = 100  # Rows of the table of epochs.


class Curve(NamedTuple):
    """One panel of training curves.

    Attributes:
      title: What is shown.
      unit: What is counted.
      columns: Columns of the history, and how each is called where there are several.
      scale: Factor from the column to the unit.
      zero: Whether the vertical axis starts at 0.
    """

    title: str
    unit: str
    columns: Mapping[str, str]
    scale: float = 1.0
    zero: bool = True


CURVES = (
    Curve("Loss", "weighted sum of the terms", {"loss": ""}),
    Curve("Active triplets", "% inside the margin", {"active_ratio": ""}, 100.0),
    Curve("Ranking loss", "mean shortfall, cosine units", {"triplet": ""}),
    Curve("Head contrast", "NT-Xent in nats, before its weight", {"view": ""}, zero=False),
    Curve("Geometry loss", "smooth L1 of cosines, before its weight", {"geometry": ""}),
    Curve(
        "Similarity to the query",
        "mean cosine",
        {"positive_similarity": "positives", "negative_similarity": "negatives"},
    ),
    Curve("Held-out queries", "nDCG@10", {"validation": ""}, zero=False),
)
"""Panels, drawn where the history has their columns; a column that none names gets its own."""

_TABLE_ONLY = ("greatest_lead", "least_lead")

History: TypeAlias = Mapping[str, Num[np.ndarray, "_epochs _seeds"]]
"""Column -> values, one row an epoch and one column a seed."""


def _panels(history: History) -> list[Curve]:
    """Returns the panels that a history has columns for."""
    known = [each for each in CURVES if any(name in history for name in each.columns)]
    named = {*_TABLE_ONLY, *(name for each in CURVES for name in each.columns)}
    own = [name for name in history if name not in named and not name.endswith("_energy")]
    return known + [Curve(name.replace("_", " ").capitalize(), "", {name: ""}) for name in own]


def _panel(curve: Curve, history: History) -> Html | None:
    columns = {
        called: np.asarray(history[name], np.float64) * curve.scale
        for name, called in curve.columns.items()
        if name in history
    }
    if not any(np.isfinite(values).any() for values in columns.values()):
        return None
    label = f"{curve.title} by epoch, {curve.unit}".rstrip(", ")
    keys = [
        tag("span", tag("i"), called, class_=f"s{index}")
        for index, called in enumerate(columns)
        if called
    ]
    caption = tag("figcaption", tag("b", curve.title), tag("small", curve.unit or " "))
    key = tag("div", *keys, class_="key") if keys else None
    return tag("figure", caption, curves_chart(columns, label=label, zero=curve.zero), key)


def _said(values: Num[np.ndarray, " seeds"]) -> str | None:
    """Returns mean and deviation over the seeds in few digits; None if no seed has a value."""
    known = values[np.isfinite(values)]
    if not len(known):
        return None
    spread = f" ± {known.std(ddof=1):.2g}" if len(known) > 1 else ""
    return f"{known.mean():.4g}{spread}"


def _ends(history: History) -> Table:
    """Returns what was logged in the first and the last epoch, means and deviations over seeds."""
    rows = [
        {"name": name, "first": _said(values[0]), "last": _said(values[-1])}
        for name, values in history.items()
    ]
    last = max(len(values) for values in history.values())
    columns = [
        Column("name", "logged", align="left"),
        Column("first", "epoch 1"),
        Column("last", f"epoch {last}"),
    ]
    return Table(rows, columns, "First and last epoch, mean ± deviation over the seeds")


def _epochs(history: History) -> Table:
    """Returns the mean over the seeds by epoch; evenly spaced epochs where there are many."""
    means = {name: mean_of(values) for name, values in history.items()}
    count = len(next(iter(means.values())))
    kept = np.unique(np.linspace(0, count - 1, min(count, _MOST_EPOCHS)).round().astype(int))
    rows = [
        {"epoch": f"{at + 1}"} | {name: _said(each[at : at + 1]) for name, each in means.items()}
        for at in kept.tolist()
    ]
    columns = [Column("epoch", "epoch", align="left")]
    columns += [Column(name, name.replace("_", " ")) for name in means]
    some = "" if len(kept) == count else f"; {len(kept)} of {count} epochs"
    return Table(rows, columns, f"Mean over the seeds by epoch{some}")


def training(history: History, seeds: Sequence[str]) -> list[Html]:
    """Returns panels of curves and their numbers; nothing without a history.

    Args:
      history: What was logged.
      seeds: Seeds of its second axis, as a reader knows them.
    """
    if not history:
        return []
    panels = [_panel(each, history) for each in _panels(history)]
    names = ", ".join(seeds)
    words = f"Thin: each seed ({names}). Thick: their mean."
    every = tag("details", tag("summary", "Every epoch as numbers"), table(_epochs(history)))
    return [
        lead(words if len(seeds) > 1 else f"One seed: {names}."),
        tag("div", *[each for each in panels if each is not None], class_="charts"),
        table(_ends(history)),
        every,
    ]
