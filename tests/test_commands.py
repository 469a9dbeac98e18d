"""The commands from outside: what they print and leave, and that a kill loses nothing."""

import csv
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dive_jax import compress, evaluate, train
from dive_jax.methods.protocol import load
from tests import toy

METHODS = ["frozen", "truncate", "pca", "dive"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    toy.write(folder)
    toy.write(folder, "other", documents=30, queries=24, seed=7)
    return folder


@pytest.fixture(scope="module")
def run(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of the toy dataset."""
    folder = tmp_path_factory.mktemp("runs") / "toy"
    assert train.main(flags(root, folder)) == 0
    return folder


def flags(root: Path, folder: Path, *more: str) -> list[str]:
    return [*toy.FLAGS, f"--data_root={root}", f"--run_dir={folder}", *more]


def command(name: str, arguments: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", f"dive_jax.{name}", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def metrics_of(folder: Path) -> dict:
    return json.loads((folder / "metrics.json").read_text())


def test_train_leaves_all_that_is_promised(run: Path):
    names = {each.name for each in run.iterdir()}
    wanted = {"metrics.json", "options.flags", "history.csv", "per_query.csv", "training.png"}
    wanted |= {"checkpoints", "adapters", "split.json", "environment.json", "report.html"}
    assert wanted <= names
    assert not [name for name in names if "partial" in name]


def test_metrics_have_the_promised_shape(run: Path):
    metrics = metrics_of(run)
    assert metrics["format_version"] == 1
    assert (metrics["dataset"], metrics["encoder"]) == ("toy", toy.ENCODER)
    assert (metrics["full_dim"], metrics["dim"]) == (toy.FULL_DIM, 4)
    assert (metrics["split"], metrics["protocol"], metrics["seeds"]) == (
        "official",
        "final",
        [1, 2],
    )
    assert metrics["queries"] == {"train": 32, "test": 16, "test_unseen": 16}
    assert list(metrics["methods"]) == METHODS
    for name, entry in metrics["methods"].items():
        assert entry["dim"] == (toy.FULL_DIM if name == "frozen" else 4)
        for scores in (entry, entry["unseen"]):
            for measure in ("ndcg@10", "recall@10"):
                assert set(scores[measure]) == {"mean", "std", "per_seed"}
                assert len(scores[measure]["per_seed"]) == (2 if name == "dive" else 1)
    assert metrics["methods"]["pca"]["ndcg@10"]["std"] == 0
    assert {"jax", "flax", "optax", "python"} <= set(metrics["versions"])
    assert {"encoder", "vectors", "texts", "split"} == set(metrics["fingerprints"])


def test_per_query_results_average_to_the_metrics(run: Path):
    with open(run / "per_query.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    metrics = metrics_of(run)
    for method in METHODS:
        mine = [row for row in rows if row["method"] == method]
        mean = np.mean([float(row["ndcg@10"]) for row in mine])
        assert mean == pytest.approx(metrics["methods"][method]["ndcg@10"]["mean"], abs=1e-12)
    assert len(rows) == 16 * (3 + 2)


def test_history_has_a_row_an_epoch_and_seed(run: Path):
    with open(run / "history.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [(row["epoch"], row["seed"]) for row in rows] == [
        (str(epoch), str(seed)) for epoch in (1, 2, 3) for seed in (1, 2)
    ]
    wanted = {"loss", "triplet", "view", "geometry", "active_ratio", "least_lead", "greatest_lead"}
    assert wanted | {"triplet_energy", "view_energy", "geometry_energy"} <= set(rows[0])


def test_the_frozen_row_is_what_numpy_finds(run: Path):
    documents, queries = toy.vectors(60, 48, 0)
    scores = []
    for query in range(32, 48):
        cosines = documents @ queries[query] / np.linalg.norm(documents, axis=1)
        rank = int((cosines > cosines[query]).sum())
        scores.append(1 / np.log2(rank + 2) if rank < 10 else 0.0)
    mean = metrics_of(run)["methods"]["frozen"]["ndcg@10"]["mean"]
    assert mean == pytest.approx(np.mean(scores), abs=1e-9)


def test_a_finished_run_says_so_and_prints_the_table(
    run: Path, root: Path, capsys: pytest.CaptureFixture[str]
):
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()}
    assert train.main(flags(root, run)) == 0
    shown = capsys.readouterr()
    assert "is finished; nothing to do" in shown.err
    for method in METHODS:
        assert f"\n{method}" in shown.out
    after = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()}
    assert before == after


def test_the_options_file_starts_the_same_run(run: Path, capsys: pytest.CaptureFixture[str]):
    assert train.main([f"--flagfile={run / 'options.flags'}"]) == 0
    assert "is finished" in capsys.readouterr().err


def test_other_options_are_refused_by_name(
    run: Path, root: Path, capsys: pytest.CaptureFixture[str]
):
    assert train.main(flags(root, run, "--temperature=0.5")) == 2
    assert "--temperature=0.5 (was 0.1)" in capsys.readouterr().err


def test_evaluate_finds_the_same_scores(run: Path, root: Path, tmp_path: Path):
    arguments = [f"--run={run}", f"--data_root={root}", f"--out={tmp_path / 'again'}"]
    assert evaluate.main(arguments) == 0
    again = metrics_of(tmp_path / "again")
    assert again["methods"] == metrics_of(run)["methods"]
    assert (tmp_path / "again" / "per_query.csv").read_bytes() == (
        run / "per_query.csv"
    ).read_bytes()


def test_evaluate_takes_another_dataset_of_the_same_encoder(run: Path, root: Path):
    arguments = [f"--run={run}", f"--data_root={root}", "--dataset=other", "--split=protocol"]
    assert evaluate.main(arguments) == 0
    found = metrics_of(run / "evaluations" / f"other-{toy.ENCODER}-test-protocol")
    assert found["dataset"] == "other"
    assert found["queries"]["test_unseen"] == found["queries"]["test"]


@pytest.fixture
def vectors(root: Path) -> Path:
    return root / "toy" / "embeddings" / toy.ENCODER / "documents.npy"


def test_compress_equals_the_adapter_and_says_what_it_did(
    run: Path, vectors: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    out = tmp_path / "out.npy"
    assert compress.main([f"--run={run}", f"--vectors={vectors}", f"--out={out}"]) == 0
    shown = capsys.readouterr()
    assert "60 rows, 32 to 4 coordinates" in shown.out
    assert "not checked" not in shown.err
    wanted = load(run / "adapters" / "dive-1").compress(np.load(vectors))
    np.testing.assert_allclose(np.load(out), wanted, atol=1e-6)
    manifest = json.loads((tmp_path / "out.manifest.json").read_text())
    assert (manifest["encoder"], manifest["dim"], manifest["rows"]) == (toy.ENCODER, 4, 60)
    names = sorted(each.name for each in tmp_path.iterdir())
    assert names == ["out.ids.txt", "out.manifest.json", "out.npy"]
    assert (tmp_path / "out.ids.txt").read_text() == vectors.with_suffix(".ids.txt").read_text()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_compress_takes_any_float_file(
    run: Path, tmp_path: Path, dtype: str, order: str, capsys: pytest.CaptureFixture[str]
):
    documents, _ = toy.vectors(60, 48, 0)
    given = np.asarray(documents, dtype, order="F" if order == "F" else "C")
    np.save(tmp_path / "in.npy", given)
    out = tmp_path / "out.npy"
    arguments = [f"--run={run}", f"--vectors={tmp_path / 'in.npy'}", f"--out={out}"]
    assert compress.main([*arguments, "--chunk_rows=7", "--dtype=float16", "--seed=2"]) == 0
    assert "its encoder is not checked" in capsys.readouterr().err
    wanted = load(run / "adapters" / "dive-2").compress(given)
    assert np.load(out).dtype == np.float16
    np.testing.assert_allclose(np.load(out), wanted, atol=1e-3)


def test_compress_again_is_no_work_but_a_foreign_file_is_kept(
    run: Path, vectors: Path, tmp_path: Path
):
    arguments = [f"--run={run}", f"--vectors={vectors}", f"--out={tmp_path / 'out.npy'}"]
    assert compress.main(arguments) == 0
    stamp = (tmp_path / "out.npy").stat().st_mtime_ns
    assert compress.main(arguments) == 0
    assert (tmp_path / "out.npy").stat().st_mtime_ns == stamp
    assert compress.main([*arguments, "--dtype=float16"]) == 2
    assert (tmp_path / "out.npy").stat().st_mtime_ns == stamp


def test_a_community_dataset_is_the_equal_mean_of_its_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from dive_jax import sources

    monkeypatch.setattr(sources, "COMMUNITIES", {"many": ("a", "b")})
    toy.write(tmp_path / "many", "a", seed=1)
    toy.write(tmp_path / "many", "b", seed=2, queries=30)
    folder = tmp_path / "run"
    arguments = flags(tmp_path, folder, "--dataset=many", "--epochs=1")
    assert train.main(arguments) == 0
    whole, parts = metrics_of(folder), [metrics_of(folder / name) for name in ("a", "b")]
    for seed in (0, 1):
        values = [each["methods"]["dive"]["ndcg@10"]["per_seed"][seed] for each in parts]
        mean = whole["methods"]["dive"]["ndcg@10"]["per_seed"][seed]
        assert mean == pytest.approx(np.mean(values), abs=1e-12)
    assert whole["queries"]["test"] == sum(each["queries"]["test"] for each in parts)


def test_hard_negatives_train_too(root: Path, tmp_path: Path):
    more = ["--negatives=hard", "--epochs=1", "--basis=principal", "--protocol=select"]
    assert train.main(flags(root, tmp_path / "run", *more)) == 0
    assert metrics_of(tmp_path / "run")["protocol"] == "select"


LONG = ["--epochs=150", "--checkpoint_seconds=0.05"]


def settle(process: subprocess.Popen[str], ready: Callable[[], bool], wait_s: float) -> bool:
    """Kills a process a while after something is there; says whether it was still running."""
    deadline = time.monotonic() + 120
    while not ready():
        assert process.poll() in (None, 0), process.communicate()[1]
        if process.poll() == 0 or time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    time.sleep(wait_s)
    running = process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return running


def same_files(one: Path, other: Path, *names: str) -> None:
    for name in names:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


RESULTS = (
    "metrics.json",
    "history.csv",
    "per_query.csv",
    "training.png",
    "report.html",
    "split.json",
    "adapters/dive-1/adapter.safetensors",
    "adapters/dive-2/adapter.safetensors",
    "adapters/pca/adapter.safetensors",
)


@pytest.fixture(scope="module")
def undisturbed(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    done = command("train", flags(root, folder, *LONG))
    _, errors = done.communicate()
    assert done.returncode == 0, errors
    return folder


def kill_and_resume(root: Path, folder: Path, undisturbed: Path, wait_s: float, kills: int) -> int:
    """Returns how many kills hit a running process."""
    hits = 0
    for _ in range(kills):
        process = command("train", flags(root, folder, *LONG))
        hits += settle(process, lambda: any(folder.glob("checkpoints/dive/*/[0-9]*")), wait_s)
    last = command("train", flags(root, folder, *LONG))
    _, errors = last.communicate()
    assert last.returncode == 0, errors
    same_files(undisturbed, folder, *RESULTS)
    return hits


def test_killed_in_training_it_ends_with_the_same_bits(
    root: Path, tmp_path: Path, undisturbed: Path
):
    wait_s = random.Random(os.getpid()).uniform(0, 0.5)
    assert kill_and_resume(root, tmp_path / "run", undisturbed, wait_s, 1) == 1


@pytest.mark.parametrize(
    ("name", "more"), [("compare", ["--methods=dive,pca"]), ("study", ["--study=dynamics"])]
)
def test_a_study_killed_in_training_ends_with_the_same_bits(
    name: str, more: list[str], root: Path, tmp_path: Path, undisturbed: Path
):
    folder, cell = tmp_path / "run", "cells/toy/dive-*"
    process = command(name, flags(root, folder, *LONG, *more))
    assert settle(process, lambda: any(folder.glob(f"{cell}/checkpoints/dive/*/[0-9]*")), 0.1)
    last = command(name, flags(root, folder, *LONG, *more))
    _, errors = last.communicate()
    assert last.returncode == 0, errors
    (place,) = folder.glob(cell)
    same_files(
        undisturbed, place, *(f"adapters/dive-{seed}/adapter.safetensors" for seed in (1, 2))
    )


@pytest.mark.slow
def test_killed_ten_times_it_ends_with_the_same_bits(root: Path, tmp_path: Path, undisturbed: Path):
    hits = 0
    for round_ in range(5):
        wait_s = random.Random(round_).uniform(0, 1.5)
        hits += kill_and_resume(root, tmp_path / f"run{round_}", undisturbed, wait_s, 2)
    assert hits >= 5


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("many") / "in.npy"
    np.save(path, np.random.default_rng(0).normal(size=(100_000, toy.FULL_DIM)))
    return path


def squeeze(run: Path, many: Path, out: Path) -> list[str]:
    return [f"--run={run}", f"--vectors={many}", f"--out={out}", "--chunk_rows=50"]


@pytest.fixture(scope="module")
def squeezed(run: Path, many: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("squeezed")
    # A process like the others: this one runs under the type checker, which changes last digits.
    done = command("compress", squeeze(run, many, folder / "out.npy"))
    _, errors = done.communicate()
    assert done.returncode == 0, errors
    return folder


def test_compress_killed_ends_with_the_same_bits(
    run: Path, many: Path, squeezed: Path, tmp_path: Path
):
    out, aside = tmp_path / "out.npy", tmp_path / ".out.partial.npy"
    process = command("compress", squeeze(run, many, out))
    assert settle(process, lambda: aside.exists() and aside.stat().st_size > 50_000, 0.0)
    assert not out.exists()
    kept = aside.stat().st_size
    again = command("compress", squeeze(run, many, out))
    _, errors = again.communicate()
    assert again.returncode == 0, errors
    first = int(errors.split("compressing: ")[1].split("/")[0].replace(",", ""))
    assert first >= (kept - 128) // 16 // 50 * 50 > 0, "rows written before the kill are kept"
    same_files(squeezed, tmp_path, "out.npy", "out.manifest.json")


def test_two_processes_do_not_share_a_run(root: Path, tmp_path: Path):
    folder = tmp_path / "run"
    first = command("train", flags(root, folder, "--epochs=100000"))
    try:
        while not (folder / "environment.json").exists():
            assert first.poll() is None, first.communicate()[1]
            time.sleep(0.05)
        second = command("train", flags(root, folder, "--epochs=100000"))
        _, errors = second.communicate()
        assert second.returncode == 2
        assert "another process is working on it" in errors
    finally:
        first.kill()
        first.communicate()
