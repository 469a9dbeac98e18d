"""Progress of long work on standard error: a bar on a terminal, a line now and then in a log."""

import time
from collections.abc import Callable
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

_BAR_WIDTH = 20


def duration(seconds: float | None) -> str:
    """Returns a time for people; `--:--` when it is not known.

    >>> duration(65), duration(7325), duration(None)
    ('1:05', '2:02:05', '--:--')
    """
    if seconds is None:
        return "--:--"
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class Progress:
    """Shows how far a piece of work is, between `with` and the end of its block.

    A log gets a first and a last line and one every few seconds between. The time left is judged
    from the first `update` on: what an earlier process had done, and the compiling before the
    first step, count as done and not as speed.

    Args:
      total: Pieces of work in all.
      label: What is being done, such as "training dive".
      unit: What is counted, such as "epochs".
      done: Pieces that were done before.
      console: Where to; default standard error.
      interval_s: Least seconds between two lines of a log.
      clock: Returns seconds; for tests.

    Example:
      >>> import sys
      >>> with Progress(2, "counting", "rows", console=Console(file=sys.stdout)) as bar:
      ...     bar.update(1)
      ...     bar.update(2, "loss 0.5")
      counting: 0/2 rows (0 %)
      counting: 2/2 rows (100 %), took 0:00, loss 0.5
    """

    def __init__(
        self,
        total: int,
        label: str,
        unit: str,
        *,
        done: int = 0,
        console: Console | None = None,
        interval_s: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.total, self.label, self.unit, self.done, self.text = total, label, unit, done, ""
        self._console = console if console is not None else Console(stderr=True)
        self._interval_s, self._clock = interval_s, clock
        self._began = self._said_at = clock()
        self._first: tuple[int, float] | None = None
        self._latest = self._began
        self._live: Live | None = None
        self._ended: str | None = None

    def __enter__(self) -> "Progress":
        self._began = self._latest = self._clock()
        if self._console.is_interactive:
            self._live = Live(
                console=self._console, get_renderable=self._bar, redirect_stdout=False
            )
            self._live.start()
        else:
            self._say(self._count())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended = "took" if kind is None else "stopped after"
        if self._live is not None:
            self._live.stop()
        else:
            self._say(self._count(), self._times(), self.text)

    def update(self, done: int, text: str = "") -> None:
        """Tells how many of all pieces are done, and a few words on the state of things."""
        self.done, self.text, self._latest = done, text, self._clock()
        if self._first is None:
            self._first = done, self._latest
        due = self._latest - self._said_at >= self._interval_s
        if self._live is None and due and done < self.total:
            self._say(self._count(), self._times(), text)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return self._clock() - self._began

    @property
    def left_s(self) -> float | None:
        """Seconds until the end at the speed of this process; None before two updates."""
        if self._first is None or self.done <= self._first[0]:
            return None
        done, at = self._first
        piece = (self._latest - at) / (self.done - done)
        return max(0.0, piece * (self.total - self.done) - (self._clock() - self._latest))

    def _count(self) -> str:
        percent = 100 * self.done // self.total if self.total else 100
        return f"{self.label}: {self.done:,}/{self.total:,} {self.unit} ({percent} %)"

    def _times(self) -> str:
        if self._ended is not None:
            return f"{self._ended} {duration(self.elapsed_s)}"
        return f"{duration(self.elapsed_s)} elapsed, {duration(self.left_s)} left"

    def _say(self, *parts: str) -> None:
        self._said_at = self._clock()
        self._console.print(Text(", ".join(filter(None, parts))), soft_wrap=True)
        self._console.file.flush()

    def _bar(self) -> Group:
        """Returns what stands on a terminal: the counts, and below them the bar and the text."""
        share = min(1.0, self.done / self.total) if self.total else 1.0
        below = Table.grid(padding=(0, 1))
        below.add_row(
            ProgressBar(1.0, share, width=_BAR_WIDTH, finished_style="green"), Text(self.text)
        )
        return Group(Text(f"{self._count()}, {self._times()}"), below)
