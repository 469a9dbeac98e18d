"""Tables of vectors: what is read, and what of a stranger's is refused."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from dive_jax.data.columns import ColumnRows
from dive_jax.types import InputError

ROWS, DIM = 250, 6
VALUES = np.random.default_rng(0).normal(size=(ROWS, DIM)).astype(np.float32)
IDS = [f"d{each}" for each in range(ROWS)]


def lists(values: np.ndarray, kind: str) -> pa.Array:
    flat = pa.array(values.reshape(-1))
    if kind == "fixed":
        return pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
    ends = np.arange(0, values.size + 1, values.shape[1])
    maker, size = (pa.ListArray, np.int32) if kind == "list" else (pa.LargeListArray, np.int64)
    return maker.from_arrays(pa.array(ends.astype(size)), flat)


def write(path: Path, table: pa.Table, **more: Any) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=more.pop("part", 70), **more)
    elif path.suffix == ".feather":
        pyarrow.feather.write_feather(table, path, chunksize=70, **more)
    else:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as out:
            out.write_table(table, max_chunksize=70)
    return path


def table(kind: str = "fixed", dtype: str = "float32") -> pa.Table:
    vectors = lists(VALUES.astype(dtype), kind)
    return pa.table({"id": IDS, "words": pa.array(range(ROWS)), "emb": vectors})


@pytest.mark.parametrize("name", ["x.parquet", "x.feather", "x.arrow"])
@pytest.mark.parametrize("kind", ["fixed", "list", "large"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_every_kind_of_column_is_read(tmp_path: Path, name: str, kind: str, dtype: str):
    rows = ColumnRows(write(tmp_path / name, table(kind, dtype)), batch_rows=32)
    assert (rows.shape, rows.dtype, rows.column, rows.id_column) == (
        (ROWS, DIM),
        dtype,
        "emb",
        "id",
    )
    wanted = VALUES.astype(dtype)
    for start, stop in ((0, 100), (100, 140), (140, 999), (20, 30), (200, 201), (250, 260)):
        np.testing.assert_array_equal(rows.read(start, stop), wanted[start:stop])
    assert [each for part in rows.ids() or () for each in part] == IDS


def test_whole_numbers_and_dictionaries_are_ids(tmp_path: Path):
    numbers = table().set_column(0, "id", pa.array(range(1, ROWS + 1)))
    rows = ColumnRows(write(tmp_path / "n.parquet", numbers))
    assert next(rows.ids() or iter(()))[:3] == ["1", "2", "3"]
    coded = table().set_column(0, "id", pa.array(IDS).dictionary_encode())
    rows = ColumnRows(write(tmp_path / "c.feather", coded))
    assert next(rows.ids() or iter(()))[:3] == IDS[:3]


def test_columns_are_found_or_named(tmp_path: Path):
    two = table().append_column("other", lists(VALUES[:, :2], "list"))
    path = write(tmp_path / "x.parquet", two)
    with pytest.raises(
        InputError, match=r"wanted one column of lists of floats, got 2: .*--column"
    ):
        ColumnRows(path)
    assert ColumnRows(path, column="other").shape == (ROWS, 2)
    with pytest.raises(InputError, match="--column=words: wanted lists of floats, got int64"):
        ColumnRows(path, column="words")
    with pytest.raises(InputError, match="--column=no: wanted lists of floats, got no such column"):
        ColumnRows(path, column="no")
    with pytest.raises(InputError, match="--id_column=no: there are id, words, emb, other"):
        ColumnRows(path, column="emb", id_column="no")
    with pytest.raises(InputError, match="--id_column=emb: wanted strings or whole numbers"):
        ColumnRows(path, column="emb", id_column="emb")
    assert ColumnRows(path, column="emb", id_column="words").id_column == "words"
    nameless = write(tmp_path / "y.parquet", table().drop(["id"]))
    assert ColumnRows(nameless).ids() is None


def of(values: list[Any], kind: pa.DataType) -> pa.Table:
    return pa.table({"emb": pa.array(values, kind)})


LIST, FIXED = pa.list_(pa.float32()), pa.list_(pa.float32(), 2)
GOOD = [1.0, 2.0]

HOSTILE: dict[str, tuple[pa.Table, str]] = {
    "a null vector": (of([GOOD, None, GOOD], LIST), "column emb: row 1 is null"),
    "a null fixed vector": (of([GOOD, GOOD, None], FIXED), "column emb: row 2 is null"),
    "a null first vector": (of([None, GOOD], LIST), "column emb: row 0 is null"),
    "a null value": (of([GOOD, [1.0, None]], LIST), "column emb: row 1 holds a null"),
    "a null value, fixed": (of([GOOD, GOOD, [None, 1.0]], FIXED), "row 2 holds a null"),
    "ragged lists": (of([GOOD, GOOD, [1.0]], LIST), "row 2: wanted 2 values, got 1"),
    "an empty list": (of([[], GOOD], LIST), "column emb: row 0 has no values"),
    "lists of lists": (of([[GOOD]], pa.list_(LIST)), "wanted one column of lists of floats"),
    "lists of text": (of([["a"]], pa.list_(pa.string())), "wanted one column of lists of floats"),
    "whole numbers": (of([[1, 2]], pa.list_(pa.int64())), "wanted one column of lists of floats"),
    "no columns": (pa.table({}), "wanted one column of lists of floats, got 0: none"),
}


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
@pytest.mark.parametrize("name", HOSTILE)
def test_odd_columns_are_refused(tmp_path: Path, name: str, suffix: str):
    made, wanted = HOSTILE[name]
    with pytest.raises(InputError, match=wanted):
        ColumnRows(write(tmp_path / f"x{suffix}", made)).read(0, 9)


def test_a_null_id_is_refused(tmp_path: Path):
    odd = table().set_column(0, "id", pa.array([None, *IDS[1:]]))
    rows = ColumnRows(write(tmp_path / "x.parquet", odd))
    with pytest.raises(InputError, match=r"x\.parquet: row 0: id: wanted a string, got NoneType"):
        list(rows.ids() or ())


def test_a_column_that_is_there_twice_is_refused(tmp_path: Path):
    twice = pa.Table.from_arrays([lists(VALUES, "fixed")] * 2, names=["emb", "emb"])
    with pytest.raises(InputError, match="got 2"):
        ColumnRows(write(tmp_path / "x.arrow", twice))
    with pytest.raises(InputError, match="column emb is there twice"):
        ColumnRows(tmp_path / "x.arrow", column="emb")


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def scribbled(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + b"\xff" * 400 + content[middle + 400 :]


@pytest.mark.parametrize("suffix", [".parquet", ".feather", ".arrow"])
@pytest.mark.parametrize(
    "harm", [cut, lambda _: b"", lambda _: b"\x80\x04\x95pickle", lambda whole: whole[:-9]]
)
def test_damaged_files_are_one_line(tmp_path: Path, suffix: str, harm: Callable[[bytes], bytes]):
    path = write(tmp_path / f"x{suffix}", table())
    path.write_bytes(harm(path.read_bytes()))
    with pytest.raises(InputError, match=f"x{suffix}: damaged") as told:
        ColumnRows(path).read(0, ROWS)
    assert "\n" not in str(told.value)


def test_a_footer_that_promises_too_much_is_refused(tmp_path: Path):
    """Ids of one long run: a few bytes that would unpack to gigabytes."""
    path = tmp_path / "x.parquet"
    bomb = pa.table({"id": ["x" * (2 << 20)] * 8, "emb": lists(VALUES[:8], "fixed")})
    write(path, bomb, compression="zstd", use_dictionary=False)
    assert path.stat().st_size < 100_000
    with pytest.raises(InputError, match=r"damaged \(row group 0 claims 8 rows and 16,"):
        ColumnRows(path)


@pytest.mark.parametrize("suffix", [".parquet", ".feather", ".arrow"])
def test_bytes_written_over_are_told_or_are_values(tmp_path: Path, suffix: str):
    path = write(tmp_path / f"x{suffix}", table("list"))
    path.write_bytes(scribbled(path.read_bytes()))
    shape = None
    with contextlib.suppress(InputError):  # and nothing else is raised
        shape = ColumnRows(path).read(0, ROWS).shape
    assert shape in (None, (ROWS, DIM))
