"""Compressing vectors: sources, kinds of output, and resuming."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from dive_jax.methods.protocol import Compressor
from dive_jax.retrieval.codes import from_int8, to_binary
from dive_jax.studies import compression
from dive_jax.studies.alone import alone
from dive_jax.studies.compressed_outputs import ranges_of
from dive_jax.types import InputError
from tests.vector_files import (
    CHUNK,
    DIM,
    IDS,
    ROWS,
    VECTORS,
    as_table,
    manifest_of,
    read_back,
    run,
    write_npy,
    write_shards,
)

SOURCES: dict[str, Callable[[Path], Path]] = {
    "npy": write_npy,
    "npy shards": lambda folder: write_shards(folder, ".npy"),
    "parquet shards": lambda folder: write_shards(folder, ".parquet"),
    "feather shards": lambda folder: write_shards(folder, ".feather"),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
def test_every_source_gives_the_same_rows_with_their_ids(
    adapter: Path, wanted: np.ndarray, tmp_path: Path, source: str, suffix: str
):
    out = tmp_path / "out" / f"small{suffix}"
    assert run(adapter, SOURCES[source](tmp_path), out, "--encoder=toy") == 0
    got, ids = read_back(out)
    np.testing.assert_array_equal(got, wanted)
    assert ids == IDS
    told = manifest_of(out)
    assert (told["rows"], told["dim"], told["dtype"]) == (ROWS, DIM, "float32")
    beside = {"small.manifest.json", out.name} | ({"small.ids.txt"} if suffix == ".npy" else set())
    assert {each.name for each in out.parent.iterdir()} == beside


def check_int8(got: np.ndarray, out: Path, wanted: np.ndarray) -> None:
    ranges = ranges_of(manifest_of(out))
    assert got.dtype == np.int8
    half_step = (ranges.high - ranges.low) / 508
    assert (np.abs(from_int8(got, ranges) - wanted) <= half_step + 1e-6).all()


def check_binary(got: np.ndarray, out: Path, wanted: np.ndarray) -> None:
    np.testing.assert_array_equal(got, to_binary(wanted))
    assert got.shape == (ROWS, 1)
    assert manifest_of(out)["dim"] == DIM


def check_half(got: np.ndarray, out: Path, wanted: np.ndarray) -> None:
    np.testing.assert_array_equal(got, wanted.astype(np.float16))


CHECKS = {"int8": check_int8, "binary": check_binary, "float16": check_half}


@pytest.mark.parametrize("dtype", CHECKS)
@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
def test_smaller_numbers_can_be_decoded(
    adapter: Path, wanted: np.ndarray, tmp_path: Path, dtype: str, suffix: str, capsys
):
    out = tmp_path / f"out{suffix}"
    assert (
        run(adapter, write_npy(tmp_path), out, f"--dtype={dtype}", "--calibration_rows=2000") == 0
    )
    shown = capsys.readouterr()
    assert f"out{suffix}: 1,000 rows, 12 to 5 coordinates, " in shown.out
    assert " bytes, " in shown.out
    assert " rows/s" in shown.out
    assert ("binary at 5 wide: few bits a vector" in shown.err) == (dtype == "binary")
    got, ids = read_back(out)
    assert ids == IDS
    CHECKS[dtype](got, out, wanted)


def test_ranges_come_from_all_over_the_file(adapter: Path, tmp_path: Path):
    growing = VECTORS.copy()
    growing[ROWS // 2 :, 0] += 20  # the second half lies elsewhere
    source = write_shards(tmp_path, ".parquet", growing)
    assert run(adapter, source, tmp_path / "o.npy", "--dtype=int8", "--calibration_rows=200") == 0
    ranges = ranges_of(manifest_of(tmp_path / "o.npy"))
    got = from_int8(np.load(tmp_path / "o.npy"), ranges)
    moved = Compressor.load(adapter).compress(growing, chunk_rows=CHUNK)
    assert manifest_of(tmp_path / "o.npy")["calibration"]["rows"] == 256
    assert np.abs(got - moved).mean() < 0.01
    assert (ranges.low <= np.quantile(moved, 0.05, axis=0)).all()
    assert (ranges.high >= np.quantile(moved, 0.95, axis=0)).all()


def test_a_parquet_file_tells_its_adapter_itself(adapter: Path, tmp_path: Path):
    out = tmp_path / "out.parquet"
    more = ("--dtype=int8", "--chunk_rows=500")
    assert run(adapter, write_npy(tmp_path, ids=None), out, *more) == 0
    schema = pq.read_schema(out)
    assert schema.names == ["vector"]
    packed = pq.ParquetFile(out).metadata.row_group(0).column(0).total_compressed_size
    assert packed < 2 * 500 * DIM  # and not four bytes a number
    told = json.loads(schema.metadata[b"dive_jax"])
    assert told["encoder"] == "toy"
    assert told["calibration"] == manifest_of(out)["calibration"]


def test_a_store_gives_the_side_that_is_asked_for(adapter: Path, tmp_path: Path):
    folder = tmp_path / "store"
    folder.mkdir()
    for name, values in (("documents", VECTORS), ("queries", VECTORS[:9])):
        np.save(folder / f"{name}.npy", values)
    for side, rows in (("document", ROWS), ("query", 9)):
        out = tmp_path / f"{side}.npy"
        assert run(adapter, folder, out, f"--side={side}") == 0
        assert len(np.load(out)) == rows


def test_a_folder_s_manifest_tells_encoder_and_order(adapter: Path, tmp_path: Path, capsys):
    folder = write_shards(tmp_path, ".npy")
    names = ["part-9.npy", "part-7.npy"]
    (folder / "manifest.json").write_text(json.dumps({"encoder": "toy", "shards": names}))
    assert run(adapter, folder, tmp_path / "o.npy") == 0
    assert "not checked" not in capsys.readouterr().err
    _, ids = read_back(tmp_path / "o.npy")
    assert ids == IDS[130:500] + IDS[:100]
    (folder / "manifest.json").write_text(json.dumps({"encoder": "another"}))
    assert run(adapter, folder, tmp_path / "p.npy") == 2
    assert "another" in capsys.readouterr().err


class Killed(BaseException):
    """Ends the work as a signal would, between two chunks."""


class Bar:
    def __init__(self, after: int) -> None:
        self.after = after

    def __enter__(self) -> "Bar":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def update(self, done: int, _: str) -> None:
        self.after -= 1
        if self.after == 0:
            raise Killed


@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
def test_interrupted_anywhere_it_ends_with_the_same_bits(
    adapter: Path, tmp_path: Path, dtype: str, suffix: str
):
    source = write_shards(tmp_path, ".parquet")
    choices = compression.Choices(dtype=dtype, chunk_rows=CHUNK, encoder="toy")
    begun = []

    def go(out: Path, after: int) -> None:
        def bar(total: int, done: int) -> Any:
            begun.append(done)
            return Bar(after)

        compression.compress_file(adapter, source, out, choices, progress=bar, warn=print)

    whole, out = tmp_path / "whole" / f"x{suffix}", tmp_path / "out" / f"x{suffix}"
    go(whole, 0)
    for after in (3, 1, 7):
        with pytest.raises(Killed):
            go(out, after)
        assert not out.exists()
    partial = out.with_name(".x.partial.npy")
    with open(partial, "r+b") as file:  # a kill in the midst of a chunk
        file.truncate(partial.stat().st_size - 7)
    go(out, 0)
    assert begun == [0, 0, 3 * CHUNK, 4 * CHUNK, 10 * CHUNK]
    assert [each.name for each in sorted(out.parent.iterdir())] == [
        each.name for each in sorted(whole.parent.iterdir())
    ]
    for each in whole.parent.iterdir():
        assert (out.parent / each.name).read_bytes() == each.read_bytes(), each.name


def test_killed_between_the_last_renamings_it_ends_well(
    adapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    source, out = write_npy(tmp_path), tmp_path / "o.npy"
    with monkeypatch.context() as patch:
        patch.setattr(compression, "sha256_file", lambda _: 1 / 0)
        assert run(adapter, source, out) == 1
    assert out.exists()
    assert not (tmp_path / "o.manifest.json").exists()
    assert run(adapter, source, out) == 0
    assert manifest_of(out)["rows"] == ROWS
    assert not list(tmp_path.glob(".o.*"))


def test_other_options_begin_anew_and_a_changed_source_too(adapter: Path, tmp_path: Path):
    source, out = write_npy(tmp_path), tmp_path / "o.npy"
    choices = compression.Choices(chunk_rows=CHUNK, encoder="toy")
    with pytest.raises(Killed):
        compression.compress_file(
            adapter, source, out, choices, progress=lambda *_: Bar(3), warn=print
        )
    np.save(source, VECTORS[::-1])
    assert run(adapter, source, out) == 0
    wanted = Compressor.load(adapter).compress(VECTORS[::-1], chunk_rows=CHUNK)
    np.testing.assert_array_equal(np.load(out), wanted)


def test_two_at_once_do_not_mix(adapter: Path, tmp_path: Path, capsys):

    source, out = write_npy(tmp_path), tmp_path / "o.npy"
    with alone(tmp_path / ".o.partial.lock", "o"):
        assert run(adapter, source, out) == 2
    assert "o.npy: another process is working on it" in capsys.readouterr().err
    assert run(adapter, source, out) == 0


def test_foreign_files_are_left_alone(adapter: Path, tmp_path: Path, capsys):
    source = write_npy(tmp_path)
    (tmp_path / "o.manifest.json").write_text("mine")
    assert run(adapter, source, tmp_path / "o.npy") == 2
    assert "o.manifest.json exists and o.npy does not; remove it" in capsys.readouterr().err
    assert (tmp_path / "o.manifest.json").read_text() == "mine"
    (tmp_path / "p.npy").write_text("mine")
    assert run(adapter, source, tmp_path / "p.npy") == 2
    assert "p.npy exists and is not what this command writes" in capsys.readouterr().err


def test_a_missing_library_is_told(adapter: Path, tmp_path: Path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    assert run(adapter, write_npy(tmp_path), tmp_path / "o.npy") == 0
    pq.write_table(as_table(VECTORS, IDS), tmp_path / "in.parquet")
    assert run(adapter, tmp_path / "in.parquet", tmp_path / "p.npy") == 2
    assert "install dive_jax[arrow], or use .npy" in capsys.readouterr().err


def test_ranges_of_other_manifests_are_refused():
    for odd in ({}, {"calibration": None}, {"calibration": {"low": [0.0], "high": "x"}}):
        with pytest.raises(InputError, match="manifest: calibration: wanted lists low and high"):
            ranges_of(odd)
