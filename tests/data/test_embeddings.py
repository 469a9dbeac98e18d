"""The embedding store: what is opened, how it is checked, and that nothing in it is trusted."""

import json
from pathlib import Path

import numpy as np
import pytest

from dive_jax.data.beir import load_collection
from dive_jax.data.embeddings import Side, load_store, save_store, unit_rows
from dive_jax.types import InputError

DOCUMENT_IDS = ("d1", "d2", "d3")
QUERY_IDS = ("q1", "q2")
DETAILS = {"dataset": "birds", "pooling": "mean", "normalized": True, "max_tokens": 8}


def rows(count: int, dim: int = 4, dtype: type = np.float16, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, dim)).astype(dtype)


def write(folder: Path, **details) -> None:
    save_store(
        folder,
        encoder="tiny",
        documents=Side(DOCUMENT_IDS, rows(3)),
        queries=Side(QUERY_IDS, rows(2, seed=1)),
        details=DETAILS | details,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small, sound store."""
    write(tmp_path / "embeddings" / "tiny")
    return tmp_path / "embeddings" / "tiny"


def change(folder: Path, side: str, key: str, value: object) -> None:
    """Changes one key of one side in the manifest."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["sides"][side][key] = value
    path.write_text(json.dumps(manifest))


def test_what_is_saved_is_loaded(folder: Path) -> None:
    store = load_store(folder, verify=True, document_ids=DOCUMENT_IDS, query_ids=QUERY_IDS)
    assert (store.encoder, store.dim) == ("tiny", 4)
    assert store.sides.document.ids == DOCUMENT_IDS
    assert store.sides.query.row_of == {"q1": 0, "q2": 1}
    assert isinstance(store.sides.document.vectors, np.memmap)
    np.testing.assert_array_equal(store.sides.document.vectors, rows(3))
    np.testing.assert_array_equal(store.sides.query.vectors, rows(2, seed=1))
    assert sorted(each.name for each in folder.parent.iterdir()) == ["tiny"]


def test_the_manifest_has_the_shape_of_the_shipped_ones(folder: Path, data_root: Path) -> None:
    shipped = json.loads(
        (data_root / "scifact/embeddings/all-mpnet-base-v2/manifest.json").read_text()
    )
    ours = json.loads((folder / "manifest.json").read_text())
    assert set(ours) <= set(shipped)
    assert ours["dtype"] == "float16"
    for name in ("documents", "queries"):
        assert list(ours["sides"][name]) == list(shipped["sides"][name])


def test_saving_again_replaces_a_store_and_spares_anything_else(folder: Path) -> None:
    before = load_store(folder)
    write(folder, pooling="last")
    after = load_store(folder, verify=True)
    assert after.encoder_fingerprint != before.encoder_fingerprint
    assert len(before.sides.document.vectors) == 3  # still mapped
    assert sorted(each.name for each in folder.parent.iterdir()) == ["tiny"]
    other = folder.with_name("notes")
    other.mkdir()
    (other / "note.txt").write_text("mine")
    with pytest.raises(InputError, match="notes: exists and is not a store"):
        write(other)
    assert [each.name for each in other.iterdir()] == ["note.txt"]


def test_a_failed_save_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"details: wanted other keys .* got \['sides'\]"):
        write(tmp_path / "tiny", sides={})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("ids", "vectors", "message"),
    [
        (("a", "a"), rows(2), "documents.npy: wanted unique ids, got 1 among 2"),
        (("a", "b"), rows(3), "as many rows as ids .* got 3 rows, 2 ids"),
        (("a", "b\n"), rows(2), r"documents.npy: row 1: id: 'b\\n' holds a tab, newline"),
        (("a", "b"), rows(2) * 0, r"documents.npy: row 0 \(id a\): a row of zeros"),
        (("a", "b"), rows(2, dtype=np.float64), "wanted at least one row of float16 or float32"),
        ((), rows(0), r"wanted at least one row of float16 or float32, got <f2 \(0, 4\)"),
        (("a", "b"), rows(2)[:, :3], "queries.npy: wanted the manifest's width 3, got 4"),
    ],
)
def test_what_would_be_refused_is_not_saved(tmp_path: Path, ids, vectors, message: str) -> None:
    with pytest.raises(InputError, match=message):
        save_store(
            tmp_path / "tiny",
            encoder="tiny",
            documents=Side(ids, vectors),
            queries=Side(QUERY_IDS, rows(2)),
            details={},
        )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_both_types_and_orders_open(folder: Path, dtype: type, order: str) -> None:
    np.save(folder / "documents.npy", np.asarray(rows(3, dtype=dtype), order=order))
    vectors = load_store(folder).sides.document.vectors
    assert vectors.dtype == dtype
    np.testing.assert_array_equal(vectors, rows(3, dtype=dtype))


