"""Studies of the operator theory, at their smallest."""

import csv
import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from dive_jax import study
from dive_jax.options import INDEXES, THEORY
from dive_jax.studies import selection, theory, two_view
from dive_jax.studies.operator_losses import moment_of
from tests import toy


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs") / "theory"
    toy.write(place.parent, queries=96, documents=96)
    for name in THEORY:
        arguments = [*toy.FLAGS[:3], f"--data_root={place.parent}", f"--run_dir={place}"]
        assert study.main([*arguments, f"--study={name}", "--smoke"]) == 0
    return place


def told(folder: Path, name: str) -> dict:
    for end in ("json", "csv", "md", "png", "flags"):
        assert (folder / f"{name}.{end}").is_file(), end
    return json.loads((folder / f"{name}.json").read_text())


def test_every_theory_is_a_study():
    assert tuple(theory.STUDIES) == (*THEORY, *INDEXES)


def test_calibration_is_near_its_limits(folder: Path):
    rows = told(folder, "calibration")["rows"]
    assert [row["ratio"] for row in rows] == 2 * [0.0, 0.5, 1.0, 2.0]
    for row in rows[4:]:  # n = 4096; 2,000 draws leave a standard error of 0.4 %
        assert row["shared_risk"] == pytest.approx(row["shared_limit"], rel=0.02)
        assert row["dual_risk"] == pytest.approx(row["dual_limit"], rel=0.02)
        assert row["prob_dual"] == pytest.approx(row["prob_limit"], abs=0.05)
    with open(folder / "calibration.csv", newline="") as stream:
        assert len(list(csv.DictReader(stream))) == len(rows)


def test_two_views_gain_from_a_turn(folder: Path):
    metrics = told(folder, "two_view")
    gaps = {(row["rank"], row["angle"], row["n"]): row["gap"] for row in metrics["rows"]}
    assert gaps[8, 1.2, 2048] > 0.02 > gaps[8, 0.0, 2048]
    assert metrics["first_positive"]["8"]["1.2"] in (32, 256, 2048)
    assert all(row["error"] >= 0 for row in metrics["rows"])


def test_a_turn_is_a_rotation_that_leaves_other_planes_alone():
    matrix = two_view.turn(0.4)
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(32), atol=1e-12)
    assert matrix[0, 0] == pytest.approx(np.cos(0.4))
    np.testing.assert_array_equal(matrix[16:, 16:], np.eye(16))


def test_selection_tells_three_rules(folder: Path):
    metrics = told(folder, "selection")
    (entry,) = metrics["selection"].values()
    assert set(entry["regret"]) == {"shared", "dual", "cars"}
    assert min(entry["regret"].values()) >= 0
    assert entry["accuracy"]["shared"] + entry["accuracy"]["dual"] == pytest.approx(1)
    assert all(len(row["folds"]) == 5 for row in metrics["rows"])


def test_slopes_are_counted(folder: Path):
    metrics = told(folder, "operator_risk")
    assert metrics["slopes"] == 2 * len(metrics["rows"]) == 8
    assert metrics["positive_slopes"] == sum(
        value > 0 for row in metrics["rows"] for value in row["slopes"]
    )
    row = metrics["rows"][0]
    assert np.array(row["gaps"]).shape == (2, len(row["sizes"]))


def test_estimates_stand_beside_the_held_out_gain(folder: Path):
    metrics = told(folder, "estimation")
    kinds = {(row["data"], row["estimate"]) for row in metrics["rows"]}
    assert kinds == {(d, e) for d in ("simulation", "embeddings") for e in ("raw", "corrected")}
    raw = [row["estimated"] for row in metrics["rows"] if row["estimate"] == "raw"]
    assert min(raw) >= 0
    assert metrics["calibration_error"]["simulation"]["raw"] > 0


def test_turned_queries_are_trained_and_scored(folder: Path):
    rows = told(folder, "rotation")["rows"]
    assert [row["degrees"] for row in rows] == [90]
    for row in rows:
        gap = row["dual"][0] - row["shared"][0]
        assert row["gap"][0] == pytest.approx(gap)
        assert 0 < row["shared"][0] <= 1
    metrics = told(folder, "rank_by_data")
    (row,) = metrics["rows"]
    assert (row["rank"], row["n"]) == (4, 32)
    assert metrics["dual_wins"] == {"32": {"dual": int(row["gap"][0] > 0), "cells": 1}}


def test_the_simulated_moment_is_what_samples_tend_to():
    triples, moment = two_view.sample(0.8, 2048, 0)
    seen = np.asarray(moment_of(triples))
    size = np.linalg.norm(moment)
    assert np.linalg.norm(seen - moment) < 0.35 * size < np.linalg.norm(seen - moment.T)


def test_regret_accuracy_and_wins_are_counted():
    cell = {"shared": [0.5, 0.3], "dual": [0.4, 0.3], "cars": [True, True]}
    found = selection.summary([[cell], [cell | {"cars": [False, False]}]])
    assert found["regret"] == pytest.approx({"shared": 0.05, "dual": 0.0, "cars": 0.025})
    # At equal losses shared is right.
    assert found["accuracy"] == {"shared": 0.5, "dual": 0.5, "cars": 0.5}
    assert found["wins"] == {"shared": 0, "dual": 1, "cars": 0}


def test_samples_are_nested_and_folds_part_all_rows():
    parts = selection.folds(23)
    assert sorted(np.concatenate(parts).tolist()) == list(range(23))
    samples = selection.nested(np.arange(5000), 1)
    assert [len(each) for each in samples] == [32, 64, 128, 256, 512, 1024, 2048, 4096]
    for small, large in itertools.pairwise(samples):
        np.testing.assert_array_equal(small, large[: len(small)])


def test_what_is_finished_is_read(folder: Path, capsys: pytest.CaptureFixture[str]):
    before = (folder / "two_view.json").read_bytes()
    (folder / "two_view.json").unlink()
    stamps = {path: path.stat().st_mtime_ns for path in (folder / "two_view").iterdir()}
    arguments = [*toy.FLAGS[:3], f"--data_root={folder.parent}", f"--run_dir={folder}"]
    arguments += ["--study=two_view"]
    assert study.main([*arguments, "--smoke"]) == 0
    assert (folder / "two_view.json").read_bytes() == before
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps
    assert study.main(arguments) == 2
    assert "--smoke" in capsys.readouterr().err
