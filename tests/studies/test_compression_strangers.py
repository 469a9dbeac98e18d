"""Files from strangers and full disks: one line, nothing executed, nothing half-written."""

import json
import os
import pickle
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.vector_files import (
    IDS,
    ROWS,
    VECTORS,
    as_table,
    read_back,
    run,
    write_ids,
    write_npy,
    write_shards,
)


def boom() -> Any:
    """An object whose unpickling would leave a trace."""

    class Boom:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            return os.system, ("touch executed",)

    return Boom()


def pickled(folder: Path) -> Path:
    np.save(folder / "in.npy", np.array([[boom()]], dtype=object), allow_pickle=True)
    return folder / "in.npy"


def bare_pickle(folder: Path) -> Path:

    (folder / "in.npy").write_bytes(pickle.dumps(boom()))
    return folder / "in.npy"


def headed(text: str) -> Callable[[Path], Path]:
    """A .npy file of any header and a few bytes."""

    def make(folder: Path) -> Path:
        start = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little")
        (folder / "in.npy").write_bytes(start + text.encode() + b"\0" * 64)
        return folder / "in.npy"

    return make


def long_header(folder: Path) -> Path:
    with open(folder / "in.npy", "wb") as file:
        file.write(b"\x93NUMPY\x02\x00" + (3 << 30).to_bytes(4, "little"))
        file.truncate(3 << 30)
    return folder / "in.npy"


def listed(*names: Any) -> Callable[[Path], Path]:
    """A folder whose manifest names its shards."""

    def make(folder: Path) -> Path:
        shards = write_shards(folder, ".npy")
        np.save(folder / "outside.npy", VECTORS)
        (shards / "manifest.json").write_text(json.dumps({"shards": [*names]}))
        return shards

    return make


def tabular(change: Callable[[np.ndarray, list[str]], pa.Table]) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        pq.write_table(change(VECTORS.copy(), [*IDS]), folder / "in.parquet", row_group_size=100)
        return folder / "in.parquet"

    return make


def with_value(row: int, value: float) -> Callable[[Path], Path]:
    def change(values: np.ndarray, ids: list[str]) -> pa.Table:
        values[row] = value
        return as_table(values, ids)

    return tabular(change)


def with_id(row: int, id: str) -> Callable[[Path], Path]:
    def change(values: np.ndarray, ids: list[str]) -> pa.Table:
        ids[row] = id
        return as_table(values, ids)

    return tabular(change)


def ragged(folder: Path) -> Path:
    values = VECTORS.tolist()
    values[777] = values[777][:-1]
    pq.write_table(
        pa.table({"emb": pa.array(values, pa.list_(pa.float32()))}), folder / "in.parquet"
    )
    return folder / "in.parquet"


def nulls(folder: Path) -> Path:
    values: list[Any] = VECTORS.tolist()
    values[777] = None
    pq.write_table(
        pa.table({"emb": pa.array(values, pa.list_(pa.float32()))}), folder / "in.parquet"
    )
    return folder / "in.parquet"


def shards_with(name: str, values: np.ndarray, ids: list[str] | None) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        shards = write_shards(folder, ".npy")
        np.save(shards / f"{name}.npy", values)
        if ids is not None:
            write_ids(shards / f"{name}.npy", ids)
        return shards

    return make


def mixed(folder: Path) -> Path:
    shards = write_shards(folder, ".npy")
    pq.write_table(as_table(VECTORS, IDS), shards / "part-99.parquet")
    return shards


def bad_ids(folder: Path) -> Path:
    source = write_npy(folder)
    source.with_name("in.ids.txt").write_bytes(b"\xff\xfe\n" * ROWS)
    return source


def empty(folder: Path) -> Path:
    (folder / "shards").mkdir()
    return folder / "shards"


def odd_manifest(text: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / "in.manifest.json").write_text(text)
        return write_npy(folder)

    return make