def test_the_order_of_the_texts_may_differ_and_the_store_keeps_its_own(folder: Path) -> None:
    store = load_store(folder, document_ids=DOCUMENT_IDS[::-1], query_ids=QUERY_IDS[::-1])
    assert store.sides.document.ids == DOCUMENT_IDS


def test_queries_may_be_dropped_by_name_only(tmp_path: Path) -> None:
    write(tmp_path / "a", dropped_queries=["q9"])
    store = load_store(tmp_path / "a", query_ids=(*QUERY_IDS, "q9"))
    assert store.dropped_queries == ("q9",)
    with pytest.raises(
        InputError, match="1 of 4 queries have a text but no vector, the first is q8"
    ):
        load_store(tmp_path / "a", query_ids=(*QUERY_IDS, "q9", "q8"))


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"document_ids": ("d1", "d2")}, "1 of 3 documents have a vector but no text.* is d3"),
        ({"document_ids": ("d0", *DOCUMENT_IDS)}, "1 of 4 documents have a text but no v.* is d0"),
        ({"query_ids": ("q2",)}, "1 of 2 queries have a vector but no text, the first is q1"),
    ],
)
def test_ids_must_be_those_of_the_texts(folder: Path, texts: dict, message: str) -> None:
    with pytest.raises(InputError, match=f"{folder}: {message}"):
        load_store(folder, **texts)


def test_one_encoder_has_one_fingerprint_whatever_it_embedded(tmp_path: Path) -> None:
    write(tmp_path / "a", dataset="one")
    first = load_store(tmp_path / "a")
    write(tmp_path / "a", dataset="two", compute="elsewhere")
    assert load_store(tmp_path / "a").encoder_fingerprint == first.encoder_fingerprint
    for key, value in {
        "pooling": "last",
        "normalized": False,
        "max_tokens": 9,
        "query_prefix": "q: ",
        "document_prefix": "d: ",
        "source": "elsewhere",
        "encoder_fingerprint_extra": "fitted on birds",
    }.items():
        write(tmp_path / "a", **{key: value})
        assert load_store(tmp_path / "a").encoder_fingerprint != first.encoder_fingerprint


def test_the_stores_fingerprint_follows_its_files(folder: Path) -> None:
    before = load_store(folder).fingerprint
    change(folder, "queries", "ids_sha256", "0" * 64)
    assert load_store(folder).fingerprint != before


@pytest.mark.parametrize(
    ("row", "value", "what"),
    [
        (1, 0, "a row of zeros"),
        (2, np.nan, "not finite"),
        (0, np.inf, "not finite"),
        (1, -np.inf, "not finite"),
        (2, 1e-20, "a row of zeros"),
    ],
)
def test_rows_without_direction_are_named(folder: Path, row: int, value: float, what: str) -> None:
    vectors = rows(3, dtype=np.float32)
    vectors[row] = value
    np.save(folder / "documents.npy", vectors)
    with pytest.raises(InputError, match=rf"documents.npy: row {row} \(id d{row + 1}\): {what}"):
        load_store(folder)


