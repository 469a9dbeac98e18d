"""Vector files: nothing in them is trusted; rows are checked and normalised in chunks."""

import pickle
import struct
from pathlib import Path

import numpy as np
import pytest

from dive_jax.data import arrays
from dive_jax.data.arrays import open_vectors, unit_rows
from dive_jax.types import InputError


def rows(count: int, dim: int = 4, dtype: type = np.float16) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(count, dim)).astype(dtype)


def header(descr: str, shape: str, body: bytes = b"\0" * 64) -> bytes:
    """A .npy file made by hand."""
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + body


class Trap:
    """Unpickling this leaves a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def object_array(trap: Trap, path: Path) -> bytes:
    np.save(path, np.array([[trap]], dtype=object), allow_pickle=True)
    return path.read_bytes()


def archive(path: Path) -> bytes:
    with open(path, "wb") as stream:
        np.savez(stream, rows(3))
    return path.read_bytes()


BAD_ARRAYS = {
    "empty": (b"", "not a .npy file"),
    "text": (b"0.1 0.2\n", "not a .npy file"),
    "only the magic": (b"\x93NUMPY", "damaged or not an array"),
    "future version": (b"\x93NUMPY\x09\x00", "damaged or not an array"),
    "cut header": (b"\x93NUMPY\x01\x00\xff\xff{", "damaged or not an array"),
    "cut data": (header("'<f4'", "(100, 4)"), "damaged or not an array"),
    "rows beyond memory": (header("'<f4'", "(4611686018427387904, 768)"), "damaged or not"),
    "rows that wrap to 0": (header("'<f4'", "(4294967296, 4294967296)"), "damaged or not"),
    "rows beyond integers": (header("'<f4'", f"({10**30}, 4)"), "damaged or not"),
    "negative rows": (header("'<f4'", "(-1, 4)"), "damaged or not"),
    "rows not a number": (header("'<f4'", "'abc'"), "damaged or not"),
    "code for a header": (header("__import__('os').abort()", "(3, 4)"), "damaged or not"),
    "deep header": (header("(" * 3000, "(3, 4)"), "damaged or not"),
    "float64": (header("'<f8'", "(2, 4)"), "wanted rows of float16 or float32, .* got <f8"),
    "big-endian": (header("'>f4'", "(2, 4)"), "wanted rows of float16 or float32, .* got >f4"),
    "integers": (header("'<i4'", "(2, 4)"), "wanted rows of float16 or float32, .* got <i4"),
    "records": (header("[('a', '<f4')]", "(2, 4)"), "wanted rows of float16 or float32"),
    "1-D": (header("'<f4'", "(16,)"), r"wanted shape \[rows, dim\], .* got \(16,\)"),
    "3-D": (header("'<f4'", "(2, 2, 4)"), r"wanted shape \[rows, dim\], .* got \(2, 2, 4\)"),
    "no rows": (header("'<f4'", "(0, 4)"), r"wanted shape \[rows, dim\], .* got \(0, 4\)"),
    "no columns": (header("'<f4'", "(3, 0)"), r"wanted shape \[rows, dim\], .* got \(3, 0\)"),
    "pickle": (lambda trap, path: pickle.dumps(trap), "not a .npy file"),
    "objects": (lambda trap, path: object_array(trap, path), "damaged or not an array"),
    "archive": (lambda trap, path: archive(path), "not a .npy file"),
}


@pytest.mark.parametrize("case", BAD_ARRAYS)
def test_bad_arrays_are_one_clear_error_and_nothing_runs(tmp_path: Path, case: str) -> None:
    content, message = BAD_ARRAYS[case]
    trap = Trap(tmp_path / "sprung")
    if callable(content):
        content = content(trap, tmp_path / "made.npy")
    (tmp_path / "x.npy").write_bytes(content)
    with pytest.raises(InputError, match=f"{tmp_path}/x.npy: {message}") as caught:
        open_vectors(tmp_path / "x.npy")
    assert "\n" not in str(caught.value)
    assert not trap.path.exists()


def test_the_trap_would_spring(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Trap(tmp_path / "sprung")))
    assert (tmp_path / "sprung").exists()


def test_a_bad_row_is_found_in_any_chunk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(arrays, "_CHUNK_BYTES", 40)  # two rows of four
    vectors = rows(9)
    vectors[8, 2] = np.nan
    with pytest.raises(InputError, match=r"x: row 8 \(id 8\)"):
        arrays.check_rows(vectors, [str(each) for each in range(9)], Path("x"))
    vectors[8, 2] = 65504  # its square overflows in float16
    arrays.check_rows(vectors, [str(each) for each in range(9)], Path("x"))


def test_absent_files_are_named(tmp_path: Path) -> None:
    for path in (tmp_path / "none.npy", tmp_path):
        with pytest.raises(InputError, match=f"{path}: no such file; wanted rows of float64"):
            open_vectors(path, types=("float64",))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_unit_rows_agree_with_float64(dtype: type) -> None:
    vectors = rows(50, dim=33, dtype=dtype) * dtype(3)
    wide = vectors.astype(np.float64)
    expected = wide / np.sqrt((wide**2).sum(axis=1, keepdims=True))
    units = unit_rows(vectors)
    assert units.dtype == np.float32
    np.testing.assert_allclose(units, expected, atol=1e-7)
    chosen = np.array([7, 3, 3])
    np.testing.assert_array_equal(unit_rows(vectors, chosen), units[chosen])


def test_unit_rows_do_not_depend_on_chunks_or_order(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = rows(9)
    whole = unit_rows(vectors)
    monkeypatch.setattr(arrays, "_CHUNK_BYTES", 40)
    np.testing.assert_array_equal(unit_rows(vectors), whole)
    np.testing.assert_array_equal(unit_rows(np.asfortranarray(vectors)), whole)
    assert unit_rows(vectors, np.array([], np.int64)).shape == (0, 4)


@pytest.mark.parametrize("size", [1e-30, 1e-11, 1.0, 1e30])
def test_unit_rows_survive_extreme_sizes(size: float) -> None:
    vectors = np.array([[3, -4, 0], [0, 0, 0]], np.float32) * np.float32(size)
    first = [0.6, -0.8, 0] if size > 1e-12 else [0, 0, 0]
    np.testing.assert_allclose(unit_rows(vectors), [first, [0, 0, 0]], atol=1e-7)
