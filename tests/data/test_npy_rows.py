import struct
from pathlib import Path

import numpy as np
import pytest

from dive_jax.data.npy_rows import NpyRows
from dive_jax.types import InputError


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_reads_any_slice_in_any_order(tmp_path: Path, dtype: str, order: str):
    values = np.random.default_rng(0).normal(size=(23, 5)).astype(dtype)
    np.save(tmp_path / "x.npy", np.asarray(values, order="F" if order == "F" else "C"))
    rows = NpyRows(tmp_path / "x.npy")
    assert rows.shape == (23, 5)
    assert rows.dtype == np.dtype(dtype)
    for start, stop in ((0, 23), (7, 8), (20, 40), (23, 30), (3, 3)):
        np.testing.assert_array_equal(rows.read(start, stop), values[start:stop])


def test_ids_lie_beside(tmp_path: Path):
    np.save(tmp_path / "x.npy", np.ones((3, 2)))
    assert NpyRows(tmp_path / "x.npy").ids() is None
    (tmp_path / "x.ids.txt").write_text("a\nb\nc\n")
    assert list(NpyRows(tmp_path / "x.npy").ids() or ()) == [["a", "b", "c"]]
    (tmp_path / "x.ids.txt").write_text("a\nb\n")
    with pytest.raises(InputError, match=r"x\.ids\.txt: wanted one id a row, got 2 ids and 3 rows"):
        list(NpyRows(tmp_path / "x.npy").ids() or ())


def test_a_file_that_shrinks_is_told(tmp_path: Path):
    np.save(tmp_path / "x.npy", np.ones((100, 2)))
    rows = NpyRows(tmp_path / "x.npy")
    with open(tmp_path / "x.npy", "r+b") as file:
        file.truncate(200)
    with pytest.raises(InputError, match="became shorter"):
        rows.read(0, 100)


def test_a_header_of_gigabytes_is_not_even_read(tmp_path: Path):
    with open(tmp_path / "x.npy", "wb") as file:
        file.write(b"\x93NUMPY\x02\x00" + struct.pack("<I", 3 << 30))
        file.truncate(3 << 30)  # takes no space on disk, but would in memory
    with pytest.raises(InputError, match=r"x\.npy: damaged \(a header of 3,221,225,472 bytes"):
        NpyRows(tmp_path / "x.npy")
