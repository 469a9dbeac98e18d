"""Progress in a log and on a terminal, with a clock that the test moves."""

import io
import sys

import pytest
from rich.console import Console

from dive_jax.report.progress import Progress, duration


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class Stream(io.StringIO):
    flushed = ""

    def flush(self):
        self.flushed = self.getvalue()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def stream():
    return Stream()


def make(total, clock, stream, **settings):
    console = Console(file=stream, width=40)
    return Progress(total, "training dive", "epochs", console=console, clock=clock, **settings)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((None, "--:--"), (-3, "0:00"), (0, "0:00"), (59.6, "1:00"), (3599, "59:59")),
        *((3600, "1:00:00"), (90061, "25:01:01")),
    ],
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_a_log_gets_a_line_every_few_seconds(clock, stream):
    with make(10, clock, stream) as bar:
        for done in range(1, 11):
            clock.now += 2
            bar.update(done, f"triplet 0.{done}")
            assert stream.flushed == stream.getvalue()
    assert stream.getvalue().splitlines() == [
        "training dive: 0/10 epochs (0 %)",
        "training dive: 3/10 epochs (30 %), 0:06 elapsed, 0:14 left, triplet 0.3",
        "training dive: 6/10 epochs (60 %), 0:12 elapsed, 0:08 left, triplet 0.6",
        "training dive: 9/10 epochs (90 %), 0:18 elapsed, 0:02 left, triplet 0.9",
        "training dive: 10/10 epochs (100 %), took 0:20, triplet 0.10",
    ]
    assert "\x1b" not in stream.getvalue()


def test_the_interval_can_be_chosen(clock, stream):
    with make(10, clock, stream, interval_s=0) as bar:
        for done in range(1, 11):
            bar.update(done)
    assert len(stream.getvalue().splitlines()) == 11


def test_the_time_left_is_of_this_process_alone(clock, stream):
    with make(50, clock, stream, done=40) as bar:
        assert bar.left_s is None
        clock.now += 30  # Reading a checkpoint, compiling.
        bar.update(40)
        assert bar.left_s is None
        clock.now += 3
        bar.update(41)
        assert bar.left_s == pytest.approx(27)
        clock.now += 2  # Nothing new, but time goes on.
        assert bar.left_s == pytest.approx(25)
        clock.now += 100
        assert bar.left_s == 0
    assert stream.getvalue().splitlines()[0] == "training dive: 40/50 epochs (80 %)"


def test_compiling_before_the_first_step_is_no_measure_of_speed(clock, stream):
    with make(10, clock, stream) as bar:
        clock.now += 60
        bar.update(1)
        clock.now += 1
        bar.update(2)
        assert bar.left_s == pytest.approx(8)
        assert bar.elapsed_s == pytest.approx(61)


def test_an_error_says_where_it_stopped(clock, stream):
    def stopped():
        with make(4, clock, stream) as bar:
            clock.now += 1
            bar.update(1)
            clock.now += 2
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    last = stream.getvalue().splitlines()[-1]
    assert last == "training dive: 1/4 epochs (25 %), stopped after 0:03"


def test_no_work_is_done_at_once(clock, stream):
    with make(0, clock, stream):
        pass
    assert stream.getvalue().splitlines()[-1] == "training dive: 0/0 epochs (100 %), took 0:00"


def test_long_texts_stay_on_one_line(clock, stream):
    with make(2, clock, stream) as bar:
        bar.update(2, "[geometry] " * 30)
    assert len(stream.getvalue().splitlines()) == 2
    assert stream.getvalue().count("[geometry]") == 30


def test_standard_error_is_the_default(capsys):
    with Progress(1, "counting", "rows") as bar:
        bar.update(1)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[-1] == "counting: 1/1 rows (100 %), took 0:00"


@pytest.fixture
def terminal(stream):
    return Console(file=stream, width=80, force_terminal=True, force_interactive=True)


def test_a_terminal_gets_a_bar_and_keeps_the_last_state(clock, stream, terminal):
    out = sys.stdout
    with Progress(4, "training dive", "epochs", console=terminal, clock=clock) as bar:
        assert sys.stdout is out
        clock.now += 1
        bar.update(1, "triplet 0.1")
        clock.now += 65
        bar.update(4, "triplet 0.0")
    last = stream.getvalue().split("\x1b[2K")[-1]
    assert "training dive: 4/4 epochs (100 %), took 1:06" in last
    assert "triplet 0.0" in last
    assert "━" in last
    assert stream.getvalue().endswith("\x1b[?25h")  # The cursor is back.


def test_the_bar_grows_and_fits_eighty_columns(clock, terminal):
    bar = Progress(1000, "compressing", "rows", console=terminal, clock=clock)
    shown = {}
    for done in (0, 500, 1000):
        clock.now += 1
        bar.update(done, "some words")
        with terminal.capture() as capture:
            terminal.print(bar._bar())
        shown[done] = capture.get()
    assert "compressing: 500/1,000 rows (50 %), 0:02 elapsed, 0:01 left" in shown[500]
    assert len(set(shown.values())) == 3


def test_a_dumb_terminal_is_a_log(clock, stream, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    console = Console(file=stream, force_terminal=True)
    with Progress(1, "training", "epochs", console=console, clock=clock) as bar:
        bar.update(1)
    assert "\x1b" not in stream.getvalue()
    assert len(stream.getvalue().splitlines()) == 2
