"""Tables of results: for a terminal or a log, as Markdown, and as CSV."""

import csv
import io
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rich.console import Console
from rich.text import Text

MISSING = "–"
_GAP = "  "
_SPREAD = " ± "
_RULE = "─"
_ROUNDING = 1e-12  # A smaller deviation is rounding in a mean of equal numbers.


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Attributes:
      key: Name of the value in a row, and of the column in CSV.
      title: Heading for people.
      decimals: Digits after the point of a number; None shows whole numbers and text as they are.
      align: Side that the values stand on.
    """

    key: str
    title: str
    decimals: int | None = None
    align: Literal["left", "right"] = "right"


Row = Mapping[str, Any]
"""Key -> text, number, (mean, deviation) or None; no deviation, or one of 0, is not shown."""


def _missing(value: Any) -> bool:
    return value is None or (not isinstance(value, str) and not math.isfinite(value))


def _number(value: Any, decimals: int | None) -> str:
    if isinstance(value, bool | str):
        return str(value)
    if decimals is not None:
        return f"{value:.{decimals}f}"
    return f"{value:,}" if float(value).is_integer() else f"{value:g}"


def cell(value: Any, decimals: int | None = None) -> str:
    """Returns the text of one value.

    Args:
      value: Text, a number, (mean, deviation), or None; NaN and infinities count as missing.
      decimals: Digits after the point.

    Example:
      >>> cell((0.73941, 0.00158), 4), cell((0.645, 0.0), 4), cell(None), cell(5183)
      ('0.7394 ± 0.0016', '0.6450', '–', '5,183')
    """
    mean, deviation = value if isinstance(value, tuple) else (value, None)
    if _missing(mean):
        return MISSING
    shown = _number(mean, decimals)
    if deviation is None or _missing(deviation) or abs(deviation) < _ROUNDING:
        return shown
    return f"{shown}{_SPREAD}{_number(deviation, decimals)}"


def _cells(rows: Sequence[Row], columns: Sequence[Column]) -> list[list[str]]:
    return [[cell(row.get(each.key), each.decimals) for each in columns] for row in rows]


def print_table(
    rows: Sequence[Row], columns: Sequence[Column], console: Console | None = None, title: str = ""
) -> None:
    """Prints a table to a console; in a log as plain text, with the same layout.

    Nothing is ever cut: values stay on one line, also where the console is narrower, and headings
    longer than the values below them are broken between words.

    Args:
      rows: Values by column key; what a row lacks shows as a dash.
      columns: What to show, in order.
      console: Where to; default standard output.
      title: A line above the table.
    """
    console = console if console is not None else Console()
    heading, body = _layout(rows, columns)
    plain = str.maketrans({MISSING: "-", "±": "+/-", _RULE: "-"} if _is_ascii(console) else {})
    rule = _RULE * max(map(len, heading + body))
    styled = [(title, "bold")] if title else []
    styled += [(line, "bold") for line in heading] + [(rule, "dim")] + [(line, "") for line in body]
    for line, style in styled:
        console.print(Text(line.translate(plain), style), soft_wrap=True)


def _is_ascii(console: Console) -> bool:
    return not console.encoding.lower().startswith("utf")


def _on_means(values: list[str]) -> list[str]:
    """Pads values without a deviation, so that all means of a column stand below each other."""
    tails = [len(value) - value.index(_SPREAD) for value in values if _SPREAD in value]
    return [value if _SPREAD in value else value + " " * max(tails, default=0) for value in values]


def _block(column: Column, values: list[str]) -> tuple[list[str], list[str]]:
    """Returns a column's heading lines and values, all of one width."""
    values = _on_means(values)
    widest = max(map(len, [*values, *column.title.split()]), default=1)
    heading = textwrap.wrap(column.title, widest, break_on_hyphens=False) or [""]
    width = max(map(len, [*values, *heading]), default=0)
    side = ">" if column.align == "right" else "<"
    above = "<" if any(_SPREAD in value for value in values) else side
    return [f"{text:{above}{width}}" for text in heading], [
        f"{text:{side}{width}}" for text in values
    ]


def _layout(rows: Sequence[Row], columns: Sequence[Column]) -> tuple[list[str], list[str]]:
    """Returns the lines of the heading and of the body."""
    body = _cells(rows, columns)
    blocks = [_block(each, [line[index] for line in body]) for index, each in enumerate(columns)]
    height = max(len(heading) for heading, _ in blocks)
    # Headings of fewer lines stand at the bottom.
    headings = [
        [" " * len(heading[0])] * (height - len(heading)) + heading for heading, _ in blocks
    ]
    joined = [
        [_GAP.join(line).rstrip() for line in zip(*part, strict=True)]
        for part in (headings, [values for _, values in blocks])
    ]
    return joined[0], joined[1]


def markdown(rows: Sequence[Row], columns: Sequence[Column]) -> str:
    """Returns the table as Markdown, with a final newline.

    Example:
      >>> print(markdown([{"dim": 64}], [Column("dim", "width")]), end="")
      | width |
      | ---: |
      | 64 |
    """
    rule = ["---:" if each.align == "right" else ":---" for each in columns]
    lines = [[each.title for each in columns], rule, *_cells(rows, columns)]
    escaped = [[" ".join(text.replace("|", "\\|").split()) for text in line] for line in lines]
    return "".join("| " + " | ".join(line) + " |\n" for line in escaped)


def csv_text(rows: Sequence[Row], columns: Sequence[Column]) -> str:
    r"""Returns the table as CSV for programs: all digits, nothing for a missing value.

    A column that holds deviations anywhere gets a second one, `<key>_std`.

    Example:
      >>> csv_text([{"ndcg": (0.5, 0.25)}], [Column("ndcg", "nDCG@10", 4)])
      'ndcg,ndcg_std\n0.5,0.25\n'
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    spread = {
        each.key for each in columns if any(isinstance(row.get(each.key), tuple) for row in rows)
    }
    header = []
    for each in columns:
        header += [each.key, f"{each.key}_std"] if each.key in spread else [each.key]
    writer.writerow(header)
    for row in rows:
        line = []
        for each in columns:
            value = row.get(each.key)
            values = value if isinstance(value, tuple) else (value, None)
            kept = values if each.key in spread else values[:1]
            line += ["" if _missing(one) else one for one in kept]
        writer.writerow(line)
    return text.getvalue()
