"""One run as one page: what was measured goes in, HTML that needs nothing else comes out."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dive_jax.report import page_queries, page_training
from dive_jax.report.markup import Html, Table, breakable, joined, lead, pairs, table, tag
from dive_jax.report.page_charts import Line, bytes_chart
from dive_jax.report.page_queries import Group
from dive_jax.report.page_style import sheet
from dive_jax.report.page_training import History

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""Content-Security-Policy of a page: a browser that heeds it fetches and runs nothing at all."""


class Figure(NamedTuple):
    """A number to begin with; `tone` is "", "good" or "bad"."""

    label: str
    value: str
    note: str
    tone: str = ""


class Chart(NamedTuple):
    """Quality against bytes: what is shown, a line a method, and the full vectors' quality."""

    title: str
    lines: Sequence[Line]
    reference: float | None


class Setting(NamedTuple):
    """A setting, its value as its flag takes it, and what it means."""

    name: str
    value: str
    help: str


class Page(NamedTuple):
    """What a page shows; texts may hold anything, all of it is escaped.

    Attributes:
      title: One line.
      about: Lines below it.
      figures: Numbers to begin with.
      warnings: What a reader must not miss.
      tables: The methods, and what was tested of them.
      remarks: Lines below the tables.
      charts: Quality against bytes.
      sizes: The numbers of the charts that the tables lack; None if there are none.
      history: What was logged; empty without training.
      seeds: Seeds of the history's second axis, as a reader knows them.
      untrained: Why there is no history.
      groups: Example queries.
      rule: How they were chosen, or why there are none.
      method: What compressed.
      chosen: Settings that are not their defaults.
      defaults: Settings that are.
      facts: Names with their values, in titled lists: fingerprints, data, machine.
    """

    title: str
    about: Sequence[str]
    figures: Sequence[Figure]
    warnings: Sequence[str]
    tables: Sequence[Table]
    remarks: Sequence[str]
    charts: Sequence[Chart]
    sizes: Table | None
    history: History
    seeds: Sequence[str]
    untrained: str
    groups: Sequence[Group]
    rule: str
    method: str
    chosen: Sequence[Setting]
    defaults: Sequence[Setting]
    facts: Mapping[str, Sequence[tuple[str, object]]]


def _figure(figure: Figure) -> Html:
    return tag(
        "div",
        tag("p", figure.label, class_="label"),
        tag("p", figure.value, class_=f"value {figure.tone}".rstrip()),
        tag("p", figure.note, class_="note"),
        class_="figure",
    )


def _methods(page: Page) -> list[Html]:
    remarks = [tag("p", each, class_="soft") for each in page.remarks]
    return [tag("div", *map(table, page.tables), class_="tables"), *remarks]


def _bytes(page: Page) -> list[Html]:
    figures = []
    for chart in page.charts:
        label = f"{chart.title} against bytes a vector; the tables have the same numbers."
        drawn = bytes_chart(chart.lines, label=label, reference=chart.reference)
        figures.append(tag("figure", tag("figcaption", tag("b", chart.title)), drawn))
    words = (
        "Higher is better, and further left is smaller. Dashed: the full vectors. A bar is the "
        "standard deviation over the seeds, where there are several."
    )
    sizes = []
    if page.sizes is not None:
        words += " A line's marks, from the right: float32, float16, int8 and bits, as searched."
        sizes = [table(page.sizes)]
    return [
        lead(words),
        tag("div", *figures, class_="charts"),
        *sizes,
    ]


def _training(page: Page) -> list[Html]:
    return page_training.training(page.history, page.seeds) or [lead(page.untrained)]


def _queries(page: Page) -> list[Html]:
    return [lead(page.rule), page_queries.examples(page.groups, page.method)]


def _settings(settings: Sequence[Setting]) -> Html:
    return pairs(
        (
            tag("code", breakable(each.name)),
            joined([tag("code", breakable(each.value)), tag("small", each.help)]),
        )
        for each in settings
    )


def _record(page: Page) -> list[Html]:
    parts = [tag("h3", "Settings that are not the defaults")]
    nothing = tag("p", "Every setting is its default.", class_="soft")
    parts.append(_settings(page.chosen) if page.chosen else nothing)
    if page.defaults:
        words = f"{len(page.defaults)} settings at their defaults"
        parts.append(tag("details", tag("summary", words), _settings(page.defaults)))
    for title, facts in page.facts.items():
        parts.append(tag("h3", title))
        parts.append(pairs((breakable(name), _fact(value)) for name, value in facts))
    return parts


def _fact(value: object) -> Html:
    """Returns a fact; a word of hexadecimal digits as code."""
    words = str(value)
    digits = len(words) >= 32 and all(letter in "0123456789abcdef" for letter in words)
    return tag("code", words) if digits else breakable(words)


_SECTIONS = (
    ("methods", "Methods", _methods),
    ("bytes", "Quality against bytes", _bytes),
    ("training", "Training", _training),
    ("queries", "Example queries", _queries),
    ("record", "Settings and fingerprints", _record),
)


def _head(title: str) -> Html:
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("link", rel="icon", href="data:,"),
        tag("title", title),
        tag("style", Html(sheet())),
    )


def render(page: Page) -> str:
    """Returns the page as one HTML document that loads nothing; the same for the same values.

    Args:
      page: What it shows.
    """
    links = [tag("a", title, href=f"#{name}") for name, title, _ in _SECTIONS]
    header = tag(
        "header",
        tag("h1", breakable(page.title)),
        *[tag("p", each, class_="soft") for each in page.about],
        tag("nav", *links, aria_label="Parts of this page"),
        tag("div", *map(_figure, page.figures), class_="figures"),
        *[tag("p", each, class_="warning") for each in page.warnings],
    )
    sections = [
        tag("section", tag("h2", title, id=f"{name}-title"), *body(page), id=name,
            aria_labelledby=f"{name}-title")
        for name, title, body in _SECTIONS
    ]  # fmt: skip
    footer = tag("footer", tag("p", "Made by dive_jax. This page loads nothing from anywhere."))
    body = tag("body", header, tag("main", *sections), footer)
    return f"<!doctype html>\n{tag('html', _head(page.title), body, lang='en')}\n"
