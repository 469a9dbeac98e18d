"""What was found for questions, on a terminal: cut to its width, two rankings side by side."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

_NARROWEST = 40

_WORDS = {"compressed": ("was", "new"), "frozen": ("now", "gone")}
_OTHER = {"compressed": "frozen_rank", "frozen": "compressed_rank"}


def print_answer(
    answer: Mapping[str, Any], compressed: str, frozen: str, console: Console | None = None
) -> None:
    """Prints a question and its documents; with a second ranking, that one stands on the right.

    A document takes two lines, each cut to the width there is: its id and title; its score, how it
    moved against the other ranking if there is one, and how its text begins.

    Args:
      answer: "text", the question; "compressed" and perhaps "frozen", documents with "rank", "id",
        "score", "title", "snippet" and "frozen_rank" or "compressed_rank" (None: not near the top).
      compressed: Heading of the documents found among compressed vectors.
      frozen: Heading of those found among full vectors.
      console: Where to; default standard output.
    """
    console = console if console is not None else Console()
    sides = [side for side in _WORDS if side in answer]
    table = Table(box=None, expand=True, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("", justify="right", no_wrap=True)
    overflow = "ellipsis" if _is_utf(console) else "crop"
    for side in sides:
        heading = {"compressed": compressed, "frozen": frozen}[side]
        table.add_column(heading, ratio=1, no_wrap=True, overflow=overflow)
    for place in range(max((len(answer[side]) for side in sides), default=0)):
        cells = [_cell(answer[side], place, side, len(sides) > 1, console) for side in sides]
        table.add_row(Text(str(place + 1), "dim"), *cells)
    console.print(Text(_said(answer["text"], console), "bold"), soft_wrap=True)
    console.print(table, width=max(_NARROWEST, console.width))
    console.print()


def _is_utf(console: Console) -> bool:
    return console.encoding.lower().startswith("utf")


def moved(hit: Mapping[str, Any], side: str) -> str:
    """Returns how a document's place differs from that in the other ranking.

    Args:
      hit: With "rank", and "frozen_rank" or "compressed_rank".
      side: Which ranking it is in, "compressed" or "frozen".

    Example:
      >>> moved({"rank": 1, "frozen_rank": 4}, "compressed")
      'was 4'
      >>> moved({"rank": 2, "compressed_rank": None}, "frozen")
      'gone'
    """
    words, missing = _WORDS[side]
    rank = hit[_OTHER[side]]
    if rank is None:
        return missing
    return "same" if rank == hit["rank"] else f"{words} {rank}"


def _cell(
    hits: Sequence[Mapping[str, Any]], place: int, side: str, both: bool, console: Console
) -> Text:
    """Returns a document's two lines."""
    if place >= len(hits):
        return Text("")
    hit = hits[place]
    first = Text.assemble((_said(hit["id"], console), "bold"))
    if hit["title"]:
        first.append("  " + _said(hit["title"], console))
    second = Text(f"{hit['score']:.3f}", "cyan")
    if both:
        second.append("  " + moved(hit, side), "yellow")
    if hit["snippet"]:
        second.append("  " + _said(hit["snippet"], console), "dim")
    return Text("\n").join([first, second])


def _said(text: str, console: Console) -> str:
    """Returns text on one line, with what the console cannot show replaced."""
    line = "".join(each if each.isprintable() else " " for each in text)
    line = " ".join(line.split())
    return line.encode(console.encoding, "replace").decode(console.encoding)
