"""Logged values as CSV, also of seeds that were trained at another time."""

from pathlib import Path

import numpy as np

from dive_jax.studies.histories import keep_history, read_history


def test_values_come_back(tmp_path: Path):
    history = {"loss": np.array([[0.1, 0.2], [0.3, 0.4]], np.float32)}
    keep_history(tmp_path / "h.csv", history, [5, 6])
    text = (tmp_path / "h.csv").read_text().splitlines()
    assert text[0] == "epoch,seed,loss"
    assert [line[:3] for line in text[1:]] == ["1,5", "1,6", "2,5", "2,6"]
    found = read_history(tmp_path / "h.csv")
    np.testing.assert_array_equal(found["loss"].astype(np.float32), history["loss"])


def test_seeds_are_added_and_replaced(tmp_path: Path):
    path = tmp_path / "h.csv"
    keep_history(path, {"loss": np.array([[1.0], [2.0], [3.0]])}, [5])
    keep_history(path, {"loss": np.array([[7.0], [8.0]])}, [6])
    found = read_history(path)["loss"]
    np.testing.assert_array_equal(found, [[1, 7], [2, 8], [3, np.nan]])
    keep_history(path, {"loss": np.array([[9.0]])}, [5])
    np.testing.assert_array_equal(np.nansum(read_history(path)["loss"], axis=0), [15, 9])


def test_no_file_is_no_history(tmp_path: Path):
    assert read_history(tmp_path / "absent.csv") == {}
