"""HTML and SVG from plain values: text is escaped unless it was made here."""

import html
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dive_jax.report.tables import Column, Row, cell

_VOID = frozenset({"br", "link", "meta", "wbr"})
_UNSAYABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)
_SPREAD = " ± "


class Table(NamedTuple):
    """Rows, their columns, and what they show.

    Attributes:
      rows: Values by column key; the first column names the row.
      columns: What to show, in order.
      caption: What the table shows.
      strong: Name of the row that is set off.
    """

    rows: Sequence[Row]
    columns: Sequence[Column]
    caption: str
    strong: str | None = None


class Html(str):
    """Markup, which needs no more escaping."""

    __slots__ = ()


def plain(value: object) -> str:
    r"""Returns text that UTF-8 and HTML can carry: what they cannot becomes U+FFFD.

    Example:
      >>> plain("a\x00b\ud800") == "a\ufffdb\ufffd"
      True
    """
    return _UNSAYABLE.sub("\ufffd", str(value))


def safe(value: object) -> Html:
    """Returns markup as it is, and anything else as escaped text.

    Example:
      >>> safe("</script>"), safe(Html("<b>")), safe(None)
      ('&lt;/script&gt;', '<b>', '')
    """
    if isinstance(value, Html):
        return value
    return Html("" if value is None else html.escape(plain(value)))


def joined(parts: Iterable[object], between: object = "") -> Html:
    """Returns parts one after another, each escaped unless it is markup."""
    return Html(safe(between).join(map(safe, parts)))


def tag(name: str, /, *children: object, **attributes: object) -> Html:
    """Returns one element.

    Args:
      name: Of the element.
      children: Markup, or text that is escaped; None is nothing.
      attributes: Values are escaped. `_` stands for `-` in a name, but at its end, where it only
        keeps the name from being one of Python's; None leaves the attribute out, and True gives it
        no value.

    Example:
      >>> tag("p", "1 < 2", class_="small", aria_label='"', hidden=None)
      '<p class="small" aria-label="&quot;">1 &lt; 2</p>'
    """
    written = []
    for key, value in attributes.items():
        key = key.rstrip("_").replace("_", "-")
        if value is True:
            written.append(f" {key}")
        elif value is not None:
            written.append(f' {key}="{safe(str(value))}"')
    start = f"<{name}{''.join(written)}>"
    return Html(start if name in _VOID and not children else f"{start}{joined(children)}</{name}>")


def shortened(text: str, limit: int) -> str:
    r"""Returns text on one line, cut between words where it is longer than `limit` characters.

    Example:
      >>> shortened("one  two three", 9), shortened("abcdefgh", 4)
      ('one two\xa0…', 'abc…')
    """
    text = " ".join(text.split())
    if len(text) <= limit:
        return text
    kept, blank, _ = text[: limit - 1].rpartition(" ")
    return f"{kept}\u00a0…" if blank and len(kept) > limit // 2 else f"{text[: limit - 1]}…"


def breakable(name: str) -> Html:
    """Returns a name that may be broken after its underscores and slashes, and before @."""
    return joined(re.split(r"(?<=[_/])|(?=@)", plain(name)), tag("wbr"))


def _value(value: object, decimals: int | None) -> Html:
    """Returns a table's value; a deviation stands apart, so that it can go below on a phone."""
    if isinstance(value, Html):
        return value
    shown, spread, deviation = cell(value, decimals).partition(_SPREAD)
    if not spread:
        return breakable(shown) if isinstance(value, str) else safe(shown)
    return joined([shown, tag("span", f"{spread}{deviation}", class_="dev")])


def table(made: Table) -> Html:
    """Returns a table in a box of its own that scrolls sideways where it must."""
    heads = [
        tag("th", breakable(each.title), scope="col", class_=each.align) for each in made.columns
    ]
    first, others = made.columns[0], made.columns[1:]
    body = []
    for row in made.rows:
        values = [
            tag("td", _value(row.get(each.key), each.decimals), class_=each.align)
            for each in others
        ]
        name = row.get(first.key)
        header = tag("th", _value(name, first.decimals), scope="row", class_="left")
        strong = "strong" if made.strong is not None and name == made.strong else None
        body.append(tag("tr", header, *values, class_=strong))
    caption = tag("caption", made.caption)
    inside = tag("table", caption, tag("thead", tag("tr", *heads)), tag("tbody", *body))
    return tag("div", inside, class_="scroll", role="region", aria_label=made.caption, tabindex="0")


def lead(words: str) -> Html:
    """Returns the line that a part of the page begins with."""
    return tag("p", words, class_="soft lead")


def pairs(rows: Iterable[tuple[object, object]]) -> Html:
    """Returns names with their values, as a list of descriptions."""
    return tag(
        "dl", *[tag("div", tag("dt", name), tag("dd", value)) for name, value in rows], class_="kv"
    )
