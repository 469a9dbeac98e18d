import json
from pathlib import Path

import numpy as np
import pytest

from dive_jax import sources
from dive_jax.types import InputError
from tests import toy


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data root without vectors; its third query shares no word with any document."""
    monkeypatch.setenv("DIVE_JAX_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "data" / "words"
    (folder / "qrels").mkdir(parents=True)
    stems = ["red", "green", "blue", "wind", "rain", "snow", "iron", "wood"]
    texts = [f"{a} {b} together" for a in stems for b in stems]
    documents = [{"_id": f"d{i}", "text": text} for i, text in enumerate(texts)]
    queries = [{"_id": f"q{i}", "text": text} for i, text in enumerate(["red", "snow", "zzz"])]
    for name, records in (("corpus", documents), ("queries", queries)):
        lines = "".join(json.dumps(each) + "\n" for each in records)
        (folder / f"{name}.jsonl").write_text(lines)
    (folder / "qrels" / "test.tsv").write_text("q0\td0\t1\nq1\td45\t1\nq2\td3\t1\n")
    return tmp_path / "data"


def test_queries_without_a_known_word_are_dropped_and_counted(words: Path):
    source = sources.load("words", "lsa", root=str(words), lsa_dim=6)
    assert source.ids.query == ("q0", "q1")
    assert set(source.collection.qrels["test"]) == {"q0", "q1"}
    assert source.counts["judged queries without a known word, dropped"] == 1
    np.testing.assert_allclose(np.linalg.norm(source.vectors.document, axis=1), 1, atol=1e-6)


def test_the_built_in_encoder_is_fitted_once_and_never_under_the_data_root(words: Path):
    before = sorted(words.rglob("*"))
    first = sources.load("words", "lsa", root=str(words), lsa_dim=6)
    cached = sorted((words.parent / "cache").rglob("*.npy"))
    stamps = [path.stat().st_mtime_ns for path in cached]
    again = sources.load("words", "lsa", root=str(words), lsa_dim=6, verify=True)
    assert sorted(words.rglob("*")) == before
    assert [path.stat().st_mtime_ns for path in cached] == stamps
    assert first.store.fingerprint == again.store.fingerprint
    wider = sources.load("words", "lsa", root=str(words), lsa_dim=7)
    assert wider.store.encoder_fingerprint != first.store.encoder_fingerprint


def test_vectors_alone_are_enough_where_texts_are_absent(tmp_path: Path):
    folder = toy.write(tmp_path)
    (folder / "corpus.jsonl").unlink()
    (folder / "queries.jsonl").unlink()
    source = sources.load("toy", toy.ENCODER, root=str(tmp_path))
    assert source.collection.document_digests is None
    assert any("identical texts" in what for what in source.counts)


def test_parts_of_a_dataset_are_all_wanted(tmp_path: Path):
    toy.write(tmp_path / "cqadupstack", "android")
    with pytest.raises(InputError, match="english: no such dataset"):
        sources.check_at_hand("cqadupstack", str(tmp_path))


def test_real_collections_load(data_root: Path):
    source = sources.load("scifact", "all-MiniLM-L6-v2", root=str(data_root), verify=True)
    assert (len(source.ids.document), source.store.dim) == (5183, 384)
