"""The training figure: whole files, repeating bytes, and what is drawn."""

import subprocess
import sys

import numpy as np
import pytest

from dive_jax.report import plots

EPOCHS = np.arange(1, 6)[:, None]
HISTORY = {
    "active_ratio": 0.9**EPOCHS * np.ones((1, 3)),
    "triplet": 0.3 / EPOCHS * np.array([[0.9, 1.0, 1.1]]),
    "view": 3 + 1 / EPOCHS * np.ones((1, 3)),
    "geometry": np.full((5, 3), 0.004),
    "loss": np.ones((5, 3)),
}


def drawn(monkeypatch, history, tmp_path, **settings):
    """Returns the figure that would be saved."""
    kept = []
    monkeypatch.setattr(plots, "save", lambda figure, path: kept.append(figure))
    plots.training_curves(history, tmp_path / "x.png", **settings)
    return kept[0]


def test_the_same_history_gives_the_same_whole_file(tmp_path):
    for name in ("a.png", "b.png"):
        plots.training_curves(HISTORY, tmp_path / "new" / name, title="scifact, 64 wide")
    first, second = ((tmp_path / "new" / name).read_bytes() for name in ("a.png", "b.png"))
    assert first == second
    assert first.startswith(b"\x89PNG\r\n")
    assert first.endswith(b"IEND\xaeB`\x82")
    assert b"tEXt" not in first
    assert b"tIME" not in first
    assert sorted(each.name for each in (tmp_path / "new").iterdir()) == ["a.png", "b.png"]


def test_four_panels_with_a_line_a_seed_and_their_mean(tmp_path, monkeypatch):
    figure = drawn(monkeypatch, HISTORY, tmp_path, title="A title")
    assert figure.get_suptitle() == "A title"
    titles = [axis.get_title(loc="left") for axis in figure.axes]
    assert titles == ["Active triplets", "Triplet loss", "Head contrast", "Geometry loss"]
    for axis in figure.axes:
        assert len(axis.lines) == 4
        assert axis.get_ylabel()
    assert [axis.get_xlabel() for axis in figure.axes] == ["", "", "epoch", "epoch"]
    ratio, triplet = figure.axes[:2]
    np.testing.assert_allclose(ratio.lines[-1].get_ydata(), 100 * 0.9 ** EPOCHS[:, 0])
    np.testing.assert_allclose(triplet.lines[-1].get_ydata(), 0.3 / EPOCHS[:, 0])
    np.testing.assert_allclose(triplet.lines[0].get_ydata(), 0.27 / EPOCHS[:, 0])
    np.testing.assert_array_equal(triplet.lines[0].get_xdata(), EPOCHS[:, 0])
    assert ratio.get_ylim() == (0, 100)
    assert ratio.get_title(loc="right") == "59.0 % at epoch 5"


def test_one_seed_draws_one_line(tmp_path, monkeypatch):
    one = {name: column[:, :1] for name, column in HISTORY.items()}
    assert [len(axis.lines) for axis in drawn(monkeypatch, one, tmp_path).axes] == [1] * 4


@pytest.mark.parametrize("names", [["triplet"], ["triplet", "view"], ["active_ratio", "triplet"]])
@pytest.mark.parametrize("epochs", [1, 2])
def test_fewer_columns_and_epochs_are_drawn(tmp_path, names, epochs):
    history = {name: HISTORY[name][:epochs].astype(np.float32) for name in names}
    plots.training_curves(history, tmp_path / "x.png")
    assert (tmp_path / "x.png").stat().st_size > 1000


def test_values_of_zero_and_none_are_drawn(tmp_path):
    zeros = {name: np.zeros((4, 2)) for name in HISTORY}
    zeros["view"] = np.full((4, 2), np.nan)
    plots.training_curves(zeros, tmp_path / "x.png")
    assert (tmp_path / "x.png").exists()


@pytest.mark.parametrize("history", [{}, {"loss": np.ones((2, 1))}, {"view": np.ones((0, 2))}])
def test_nothing_to_draw_is_an_error_that_writes_nothing(tmp_path, history):
    with pytest.raises(ValueError, match="wanted one of the columns"):
        plots.training_curves(history, tmp_path / "x.png")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_drawing_leaves_the_old_picture(tmp_path, monkeypatch):
    (tmp_path / "x.png").write_bytes(b"old")
    from matplotlib.figure import Figure

    def fail(self, path, **settings):
        path.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(Figure, "savefig", fail)
    with pytest.raises(OSError, match="disk full"):
        plots.training_curves(HISTORY, tmp_path / "x.png")
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("x.png", b"old")]


def test_pyplot_stays_out(tmp_path):
    program = (
        "import sys, numpy, pathlib\n"
        "from dive_jax.report.plots import training_curves\n"
        "training_curves({'triplet': numpy.ones((2, 2))}, pathlib.Path(sys.argv[1]))\n"
        "sys.exit('matplotlib.pyplot' in sys.modules)"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "x.png")]
    assert subprocess.run(command, timeout=120).returncode == 0
