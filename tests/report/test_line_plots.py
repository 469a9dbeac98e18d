"""Panels of lines: their bytes repeat, gaps are left out, and nothing to draw is said."""

from pathlib import Path

import pytest

from dive_jax.report.line_plots import Panel, Point, panels

PARTS = [
    Panel("one", {"a": [Point(64, 0.2, 0.1), Point(32, -0.1, 0.05)], "b": [Point(32, 0.0)]}),
    Panel("two", {"a": [Point(32, float("nan")), Point(64, 0.3)]}),
]
NAMES = {"title": "toy", "x": "queries", "y": "score"}


def test_bytes_repeat_and_change_with_the_values(tmp_path: Path):
    for name in ("one.png", "two.png"):
        panels(PARTS, tmp_path / name, octaves=True, **NAMES)
    panels(PARTS[:1], tmp_path / "three.png", octaves=True, **NAMES)
    first, second, third = (
        (tmp_path / name).read_bytes() for name in ("one.png", "two.png", "three.png")
    )
    assert first == second != third
    assert first.startswith(b"\x89PNG")


def test_nothing_to_draw_is_refused(tmp_path: Path):
    empty = [Panel("none", {"a": [Point(1, float("nan"))]})]
    for parts in ([], empty):
        with pytest.raises(ValueError, match="wanted at least one line"):
            panels(parts, tmp_path / "none.png", **NAMES)
    assert not (tmp_path / "none.png").exists()
