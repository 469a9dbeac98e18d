"""Example queries in a page: what the full vectors find beside what the compressed ones find."""

from collections.abc import Sequence
from typing import NamedTuple

from dive_jax.report.markup import Html, breakable, joined, shortened, tag

_QUERY, _TITLE, _TEXT = 400, 160, 200  # Characters shown at most.
DEPTH = 10
"""Ranks that are known of each list; the best `SHOWN` are shown."""
SHOWN = 5


class Hit(NamedTuple):
    """A document in a list.

    Attributes:
      id: Its id.
      title: Its title; may be empty.
      text: Its text; None where no texts are at hand.
      score: Cosine to the query.
      relevant: Whether it is judged relevant for the query.
      rank: Its place here, from 1.
      other: Its place in the other list; None beyond `DEPTH`.
    """

    id: str
    title: str
    text: str | None
    score: float
    relevant: bool
    rank: int
    other: int | None


class Missed(NamedTuple):
    """A relevant document that neither list shows, and its ranks; None beyond `DEPTH`."""

    id: str
    title: str
    text: str | None
    frozen: int | None
    compressed: int | None


class Example(NamedTuple):
    """A query, both lists of `SHOWN` documents, best first, and their scores.

    Attributes:
      id: Its id.
      text: Its text; None where no texts are at hand.
      unseen: Whether no training query has one of its documents.
      relevant: How many documents are relevant.
      before: nDCG@10 of the full vectors.
      after: nDCG@10 of the compressed ones.
      frozen: What the full vectors find.
      compressed: What the compressed ones find.
      missed: Relevant documents that are in neither list.
    """

    id: str
    text: str | None
    unseen: bool
    relevant: int
    before: float
    after: float
    frozen: Sequence[Hit]
    compressed: Sequence[Hit]
    missed: Sequence[Missed]


class Group(NamedTuple):
    """Examples that were chosen by one rule."""

    title: str
    examples: Sequence[Example]


def _said(rank: int | None) -> str:
    return f"beyond {DEPTH}" if rank is None else f"rank {rank}"


def _headline(id: str, title: str, text: str | None) -> str:
    """Returns the line that stands for a document: its title, or its id and how its text begins."""
    return shortened(title, _TITLE) or shortened(f"{id}: {text or 'no text'}", _TITLE)


def _hit(hit: Hit, other: str) -> Html:
    title, text = shortened(hit.title, _TITLE), shortened(hit.text or "", _TEXT)
    lines = [tag("p", title or hit.id, class_="title", dir="auto")]
    if text:
        lines.append(tag("p", text, class_="text", dir="auto"))
    elif not title:
        why = "Its text is not at hand." if hit.text is None else "It has no text."
        lines.append(tag("p", why, class_="text soft"))
    told = [tag("span", "✓ relevant", class_="badge")] if hit.relevant else []
    told.append(tag("span", f"cosine {hit.score:.3f}"))
    told.append(tag("span", f"{other}: {_said(hit.other)}"))
    told += [tag("bdi", hit.id)] if title else []
    lines.append(tag("p", *told, class_="meta"))
    rank = tag("span", hit.rank, class_="rank")
    return tag("li", rank, tag("div", *lines), class_="yes" if hit.relevant else None)


def _list(heading: object, hits: Sequence[Hit], other: str) -> Html:
    items = [_hit(each, other) for each in hits]
    inside = tag("ol", *items, class_="hits") if items else tag("p", "Nothing was found.")
    return tag("div", tag("h4", heading), inside)


def _missed(missed: Sequence[Missed]) -> Html | None:
    """Tells the relevant documents that neither list shows; the first three by name."""
    if not missed:
        return None
    told = []
    for each in missed[:3]:
        ranks = f" (full vectors: {_said(each.frozen)}, compressed: {_said(each.compressed)})"
        told.append(joined([tag("bdi", _headline(each.id, each.title, each.text)), ranks]))
    more = f"; and {len(missed) - 3} more" if len(missed) > 3 else ""
    return tag("p", "Relevant, but in neither list: ", joined(told, "; "), more, class_="missed")


def _counted(example: Example) -> str:
    """Says how many documents are relevant, and whether training has seen one of them."""
    if example.relevant == 1:
        return f"1 relevant document, {'not ' if example.unseen else ''}seen in training"
    seen = "none of them" if example.unseen else "some of them"
    return f"{example.relevant} relevant documents, {seen} seen in training"


def _example(example: Example, method: str, first: bool) -> Html:
    change = example.after - example.before
    tone = "good" if change > 0 else "bad" if change < 0 else "soft"
    scores = [
        "nDCG@10 ",
        tag("b", f"{example.before:.3f}"),
        " to ",
        tag("b", f"{example.after:.3f}"),
        " (",
        tag("b", f"{change:+.3f}", class_=tone),
        ")",
    ]
    told = [
        tag("span", *scores),
        tag("span", _counted(example)),
        tag("span", "id ", tag("bdi", example.id)),
    ]
    words = shortened(example.text or "", _QUERY) or f"query {example.id}"
    head = tag(
        "summary",
        tag("span", words, class_="query", dir="auto"),
        tag("span", *told, class_="meta"),
    )
    lists = tag(
        "div",
        _list("Full vectors", example.frozen, "compressed"),
        _list(joined(["Compressed, ", breakable(method)]), example.compressed, "full"),
        class_="two",
    )
    opened = True if first else None
    return tag("details", head, lists, _missed(example.missed), class_="example", open=opened)


def examples(groups: Sequence[Group], method: str) -> Html:
    """Returns groups of queries that open to both lists; the first of each group is open.

    Args:
      groups: In order.
      method: Name of what compressed.
    """
    return joined(
        joined(
            [
                tag("h3", group.title),
                *[_example(each, method, not at) for at, each in enumerate(group.examples)],
            ]
        )
        for group in groups
        if group.examples
    )
