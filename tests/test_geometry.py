"""The selector from outside: its choice, its files, and what it refuses."""

import json
from pathlib import Path

import numpy as np
import pytest

from dive_jax import compress, geometry
from dive_jax.studies.geometry import boundary
from tests import toy

FLAGS = ["--dataset=toy", f"--encoder={toy.ENCODER}", "--split=official", "--ranks=2,3"]


def flags(root: Path, folder: Path, *more: str) -> list[str]:
    return [*FLAGS, "--splits=4", "--draws=2", f"--data_root={root}", f"--run_dir={folder}", *more]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    toy.write(folder, queries=96, documents=96)
    toy.write(folder, "few", queries=4, documents=60)
    toy.write(folder, "one", queries=8, documents=1)
    return folder


@pytest.fixture(scope="module")
def run(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    assert geometry.main(flags(root, folder)) == 0
    return folder


def test_it_tells_a_choice_a_rank_and_its_evidence(run: Path):
    told = json.loads((run / "geometry.json").read_text())
    assert list(told["ranks"]) == ["2", "3"]
    assert told["queries"] == 64
    for each in told["ranks"].values():
        assert each["choice"] == ("dual" if each["score"] > 0 else "shared")
        assert [len(scores) for scores in each["by_size"].values()] == [2, 1]
        assert {"signal", "cost", "changes_at", "spread"} <= each.keys()
    assert (run / "geometry.png").is_file()


def test_it_goes_on_where_it_stopped(
    run: Path, root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    before = (run / "geometry.json").read_bytes()
    stamps = {path: path.stat().st_mtime_ns for path in (run / "scores").iterdir()}
    (run / "geometry.json").unlink()
    assert geometry.main(flags(root, run)) == 0
    assert (run / "geometry.json").read_bytes() == before
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps
    assert geometry.main(flags(root, run)) == 0
    assert "is finished" in capsys.readouterr().err
    assert geometry.main(flags(root, run, "--splits=5")) == 2
    assert "--splits=5 (was 4)" in capsys.readouterr().err


def test_both_operators_are_adapters_for_either_side(run: Path, root: Path, tmp_path: Path):
    vectors = root / "toy" / "embeddings" / toy.ENCODER / "queries.npy"
    made = {}
    for name in ("shared-2", "dual-2"):
        for side in ("query", "document"):
            out = tmp_path / f"{name}-{side}.npy"
            arguments = [f"--run={run}", f"--method={name}", f"--side={side}"]
            assert compress.main([*arguments, f"--vectors={vectors}", f"--out={out}"]) == 0
            made[name, side] = np.load(out)
    np.testing.assert_array_equal(made["shared-2", "query"], made["shared-2", "document"])
    assert np.abs(made["dual-2", "query"] - made["dual-2", "document"]).max() > 1e-6
    assert not np.allclose(np.linalg.norm(made["dual-2", "query"], axis=1), 1)


def test_the_boundary_is_found_again():
    counts = np.array([32.0, 32.0, 64.0, 128.0, 512.0])
    found = boundary(counts, 3.0 - 600.0 / counts)
    assert (found["signal"], found["cost"], found["changes_at"]) == pytest.approx((3, 600, 200))
    assert boundary(counts, -3.0 - 600.0 / counts)["changes_at"] is None
    assert boundary(counts[:2], counts[:2])["signal"] is None


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        (["--ranks=4,33"], "--ranks: wanted at most the full width 32, got 33"),
        (["--ranks="], "--ranks: wanted at least one value"),
        (["--ranks=two"], "--ranks: wanted whole numbers"),
        (["--dataset=few"], "few: wanted at least 4 training queries with a negative, got 2"),
        (["--dataset=one"], "no document of 1 documents is left as a negative"),
        (["--dataset=absent"], "absent: no such dataset"),
    ],
)
def test_bad_input_leaves_nothing(
    more: list[str], wanted: str, root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert geometry.main(flags(root, tmp_path / "run", *more)) == 2
    shown = capsys.readouterr().err
    assert wanted in shown
    assert shown.count("dive_jax.geometry: ") == 1
    assert not (tmp_path / "run").exists()
