"""Names beside lines never overlap, and axes are told in plain numbers."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.text import Text
from scipy import optimize

from dive_jax.report import style
from dive_jax.report.style import End, spaced

GAP = 0.125


@settings(deadline=None, max_examples=25)
@given(st.lists(st.floats(0, 1), min_size=5, max_size=5))
def test_names_move_apart_as_little_as_possible(places):
    places = np.sort(places)
    found = spaced(places, GAP)
    assert (np.diff(found) >= GAP - 1e-12).all()
    assert found[0] >= -1e-12
    assert found[-1] <= 1 + 1e-12
    best = optimize.minimize(
        lambda x: np.sum((x - places) ** 2),
        np.linspace(0, 1, 5),
        method="SLSQP",
        bounds=[(0, 1)] * 5,
        constraints={"type": "ineq", "fun": lambda x: np.diff(x) - GAP},
        options={"ftol": 1e-12},
    )
    assert np.sum((found - places) ** 2) <= best.fun + 1e-6


def test_names_with_room_stay_and_too_many_still_stand_in_order():
    np.testing.assert_array_equal(spaced(np.array([0.1, 0.5, 0.9]), GAP), [0.1, 0.5, 0.9])
    assert spaced(np.zeros(0), GAP).shape == (0,)
    crowd = spaced(np.full(20, 0.5), GAP)
    assert (np.diff(crowd) > 0).all()
    assert crowd[0] == 0


def axes():
    figure = style.new_figure(5, 4)
    return figure, figure.subplots()


def test_no_two_names_overlap_when_drawn():
    figure, axis = axes()
    axis.set_xlim(0, 10)
    axis.set_ylim(0, 1)
    heights = [0.31, 0.3, 0.32, 0.3, 0.95, 0.0]
    ends = [End(10, y, f"name_{i}", style.colour(i)) for i, y in enumerate(heights)]
    style.name_ends(axis, ends, 3.0)
    figure.canvas.draw()
    boxes = [Text.get_window_extent(each) for each in axis.texts]
    assert sorted(each.get_text() for each in axis.texts) == [f"name_{i}" for i in range(6)]
    assert all(low.y1 <= high.y0 for low, high in itertools.pairwise(boxes))  # From below.
    assert [each.get_text() for each in axis.texts][:2] == ["name_5", "name_1"]


def test_a_line_that_ends_early_is_dotted_on_to_the_edge():
    _, axis = axes()
    axis.set_xlim(1, 1000)
    axis.set_xscale("log")
    style.name_ends(axis, [End(100, 0.5, "early", "red"), End(990, 0.2, "late", "blue")], 3.0)
    (dotted,) = axis.lines
    np.testing.assert_array_equal(dotted.get_xydata(), [[100, 0.5], [1000, 0.5]])
    assert (dotted.get_linestyle(), dotted.get_color()) == (":", "red")
    assert {each.get_text(): each.xy for each in axis.texts} == {
        "early": (1000, 0.5),
        "late": (990, 0.2),
    }


def test_on_a_logarithmic_axis_a_seed_of_zero_counts_in_the_mean():
    _, axis = axes()
    values = np.array([[1.0, 3.0], [0.0, 4.0], [0.0, 0.0]])
    np.testing.assert_array_equal(style.seed_line(axis, values, "red", log=True), [2, 2, np.nan])
    low = axis.collections[0].get_paths()[0].vertices[:, 1].min()
    assert low == 1
    np.testing.assert_array_equal(style.seed_line(axis, values, "red"), [2, 2, 0])


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([16, 32, 64, 128, 256, 384, 768], ["16", "32", "64", "128", "256", "384", "768"]),
        ([512, 16, 512, 500], ["16", "512"]),
        ([64], ["64"]),
        ([1, 3072], ["1", "3,072"]),
    ],
)
def test_ticks_stand_at_the_values_that_have_room(values, labels):
    _, axis = axes()
    style.octaves(axis, values)
    shown = [each.get_text() for each in axis.get_xticklabels()]
    assert sorted(shown, key=lambda text: int(text.replace(",", ""))) == labels
    low, high = axis.get_xlim()
    assert low < min(values) <= max(values) < high


@pytest.mark.parametrize(
    ("top", "ticks"), [(0.6, ["0.1", "0.2", "0.5"]), (900, ["0.1", "1", "10"])]
)
def test_a_logarithmic_axis_has_plain_numbers(top, ticks):
    figure, axis = axes()
    axis.plot([1, 2], [0.08, top])
    style.log_scale(axis)
    figure.canvas.draw()
    shown = [each.get_text() for each in axis.get_yticklabels()]
    assert set(ticks) <= set(shown)
    assert not any("e" in each or "$" in each for each in shown)


def test_markers_and_colours_tell_neighbours_apart():
    looks = [(style.colour(index), style.marker(index)) for index in range(14)]
    assert len(set(looks)) == len({colour for colour, _ in looks}) == 14
    assert style.colour(14) == style.colour(0)
    assert style.marker(14) != style.marker(0)
