"""Pictures of comparisons: whole files, repeating bytes, and what is drawn where."""

import subprocess
import sys

import numpy as np
import pytest
from matplotlib.text import Text

from dive_jax.report import compare_plots, style

ROWS = [
    {"dataset": dataset, "method": method, "ndcg@10": value}
    for dataset, values in {
        "scifact": [0.64, 0.58, (0.79, 0.005), (0.77, None)],
        "feedbackqa": [0.61, None, (0.6, 0.01), (float("nan"), 0.1)],
    }.items()
    for method, value in zip(["frozen", "truncate", "dive_batch", "dive"], values, strict=True)
]
EPOCHS = np.arange(1, 6)[:, None]
HISTORY = {
    "active_ratio": 0.9**EPOCHS * np.array([[0.9, 1.0, 1.1]]) / 1.1,
    "triplet": 0.3 / EPOCHS * np.ones((1, 3)),
    "view": 3 + 1 / EPOCHS * np.ones((1, 3)),
    "triplet_energy": np.where(EPOCHS > 3, 0.0, 0.5 / EPOCHS) * np.ones((1, 3)),
    "view_energy": 1e-3 / EPOCHS * np.ones((1, 3)),
    "least_lead": np.full((5, 3), -0.5),
    "greatest_lead": np.full((5, 3), 1.5),
    "loss": np.ones((5, 3)),
}
FITTED = 0.9 ** np.arange(1, 6)
WIDTHS = {"pca": [(64, 0.5, 0.0), (16, 0.3, 0.0), (128, 0.6, 0.0)], "dive": [(16, 0.4, 0.02)]}
BYTES = {"pca": [(512, 0.61), (16, 0.59), (128, 0.612)], "dive": [(512, 0.76)], "none": []}

DRAWINGS = {
    "bars": lambda path: compare_plots.bars(ROWS, path, title="A title"),
    "curves": lambda path: compare_plots.curves(
        {"dive": HISTORY, "smec": {"triplet": HISTORY["triplet"][:3]}},
        "triplet",
        path,
        title="A title",
    ),
    "width_curves": lambda path: compare_plots.width_curves(WIDTHS, 0.64, path, title="A title"),
    "bytes_curves": lambda path: compare_plots.bytes_curves(BYTES, path, title="A title"),
    "dynamics": lambda path: compare_plots.dynamics(
        HISTORY, FITTED, path, title="A title", below=3, margin=0.7
    ),
}


def drawn(monkeypatch, tmp_path, draw):
    """Returns the figure that would be saved, laid out."""
    kept = []
    monkeypatch.setattr(compare_plots, "save", lambda figure, path: kept.append(figure))
    draw(tmp_path / "x.png")
    kept[0].canvas.draw()
    return kept[0]


def texts(axis):
    return [each.get_text() for each in axis.texts]


@pytest.mark.parametrize("name", DRAWINGS)
def test_the_same_numbers_give_the_same_whole_file(tmp_path, name):
    for file in ("a.png", "b.png"):
        DRAWINGS[name](tmp_path / "new" / file)
    first, second = ((tmp_path / "new" / file).read_bytes() for file in ("a.png", "b.png"))
    assert first == second
    assert first.startswith(b"\x89PNG\r\n")
    assert first.endswith(b"IEND\xaeB`\x82")
    assert sorted(each.name for each in (tmp_path / "new").iterdir()) == ["a.png", "b.png"]


@pytest.mark.parametrize("name", DRAWINGS)
def test_every_text_lies_inside_the_picture(tmp_path, monkeypatch, name):
    figure = drawn(monkeypatch, tmp_path, DRAWINGS[name])
    whole = figure.bbox
    for axis in figure.axes:
        for each in [*axis.texts, axis.yaxis.label, axis.xaxis.label, axis.title]:
            box = Text.get_window_extent(each)
            if axis.get_visible() and each.get_text() and each.get_visible():
                assert whole.x0 <= box.x0 + 0.5, each.get_text()
                assert box.x1 <= whole.x1 + 0.5, each.get_text()
                assert whole.y0 <= box.y0 + 0.5, each.get_text()
                assert box.y1 <= whole.y1 + 0.5, each.get_text()


