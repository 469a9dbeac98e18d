"""The study of indexes, at its smallest: no training, toy vectors."""

import json
from pathlib import Path

import numpy as np
import pytest

from dive_jax import study
from dive_jax.retrieval import indexes
from dive_jax.retrieval.exact import Ranking
from dive_jax.studies.index_recall import recall
from tests import toy

pytest.importorskip("faiss")


def ranking(rows: list[list[int]]) -> Ranking:
    return Ranking(np.zeros(np.shape(rows), np.float32), np.array(rows, np.int32))


def test_recall_counts_what_exact_search_found():
    exact, found = ranking([[3, 1, 2], [5, 6, 7]]), ranking([[1, 3, 9], [8, -1, -1]])
    assert recall(found, exact, 1) == 0.0
    assert recall(found, exact, 2) == 0.5
    assert recall(found, exact, 3) == pytest.approx((2 / 3 + 0) / 2)
    assert recall(exact, exact, 100) == 1.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data")
    toy.write(root, documents=260)
    arguments = [*toy.FLAGS[:3], "--study=indexes", "--method=pca", "--widths=4,64,16", "--smoke"]
    assert study.main([*arguments, f"--data_root={root}", f"--run_dir={root / 'run'}"]) == 0
    return root / "run"


def test_a_row_a_width_and_kind(folder: Path):
    for end in ("json", "csv", "md", "png", "flags"):
        assert (folder / f"indexes.{end}").is_file(), end
    rows = json.loads((folder / "indexes.json").read_text())["rows"]
    assert [(row["dim"], row["kind"]) for row in rows] == [
        (dim, kind) for dim in (4, 16) for kind in indexes.KINDS
    ]
    flat = [row for row in rows if row["kind"] == "flat"]
    assert all(row["recall@10"] == row["recall@100"] == [1.0, 0.0] for row in flat)
    assert all(4 * row["dim"] < row["bytes"] < 4 * row["dim"] + 1 for row in flat)
    scores = json.loads(next(folder.glob("cells/toy/*/scores/pca.json")).read_text())
    assert np.mean([each["ndcg@10"] for each in scores.values()]) in [
        pytest.approx(row["ndcg@10"][0]) for row in flat
    ]
    for row in rows:
        assert 0.5 < row["recall@10"][0] <= 1
