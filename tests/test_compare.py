"""The comparison from outside: its files, its table, and that nothing is done twice."""

import csv
import json
import shutil
from pathlib import Path

import pytest

from dive_jax import compare, train
from tests import toy

METHODS = ["truncate", "random_projection", "pca", "frozen", "dive", "dive_batch_linear"]


def flags(root: Path, folder: Path, *more: str) -> list[str]:
    arguments = [f"--data_root={root}", f"--run_dir={folder}", f"--methods={','.join(METHODS)}"]
    return [*toy.FLAGS, *arguments, "--epochs=2", *more]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    toy.write(folder)
    toy.write(folder, "other", seed=5)
    return folder


@pytest.fixture(scope="module")
def run(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "both"
    assert compare.main(flags(root, folder, "--datasets=toy,other")) == 0
    return folder


def test_all_files_are_there(run: Path):
    wanted = {"compare.json", "compare.csv", "compare.md", "compare.png", "compare.flags"}
    wanted |= {"quantised.csv", "quantised.md", "quantised.png"}
    assert wanted <= {each.name for each in run.iterdir()}
    assert (run / "compare" / "toy" / "curves.png").is_file()


def test_methods_are_listed_as_in_metrics(run: Path):
    told = json.loads((run / "compare.json").read_text())
    assert list(told["methods"]) == METHODS
    assert list(told["datasets"]) == ["toy", "other"]
    for name in METHODS:
        values = [told["datasets"][d]["methods"][name]["ndcg@10"]["mean"] for d in ("toy", "other")]
        assert told["methods"][name]["ndcg@10"]["mean"] == pytest.approx(sum(values) / 2)
    (pair,) = told["datasets"]["toy"]["comparisons"]
    scores = told["datasets"]["toy"]["methods"]
    ranked = sorted(
        (n for n in METHODS if n != "frozen"), key=lambda n: -scores[n]["ndcg@10"]["mean"]
    )
    assert pair == f"{ranked[0]} - {ranked[1]}"


def test_every_row_is_tested_against_the_full_vectors_on_unseen_documents(
    run: Path, root: Path, capsys: pytest.CaptureFixture[str]
):
    told = json.loads((run / "compare.json").read_text())["datasets"]["toy"]
    tests, methods = told["unseen_comparisons"], told["methods"]
    assert list(tests) == [f"{name} - frozen" for name in METHODS if name != "frozen"]
    frozen = methods["frozen"]["unseen"]["ndcg@10"]["mean"]
    for pair, test in tests.items():
        name = pair.removesuffix(" - frozen")
        assert test["queries"] == told["queries"]["test_unseen"] > 0
        expected = methods[name]["unseen"]["ndcg@10"]["mean"] - frozen
        assert test["difference"] == pytest.approx(expected)
    assert compare.main(flags(root, run, "--datasets=toy,other")) == 0
    best = max(tests, key=lambda pair: tests[pair]["difference"])
    assert f"{best}, unseen documents: " in capsys.readouterr().out


def test_the_csv_has_a_row_a_dataset_and_method(run: Path):
    with open(run / "compare.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 3 * len(METHODS)
    assert {row["dataset"] for row in rows} == {"toy", "other", "mean"}


def test_dive_is_the_same_as_in_the_main_job(run: Path, root: Path, tmp_path: Path):
    arguments = [*toy.FLAGS, f"--data_root={root}", f"--run_dir={tmp_path / 'run'}", "--epochs=2"]
    assert train.main(arguments) == 0
    alone = json.loads((tmp_path / "run" / "metrics.json").read_text())["methods"]["dive"]
    told = json.loads((run / "compare.json").read_text())
    beside = told["datasets"]["toy"]["methods"]["dive"]
    assert alone == beside


def test_what_is_finished_is_not_done_again(
    run: Path, root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder = tmp_path / "run"
    shutil.copytree(run, folder)
    (folder / "compare.json").unlink()
    (cell,) = (folder / "cells" / "toy").glob("dive_batch_linear-*")
    shutil.rmtree(cell / "adapters" / "dive_batch_linear-1")
    stamps = {p: p.stat().st_mtime_ns for p in folder.rglob("adapter.safetensors")}
    assert compare.main(flags(root, folder, "--datasets=toy,other")) == 0
    told = capsys.readouterr()
    assert "training dive_batch_linear" in told.err
    assert "training dive:" not in told.err
    assert {p: p.stat().st_mtime_ns for p in stamps} == stamps
    assert (folder / "compare.json").read_bytes() == (run / "compare.json").read_bytes()
    assert compare.main(flags(root, folder, "--datasets=toy,other")) == 0
    assert "is finished" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        (["--methods=pca,magic"], "--method: wanted one of frozen"),
        (["--datasets=toy,absent"], "absent: no such dataset"),
        (["--datasets=toy,toy"], "--datasets: wanted distinct values"),
        (["--methods="], "--methods: wanted at least one value"),
        (["--dim=40"], "--dim: wanted at most the full width 32"),
    ],
)
def test_bad_input_leaves_nothing(
    more: list[str], wanted: str, root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert compare.main(flags(root, tmp_path / "run", *more)) == 2
    shown = capsys.readouterr().err
    assert wanted in shown
    assert shown.count("dive_jax.compare: ") == 1
    assert not (tmp_path / "run").exists()
