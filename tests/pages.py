"""Pages to try the report on: ordinary and hostile texts, and what a page must hold to be safe."""

import re
from html.parser import HTMLParser

import numpy as np

from dive_jax.report.markup import Table
from dive_jax.report.page import POLICY, Chart, Figure, Page, Setting
from dive_jax.report.page_charts import Dot, Line
from dive_jax.report.page_queries import Example, Group, Hit, Missed
from dive_jax.report.tables import Column

HOSTILE = (
    '</script><script>alert("x")</script>',
    '"><img src=https://example.invalid/x.png onerror=alert(1)>',
    "'; </style></title></textarea><!-- <![CDATA[ ]]> --> &amp; &#x3c;b&#x3e;",
    "http://example.invalid/ javascript:alert(1) url(//example.invalid) @import 'x'",
    "مرحبا \u202e right to left \u2066 left open, שלום",
    "W" * 3000,
    "a\x00b\x1b[31m\x85 \ud800 \uffff \U0001f600 \u0301" + "\u0301" * 200,
    "",
    " \n\t ",
)
"""Texts that break a page which trusts what it is given."""


def hit(text: str, rank: int = 1, *, relevant: bool = False, other: int | None = None) -> Hit:
    return Hit(text or "id", text, text, 0.5, relevant, rank, other)


def example(text: str, change: float) -> Example:
    frozen = [hit(text, rank, relevant=rank == 2) for rank in range(1, 6)]
    after = [hit(text, rank, relevant=rank == 1, other=rank + 1) for rank in range(1, 6)]
    missed = [Missed(text or "id", text, None, None, 7) for _ in range(5)]
    return Example(
        text or "id", text, change < 0, 6, 0.5 - change / 2, 0.5 + change / 2, frozen, after, missed
    )


def history(epochs: int = 4, seeds: int = 2) -> dict[str, np.ndarray]:
    """Logged values, the second seed of which ends one epoch early."""
    rng = np.random.default_rng(0)
    columns = ("loss", "active_ratio", "view", "positive_similarity", "own_term", "view_energy")
    made = {name: rng.random((epochs, seeds)) for name in columns}
    for values in made.values():
        values[-1, 1:] = np.nan
    return made


def page(text: str = "plain", *, epochs: int = 4, others: int = 0) -> Page:
    """A page whose every free text is `text`; `others` methods beside the four."""
    names = ["frozen", "truncate", text or "name", *(f"other_{i}" for i in range(others))]
    columns = [Column("method", "method", align="left"), Column("ndcg", text, 4)]
    rows = [{"method": name, "ndcg": (0.5, 0.1)} for name in names]
    lines = [
        Line(name, [Dot(512 * 2**at, 0.5 + 0.01 * at, 0.01, text)], at)
        for at, name in enumerate(names)
    ]
    made = Table(rows, columns, text, text)
    return Page(
        title=f"x {text}",
        about=[text, text],
        figures=[Figure(text, text, text, "good"), Figure("nDCG@10", "0.5", "", "bad")],
        warnings=[text],
        tables=[made, made],
        remarks=[text],
        charts=[Chart(text, lines, 0.5)],
        sizes=made,
        history=history(epochs),
        seeds=["2027", "2028"],
        untrained=text,
        groups=[
            Group("up", [example(text, 0.5) for _ in range(5)]),
            Group("down", [example(text, -0.5) for _ in range(5)]),
        ],
        rule=text,
        method=text,
        chosen=[Setting("dim", text, text)],
        defaults=[Setting("heads", "4", text)],
        facts={"Fingerprints": [("encoder", "0f" * 32), (text, text)]},
    )


class Parsed(HTMLParser):
    """A page's elements, attributes and text; `HTMLParser` reads as browsers do, near enough.

    Attributes:
      tags: Elements in order.
      attributes: Of all elements: name, attribute, value.
      text: All text.
    """

    VOID = frozenset({"br", "link", "meta", "wbr"})

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert not self._open, f"left open: {self._open}"

    @property
    def text(self) -> str:
        return "".join(self.words)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        last = self._open.pop() if self._open else None
        assert last == tag, f"</{tag}> closes <{last}>"

    def handle_data(self, data: str) -> None:
        if not (self._open and self._open[-1] == "style"):
            self.words.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")


FORBIDDEN = frozenset(
    {
        *("script", "iframe", "frame", "object", "embed", "base", "form", "img", "image", "audio"),
        *("video", "source", "track", "input", "button", "use", "foreignobject", "template"),
        *("animate", "set"),
    }
)
_ADDRESSES = frozenset({"src", "href", "xlink:href", "action", "data", "poster", "srcset", "ping"})


def check_safe(html: str) -> Parsed:
    """Asserts that a page is sound, asks for nothing and runs nothing; returns its parts."""
    parsed = Parsed(html)
    assert not FORBIDDEN & set(parsed.tags)
    for tag, name, value in parsed.attributes:
        assert not name.startswith("on"), (tag, name)
        assert name != "style", tag
        if name in _ADDRESSES:
            assert value == "data:," or value.startswith("#"), (tag, name, value)
    policies = [
        value
        for at, (_, name, value) in enumerate(parsed.attributes)
        if name == "content" and parsed.attributes[at - 1][2] == "Content-Security-Policy"
    ]
    assert policies == [POLICY]
    (sheet,) = re.findall(r"<style>(.*?)</style>", html, re.DOTALL)
    assert not re.search(r"url\(|@import|https?:|//", sheet)
    ids = [value for _, name, value in parsed.attributes if name == "id"]
    assert len(set(ids)) == len(ids)
    links = [value[1:] for _, name, value in parsed.attributes if value.startswith("#")]
    assert links
    assert set(links) <= set(ids)
    return parsed
