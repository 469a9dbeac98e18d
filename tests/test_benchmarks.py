"""The benchmarks' common harness, and that every script runs at its smallest size."""

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
SHAPE = {"count": 32, "dim": 8, "ranks": (2,), "dtype": "float64"}
HALVES = np.arange(32).reshape(1, 2, 16)
COLUMNS = (
    *("case", "cores", "peer", "ours_s", "peer_s", "ratio"),
    *("ours_peak_mb", "peer_peak_mb", "max_error"),
)


@pytest.fixture(scope="module")
def harness() -> Any:
    sys.path.insert(0, str(FOLDER))
    try:
        yield importlib.import_module("harness")
    finally:
        sys.path.remove(str(FOLDER))


def sides(harness: Any, halves: np.ndarray) -> tuple[Any, Any]:
    ours = harness.Side("ours", "cars_numpy", "build", SHAPE | {"halves": HALVES})
    peer = harness.Side("the same", "cars_numpy", "build", lambda _: SHAPE | {"halves": halves})
    return ours, peer


def test_sides_that_agree_give_a_row_each_and_a_file(harness: Any, tmp_path: Path):
    ours, peer = sides(harness, HALVES)
    rows = harness.compare(
        "loop",
        ours,
        [peer],
        cores=1,
        check=lambda a, b: harness.close(a, b, 1e-12),
        pairs=2,
        least_s=0.001,
        flops=1e6,
    )
    assert set(COLUMNS) <= set(rows[0])
    assert len(rows[0]["ratios"]) == 2
    assert rows[0]["sides"]["ours"]["threads"] == 1
    assert rows[0]["device_gflops"] > 0
    harness.save(tmp_path, "script", rows)
    harness.save(tmp_path, "script", [rows[0] | {"case": "another"}])
    harness.save(tmp_path, "script", [rows[0] | {"max_error": 1.0}])
    told = json.loads((tmp_path / "script.json").read_text())
    # Measured again, a row takes the place of the earlier one.
    assert [(each["case"], each["max_error"]) for each in told["rows"]] == [
        ("another", 0.0),
        ("loop", 1.0),
    ]
    assert (tmp_path / "script.png").stat().st_size
    assert len(harness.table(rows).splitlines()) == 3


def test_sides_that_disagree_are_not_timed(harness: Any):
    ours, peer = sides(harness, HALVES[:, ::-1, ::-1] // 2)
    with pytest.raises(SystemExit, match=r"loop, the same: the two sides differ by .* nothing"):
        harness.compare("loop", ours, [peer], cores=1, check=lambda a, b: harness.close(a, b, 1e-6))


def test_a_side_that_fails_says_why(harness: Any):
    wrong = harness.Side("ours", "cars_numpy", "build", {"count": 1})
    with pytest.raises(SystemExit, match=r"ours: this side failed[\s\S]*TypeError"):
        harness.compare("loop", wrong, [], cores=1, check=lambda a, b: 0.0)


@pytest.mark.parametrize("peer", [{"a": [1.0, np.nan]}, {"a": [1.0]}, {"b": [1.0, 2.0]}])
def test_results_of_another_shape_name_or_not_finite_do_not_agree(harness: Any, peer: Any):
    with pytest.raises(SystemExit):
        harness.close({"a": [1.0, 2.0]}, peer, 1.0)


def test_differences_are_relative_to_the_greatest_entry(harness: Any):
    assert harness.close([np.array([1.0, 101.0])], [np.array([0.0, 100.0])], 0.02) == 0.01


def test_the_memory_of_a_call_is_what_it_adds(harness: Any):
    worker = importlib.import_module("worker")
    held = np.ones(1 << 20)
    peak = worker.peak_mb(lambda: float((held + np.ones((8, 1 << 20))).sum()))  # two of 64 MiB
    assert 126 < peak < 160


def quick(script: str, out: Path, *more: str) -> list[dict[str, Any]]:
    command = [sys.executable, str(FOLDER / f"{script}.py"), f"--out={out}", "--quick", *more]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = json.loads((out / f"{script}.json").read_text())["rows"]
    assert all(set(COLUMNS) <= set(row) for row in rows)
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("script", ["cars_throughput", "seeds"])
def test_scripts_without_torch_run(script: str, tmp_path: Path):
    assert quick(script, tmp_path, "--pairs=1")


@pytest.mark.torch
@pytest.mark.parametrize(
    ("script", "more", "rows"),
    [
        ("step_throughput", ["--only=dive"], 4),
        ("step_throughput", ["--only=smec"], 2),
        ("loss_throughput", [], 5),
        ("training_run", [], 4),
    ],
)
def test_scripts_run_and_both_sides_agree(script: str, more: list[str], rows: int, tmp_path: Path):
    pytest.importorskip("torch")
    assert len(quick(script, tmp_path, "--pairs=1", *more)) == rows