def test_a_panel_a_dataset_a_bar_a_method_and_its_number(tmp_path, monkeypatch):
    figure = drawn(monkeypatch, tmp_path, DRAWINGS["bars"])
    assert figure.get_suptitle() == "A title"
    first, second = figure.axes
    assert [each.get_title(loc="left") for each in figure.axes] == ["scifact", "feedbackqa"]
    methods = [each.get_text() for each in first.get_yticklabels()]
    assert methods == ["frozen", "truncate", "dive_batch", "dive"]
    assert first.get_ylim()[0] > first.get_ylim()[1]  # The first method stands on top.
    assert [bar.get_width() for bar in first.patches] == [0.64, 0.58, 0.79, 0.77]
    assert [bar.get_width() for bar in second.patches] == [0.61, 0.6]
    assert texts(first) == ["frozen", "0.6400", "0.5800", "0.7900 ± 0.0050", "0.7700"]
    assert texts(second) == ["frozen", "0.6100", "–", "0.6000 ± 0.0100", "–"]
    np.testing.assert_allclose(first.collections[0].get_segments(), [[[0.785, 2], [0.795, 2]]])
    assert first.get_xlim() == second.get_xlim() == (0, pytest.approx(1.05 * 0.795))
    assert first.get_xlabel() == "nDCG@10"


def test_frozen_is_a_dashed_line_and_the_best_other_bar_is_dark(tmp_path, monkeypatch):
    from matplotlib.colors import to_hex

    for axis, at, best in zip(
        drawn(monkeypatch, tmp_path, DRAWINGS["bars"]).axes, [0.64, 0.61], [0.79, 0.6], strict=True
    ):
        (line,) = [each for each in axis.lines if each.get_linestyle() == "--"]
        assert list(line.get_xdata()) == [at, at]
        dark = [bar for bar in axis.patches if to_hex(bar.get_facecolor()) == style.MEAN]
        assert [bar.get_width() for bar in dark] == [best]


@pytest.mark.parametrize("count", [2, 5])
def test_one_dataset_needs_no_name_and_many_take_more_rows(tmp_path, monkeypatch, count):
    rows = [{"method": "pca", "ndcg@10": 0.5}]
    figure = drawn(monkeypatch, tmp_path, lambda p: compare_plots.bars(rows, p, title="x"))
    assert [each.get_title(loc="left") for each in figure.axes] == [""]
    many = [row | {"dataset": f"set {i}"} for i in range(count) for row in rows]
    figure = drawn(monkeypatch, tmp_path, lambda p: compare_plots.bars(many, p, title="x"))
    assert sum(each.get_visible() for each in figure.axes) == count


def test_bars_of_nothing_measured_are_drawn(tmp_path):
    compare_plots.bars([{"method": "pca"}], tmp_path / "x.png", title="", measure="unseen")
    assert (tmp_path / "x.png").stat().st_size > 1000


def test_curves_have_a_line_a_method_its_range_and_its_name(tmp_path, monkeypatch):
    histories = {
        "dive": {"loss": np.array([[1.0, 3.0], [2.0, 6.0], [0.0, 0.0]])},
        "pca": {},
        "smec": {"loss": np.array([[5.0]])},
    }

    def draw(path):
        compare_plots.curves(histories, "loss", path, title="x")

    (axis,) = drawn(monkeypatch, tmp_path, draw).axes
    lines = [each for each in axis.lines if each.get_linestyle() == "-"]
    assert [list(each.get_ydata()) for each in lines] == [[2, 4, 0], [5]]
    assert [list(each.get_xdata()) for each in lines] == [[1, 2, 3], [1]]
    assert len(axis.collections) == 1
    assert sorted(texts(axis)) == ["dive", "smec"]
    assert axis.get_ylabel() == "loss"
    assert axis.get_xlim() == (0, 3)


def test_a_logarithmic_curve_leaves_zeros_out(tmp_path, monkeypatch):
    histories = {"a": {"loss": np.array([[4.0], [0.0]])}, "b": {"loss": np.zeros((2, 1))}}

    def draw(path):
        compare_plots.curves(histories, "loss", path, title="x", log=True)

    (axis,) = drawn(monkeypatch, tmp_path, draw).axes
    assert axis.get_yscale() == "log"
    np.testing.assert_array_equal(axis.lines[0].get_ydata(), [4, np.nan])
    assert texts(axis) == ["a"]


def test_widths_are_drawn_in_order_over_octaves_with_the_frozen_line(tmp_path, monkeypatch):
    (axis,) = drawn(monkeypatch, tmp_path, DRAWINGS["width_curves"]).axes
    assert axis.get_xscale() == "log"
    np.testing.assert_array_equal(axis.lines[0].get_xydata(), [[16, 0.3], [64, 0.5], [128, 0.6]])
    (dashed,) = [each for each in axis.lines if each.get_linestyle() == "--"]
    assert set(dashed.get_ydata()) == {0.64}
    assert sorted(texts(axis)) == ["dive", "frozen 0.640", "pca"]
    ends = {each.get_text(): each.xy for each in axis.texts}
    assert ends["pca"] == (128, 0.6)
    (whisker,) = axis.collections
    np.testing.assert_allclose(whisker.get_segments()[0], [[16, 0.38], [16, 0.42]])