@pytest.mark.parametrize("name", ["documents", "queries"])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a\n\nb\n", ":2: id: empty"),
        (b"a\na\nb\n", ":2: id a repeats line 1"),
        (b"a\nb\t1\nc\n", r":2: id: 'b\\t1' holds a tab"),
        (b"a\n\xff\nc\n", ":2: not UTF-8"),
    ],
)
def test_bad_ids_are_named(folder: Path, name: str, content: bytes, message: str) -> None:
    (folder / f"{name}.ids.txt").write_bytes(content)
    with pytest.raises(InputError, match=f"{name}.ids.txt{message}"):
        load_store(folder)


def test_rows_ids_and_manifest_must_agree(folder: Path) -> None:
    change(folder, "documents", "rows", 4)
    with pytest.raises(InputError, match="got 3 rows, 3 ids and 4 in the manifest"):
        load_store(folder)
    change(folder, "documents", "rows", 3)
    (folder / "documents.ids.txt").write_text("a\nb\n")
    with pytest.raises(InputError, match="got 3 rows, 2 ids and 3 in the manifest"):
        load_store(folder)


def test_width_must_be_the_manifests(folder: Path) -> None:
    np.save(folder / "queries.npy", rows(2, dim=5))
    with pytest.raises(InputError, match=r"queries\.npy: wanted the manifest's width 4, got 5"):
        load_store(folder)


@pytest.mark.parametrize(
    "name",
    ["documents.npy", "documents.ids.txt", "queries.npy", "queries.ids.txt", "manifest.json"],
)
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(InputError, match=f"{folder}/{name}: missing; a store needs"):
        load_store(folder)


def test_an_absent_store_names_its_neighbours(folder: Path) -> None:
    with pytest.raises(InputError, match="big: no such embeddings; there are: tiny"):
        load_store(folder.with_name("big"))
    with pytest.raises(InputError, match="check --dataset and --encoder"):
        load_store(folder / "a" / "b")


@pytest.mark.parametrize("name", ["documents.npy", "documents.ids.txt", "queries.ids.txt"])
def test_verify_finds_a_changed_file(folder: Path, name: str) -> None:
    content = bytearray((folder / name).read_bytes())
    content[-2] ^= 0x40
    (folder / name).write_bytes(bytes(content))
    load_store(folder)
    with pytest.raises(InputError, match=f"{name}: changed since the manifest was written"):
        load_store(folder, verify=True)


STORES = [
    ("cranfield", "all-mpnet-base-v2", 768),
    ("feedbackqa", "all-mpnet-base-v2", 768),
    ("openbookqa-facts", "all-mpnet-base-v2", 768),
    ("scifact", "all-mpnet-base-v2", 768),
    ("scifact", "all-MiniLM-L6-v2", 384),
]


@pytest.mark.parametrize(("dataset", "encoder", "dim"), STORES)
def test_real_stores(data_root: Path, dataset: str, encoder: str, dim: int) -> None:
    texts = load_collection(data_root / dataset)
    store = load_store(
        data_root / dataset / "embeddings" / encoder,
        verify=True,
        document_ids=texts.document_ids,
        query_ids=texts.query_ids,
    )
    assert (store.encoder, store.dim) == (encoder, dim)
    lengths = np.linalg.norm(unit_rows(store.sides.query.vectors[:20]), axis=1)
    np.testing.assert_allclose(lengths, 1, atol=1e-6)


def test_real_stores_of_one_encoder_agree_on_it(data_root: Path) -> None:
    stores = [load_store(data_root / name / "embeddings" / encoder) for name, encoder, _ in STORES]
    assert len({store.encoder_fingerprint for store in stores[:4]}) == 1
    assert len({store.encoder_fingerprint for store in stores}) == 2
    assert len({store.fingerprint for store in stores}) == 5
