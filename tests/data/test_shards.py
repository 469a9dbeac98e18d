import json
import resource
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dive_jax.data.embeddings import load_store
from dive_jax.data.shards import GrowingVectors, finish, tidy
from dive_jax.types import InputError, TwoSided

ROWS, DIM, SHARD = 11, 3, 4
VECTORS = np.random.default_rng(0).normal(size=(ROWS, DIM)).astype(np.float32)


def open_file(folder: Path, dtype: str = "float32") -> GrowingVectors:
    return GrowingVectors(folder, "documents", ROWS, DIM, dtype)


def fill(vectors: GrowingVectors) -> list[int]:
    """Writes what is missing; returns the first rows of the shards it wrote."""
    firsts = list(range(vectors.done, ROWS, SHARD))
    for first in firsts:
        vectors.append(VECTORS[first : first + SHARD], {"first": first})
    return firsts


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    fill(open_file(folder))
    return folder


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_whole_file_is_what_numpy_would_save(dtype: str, tmp_path: Path):
    fill(open_file(tmp_path, dtype))
    np.save(tmp_path / "wanted.npy", VECTORS.astype(dtype))
    assert (tmp_path / "documents.npy").read_bytes() == (tmp_path / "wanted.npy").read_bytes()


@settings(max_examples=25)
@given(st.integers(0, 128 + ROWS * DIM * 4), st.integers(0, 400), st.binary(max_size=9))
def test_cut_anywhere_it_ends_with_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, whole: Path, kept: int, noted: int, tail: bytes
):
    folder = tmp_path_factory.mktemp("cut")
    for name, length in (("documents.npy", kept), ("documents.shards.jsonl", noted)):
        (folder / name).write_bytes((whole / name).read_bytes()[:length] + tail)
    again = open_file(folder)
    assert again.done in (0, 4, 8, 11)
    assert [each["first"] for each in again.facts] == list(range(0, again.done, SHARD))
    assert again.path.stat().st_size == 128 + again.done * DIM * 4
    fill(again)
    for name in ("documents.npy", "documents.shards.jsonl"):
        assert (folder / name).read_bytes() == (whole / name).read_bytes()


def test_only_what_is_missing_is_asked_for(tmp_path: Path):
    first = open_file(tmp_path)
    first.append(VECTORS[:SHARD], {"first": 0})
    again = open_file(tmp_path)
    assert (again.done, again.facts) == (4, [{"first": 0}])
    assert fill(again) == [4, 8]


def test_a_damaged_shard_and_all_after_it_are_written_again(tmp_path: Path):
    fill(open_file(tmp_path))
    data = bytearray((tmp_path / "documents.npy").read_bytes())
    data[128 + 5 * DIM * 4] ^= 1
    (tmp_path / "documents.npy").write_bytes(data)
    again = open_file(tmp_path)
    assert again.done == 4
    fill(again)
    assert (np.load(tmp_path / "documents.npy") == VECTORS).all()


@pytest.mark.parametrize(
    "line",
    [
        "[]",
        "{}",
        "nonsense",
        '{"rows": -4, "sha256": "", "facts": {}}',
        '{"rows": 1e9, "sha256": "", "facts": {}}',
        '{"rows": 999999999999, "sha256": "", "facts": {}}',
    ],
)
def test_a_foreign_ledger_is_not_believed(line: str, tmp_path: Path, whole: Path):
    (tmp_path / "documents.npy").write_bytes((whole / "documents.npy").read_bytes())
    (tmp_path / "documents.shards.jsonl").write_text(line + "\n")
    assert open_file(tmp_path).done == 0


def test_a_file_of_another_shape_starts_anew(tmp_path: Path, whole: Path):
    for each in whole.iterdir():
        (tmp_path / each.name).write_bytes(each.read_bytes())
    assert GrowingVectors(tmp_path, "documents", ROWS, DIM + 1, "float32").done == 0


def test_a_full_disk_is_one_line_and_keeps_what_is_there(tmp_path: Path):
    vectors = open_file(tmp_path)
    vectors.append(VECTORS[:SHARD], {"first": 0})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (vectors.path.stat().st_size + 5, before[1]))
        with pytest.raises(OSError, match=r"4 of 11 rows are kept: make room") as caught:
            vectors.append(VECTORS[SHARD : 2 * SHARD], {"first": 4})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "\n" not in str(caught.value)
    again = open_file(tmp_path)
    assert again.done == 4
    fill(again)
    assert (np.load(tmp_path / "documents.npy") == VECTORS).all()


@pytest.mark.parametrize("shape", [(12, 3), (2, 4)])
def test_rows_that_do_not_fit_are_refused(shape: tuple[int, int], tmp_path: Path):
    with pytest.raises(ValueError, match="wanted at most 11 rows of 3"):
        open_file(tmp_path).append(np.ones(shape, np.float32), {})


def finished(folder: Path, final: Path) -> None:
    sides = {
        side: GrowingVectors(folder, name, ROWS, DIM, "float32")
        for side, name in (("document", "documents"), ("query", "queries"))
    }
    for each in sides.values():
        fill(each)
    ids = tuple(f"i{row}" for row in range(ROWS))
    finish(
        folder,
        final,
        encoder="mine",
        sides=TwoSided(**sides),
        ids=TwoSided(ids, ids),
        details={"pooling": "mean"},
    )


def test_a_finished_folder_is_a_store(tmp_path: Path):
    final = tmp_path / "mine"
    finished(tmp_path / ".mine.export", final)
    tidy(final, "other")
    store = load_store(final, verify=True)
    assert (store.encoder, store.dim, store.manifest["pooling"]) == ("mine", DIM, "mean")
    assert (store.sides.document.vectors == VECTORS).all()
    assert sorted(each.name for each in final.iterdir()) == sorted(
        ["documents.npy", "documents.ids.txt", "queries.npy", "queries.ids.txt", "manifest.json"]
    )


def test_a_folder_that_holds_something_is_not_replaced(tmp_path: Path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "note").write_text("keep")
    with pytest.raises(InputError, match="mine: cannot be replaced"):
        finished(tmp_path / ".mine.export", tmp_path / "mine")
    assert (tmp_path / "mine" / "note").read_text() == "keep"
    assert json.loads((tmp_path / ".mine.export" / "manifest.json").read_text())