HOSTILE: dict[str, tuple[Callable[[Path], Path], str]] = {
    "a pickle in a .npy": (pickled, "in.npy: damaged or not an array of numbers"),
    "a pickle named .npy": (bare_pickle, "in.npy: not a .npy file"),
    "a header of gigabytes": (long_header, "in.npy: damaged (a header of 3,221,225,472 bytes"),
    "a header that is code": (headed("__import__('os').system('touch executed')\n"), "in.npy: dam"),
    "a header of brackets": (headed("(" * 9000 + "\n"), "in.npy: damaged"),
    "rows beyond the end": (
        headed("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 12)}\n"),
        "in.npy: damaged",
    ),
    "rows below zero": (
        headed("{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 12)}\n"),
        "in.npy: ",
    ),
    "a manifest that climbs": (listed("../outside.npy"), "not to be trusted"),
    "a manifest that climbs from the root": (listed("/etc/hostname"), "not to be trusted"),
    "a manifest that climbs the other way": (listed("..\\outside.npy"), "not to be trusted"),
    "a manifest with a null byte": (listed("part-7.npy\0.npy"), "not to be trusted"),
    "a manifest of numbers": (listed(7), "not to be trusted"),
    "a manifest that repeats": (listed("part-7.npy", "part-7.npy"), "a file is named twice"),
    "a manifest of nothing": (listed(), "shards: wanted a list of file names"),
    "a manifest with a file that is not there": (listed("part-1.npy"), "part-1.npy: no such file"),
    "a manifest that is no JSON": (odd_manifest("{"), "in.manifest.json: not JSON"),
    "a manifest of brackets": (odd_manifest("[" * 100_000), "in.manifest.json: not JSON"),
    "a table with a NaN": (with_value(512, np.nan), "in.parquet: row 512 has a value that is not"),
    "a table with a zero row": (with_value(512, 0), "in.parquet: row 512 is all zeros"),
    "a table with an id twice": (with_id(9, "d3"), "id 'd3' of row 3 is there again in row 9"),
    "a table with an id of tabs": (with_id(9, "a\tb"), "in.parquet: row 9: id: 'a\\tb' holds a"),
    "a table with an empty id": (with_id(9, ""), "in.parquet: row 9: id: empty"),
    "a table with ragged lists": (ragged, "row 777: wanted 12 values, got 11"),
    "a table with a null": (nulls, "in.parquet: column emb: row 777 is null"),
    "a table of another width": (tabular(lambda x, ids: as_table(x[:, :9], ids)), "full_dim: "),
    "shards of two widths": (
        shards_with("part-99", VECTORS[:9, :7], IDS[:9]),
        "part-99.npy: wanted width 12 as in part-7.npy, got 7",
    ),
    "shards with ids twice": (
        shards_with("part-99", VECTORS[:9], IDS[:9]),
        "id 'd0' of row 0 is there again in row 1000",
    ),
    "shards with ids here and there": (
        shards_with("part-99", VECTORS[:9], None),
        "part-99.npy: has no ids, and other shards have",
    ),
    "too few ids": (
        shards_with("part-99", VECTORS[:9], ["a"]),
        "part-99.ids.txt: wanted one id a row, got 1 ids and 9 rows",
    ),
    "a NaN in a later shard": (
        shards_with("part-99", VECTORS[:9] * np.nan, [f"e{each}" for each in range(9)]),
        "part-99.npy: row 0 has a value that is not",
    ),
    "two kinds of shards": (mixed, "wanted document vectors in files of one kind"),
    "no shards": (empty, "wanted document vectors in files of one kind, got none"),
    "ids that are not UTF-8": (bad_ids, "in.ids.txt:1: not UTF-8"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_files_from_strangers_are_refused_in_one_line(
    adapter: Path, tmp_path: Path, name: str, capsys, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    make, wanted = HOSTILE[name]
    out = tmp_path / "sub" / "out.npy"
    assert run(adapter, make(tmp_path), out) == 2
    shown = capsys.readouterr()
    (told,) = [each for each in shown.err.splitlines() if each.startswith("dive_jax.compress: ")]
    assert wanted in told
    assert shown.out == ""
    assert not out.exists()
    assert not out.with_name("out.manifest.json").exists()
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_a_zero_row_met_while_calibrating_is_named_right(
    adapter: Path, tmp_path: Path, dtype: str, capsys
):
    source = with_value(997, 0)(tmp_path)
    assert run(adapter, source, tmp_path / "o.npy", f"--dtype={dtype}") == 2
    assert "in.parquet: row 997 is all zeros" in capsys.readouterr().err


@pytest.fixture
def limited() -> Iterator[Callable[[int], None]]:
    """Limits the size of files this process may write: a full disk, for one process."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
def test_a_full_disk_is_one_line_and_what_was_written_counts(
    adapter: Path, wanted: np.ndarray, tmp_path: Path, suffix: str, limited, capsys
):
    source, out = write_npy(tmp_path), tmp_path / "sub" / f"o{suffix}"
    limited(12_000)  # about 600 of 1,000 rows
    assert run(adapter, source, out) == 1
    limited(resource.RLIM_INFINITY)
    (told,) = [each for each in capsys.readouterr().err.splitlines() if "dive_jax" in each]
    assert "File too large; the rows written so far are kept, and the same command goes on" in told
    assert not out.exists()
    assert run(adapter, source, out) == 0
    assert "compressing: 576/1,000 rows" in capsys.readouterr().err
    np.testing.assert_array_equal(read_back(out)[0], wanted)


@pytest.mark.parametrize("out", ["/proc/sub/o.npy", "/dev/null/o.npy"])
def test_an_unwritable_place_is_one_line(adapter: Path, tmp_path: Path, out: str, capsys):
    assert run(adapter, write_npy(tmp_path), Path(out)) == 1
    assert capsys.readouterr().err.count("dive_jax.compress: ") == 1


def test_a_disk_full_at_the_last_step_loses_nothing(
    adapter: Path, wanted: np.ndarray, tmp_path: Path, limited, capsys
):
    source, out = write_npy(tmp_path), tmp_path / "sub" / "o.parquet"
    limited(20_500)  # the vectors alone take 20,128 bytes
    assert run(adapter, source, out) == 1
    limited(resource.RLIM_INFINITY)
    (told,) = [each for each in capsys.readouterr().err.splitlines() if "dive_jax" in each]
    assert "File too large" in told
    assert sorted(each.name for each in out.parent.iterdir()) == [
        *(".o.partial.json", ".o.partial.npy"),
    ]
    assert run(adapter, source, out) == 0
    assert "compressing: 1,000/1,000 rows (100 %)" in capsys.readouterr().err
    np.testing.assert_array_equal(read_back(out)[0], wanted)