def test_bytes_are_drawn_in_order_and_lines_without_points_left_out(tmp_path, monkeypatch):
    (axis,) = drawn(monkeypatch, tmp_path, DRAWINGS["bytes_curves"]).axes
    np.testing.assert_array_equal(
        axis.lines[0].get_xydata(), [[16, 0.59], [128, 0.612], [512, 0.61]]
    )
    assert sorted(texts(axis)) == ["dive", "pca"]
    assert axis.get_xlabel() == "bytes a vector"
    shown = {each.get_text() for each in axis.get_xticklabels()}
    assert shown == {"16", "128", "512"}


def test_dynamics_has_four_panels(tmp_path, monkeypatch):
    figure = drawn(monkeypatch, tmp_path, DRAWINGS["dynamics"])
    ratio, losses, energies, leads = figure.axes
    titles = [each.get_title(loc="left") for each in figure.axes]
    assert titles == ["Active triplets", "Losses", "Gradient energies", "Leads of the positives"]
    np.testing.assert_allclose(
        ratio.lines[0].get_ydata(), 100 * HISTORY["active_ratio"].mean(axis=1)
    )
    np.testing.assert_allclose(ratio.lines[1].get_ydata(), 100 * FITTED)
    assert ratio.lines[1].get_linestyle() == "--"
    assert ratio.get_title(loc="right") == "first under 10 % in epoch 3"
    assert sorted(texts(losses)) == sorted(texts(energies)) == ["triplet", "view"]
    assert losses.get_yscale() == energies.get_yscale() == "log"
    np.testing.assert_array_equal(np.isnan(energies.lines[0].get_ydata()), [0, 0, 0, 1, 1])
    assert texts(leads) == ["least", "greatest", "margin 0.7"]
    assert any(set(each.get_ydata()) == {0.7} for each in leads.lines)
    # A term has one colour in both panels.
    assert [each.get_color() for each in losses.lines[:2]] == [
        each.get_color() for each in energies.lines[:2]
    ]


def test_dynamics_without_the_rest_draws_the_ratio_alone(tmp_path, monkeypatch):
    def draw(path):
        ratio = {"active_ratio": np.full((1, 1), 0.4)}
        compare_plots.dynamics(ratio, np.full(1, 0.4), path, title="x")

    figure = drawn(monkeypatch, tmp_path, draw)
    assert [each.get_visible() for each in figure.axes] == [True, False, False, False]
    assert figure.axes[0].get_title(loc="right") == "never under 10 %"


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda p: compare_plots.bars([], p, title=""), "bars: wanted at least one row"),
        (lambda p: compare_plots.bars(ROWS[:1] * 2, p, title=""), "bars: wanted one row a method"),
        (lambda p: compare_plots.curves({}, "loss", p, title=""), "curves: wanted a history with"),
        (
            lambda p: compare_plots.curves({"a": {"loss": np.ones((0, 2))}}, "loss", p, title=""),
            "curves: wanted a history with the column 'loss'",
        ),
        (lambda p: compare_plots.width_curves({}, 0.5, p, title=""), "points: wanted at least one"),
        (lambda p: compare_plots.bytes_curves({"a": []}, p, title=""), "points: wanted at least"),
        (
            lambda p: compare_plots.dynamics({"loss": np.ones((2, 1))}, FITTED, p, title=""),
            r"dynamics: wanted the column 'active_ratio', got \['loss'\]",
        ),
    ],
)
def test_nothing_to_draw_is_an_error_that_writes_nothing(tmp_path, draw, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        draw(tmp_path / "x.png")
    assert list(tmp_path.iterdir()) == []


def test_neither_pyplot_nor_an_early_matplotlib():
    program = (
        "import sys, pathlib, tempfile\n"
        "from dive_jax.report import compare_plots\n"
        "assert 'matplotlib' not in sys.modules\n"
        "path = pathlib.Path(tempfile.mkdtemp()) / 'x.png'\n"
        "compare_plots.bars([{'method': 'pca', 'ndcg@10': 0.5}], path, title='')\n"
        "sys.exit('matplotlib.pyplot' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=120).returncode == 0
