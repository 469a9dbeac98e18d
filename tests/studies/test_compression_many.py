"""Kills of real processes at 10^5 rows, and 10^7 rows."""

import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from dive_jax.methods.protocol import Compressor
from dive_jax.retrieval.codes import from_int8
from dive_jax.studies.compressed_outputs import ranges_of
from tests.vector_files import (
    DIM,
    FULL,
    manifest_of,
    write_adapter,
    write_shards,
)


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_adapter(tmp_path_factory.mktemp("adapter") / "one")


MANY = 100_000


def command(adapter: Path, source: Path, out: Path, *more: str) -> subprocess.Popen[str]:
    arguments = [f"--run={adapter}", f"--vectors={source}", f"--out={out}", *more]
    return subprocess.Popen(
        [sys.executable, "-m", "dive_jax.compress", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("many")
    values = np.random.default_rng(2).normal(size=(MANY, FULL)).astype(np.float32)
    return write_shards(folder, ".parquet", values)


KILLED = ("--dtype=int8", "--chunk_rows=500", "--encoder=toy")


@pytest.fixture(scope="module")
def undisturbed(adapter: Path, many: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    done = command(adapter, many, folder / "o.parquet", *KILLED)
    _, errors = done.communicate()
    assert done.returncode == 0, errors
    return folder


def kill_and_resume(adapter: Path, many: Path, folder: Path, wait: Callable[[], bool]) -> bool:
    """Kills once `wait` says so, and runs to the end; says whether the kill hit."""
    process = command(adapter, many, folder / "o.parquet", *KILLED)
    while process.poll() is None and not wait():
        time.sleep(0.002)
    hit = process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.communicate()
    again = command(adapter, many, folder / "o.parquet", *KILLED)
    _, errors = again.communicate()
    assert again.returncode == 0, errors
    return hit


def same_folders(one: Path, other: Path) -> None:
    names = sorted(each.name for each in one.iterdir())
    assert names == sorted(each.name for each in other.iterdir())
    for name in names:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


def test_killed_at_10_to_the_5_rows_it_ends_with_the_same_bits(
    adapter: Path, many: Path, undisturbed: Path, tmp_path: Path
):
    partial = tmp_path / ".o.partial.npy"
    assert kill_and_resume(
        adapter, many, tmp_path, lambda: partial.exists() and partial.stat().st_size > 100_000
    )
    same_folders(undisturbed, tmp_path)
    table = pq.read_table(tmp_path / "o.parquet")
    assert table.num_rows == MANY
    assert table["id"][MANY - 1].as_py() == f"d{MANY - 1}"


@pytest.mark.slow
def test_killed_ten_times_it_ends_with_the_same_bits(
    adapter: Path, many: Path, undisturbed: Path, tmp_path: Path
):
    hits = 0
    for round_ in range(10):
        folder = tmp_path / f"round{round_}"
        folder.mkdir()
        limit = time.monotonic() + random.Random(round_).uniform(1.0, 4.0)
        hits += kill_and_resume(adapter, many, folder, lambda: time.monotonic() > limit)  # noqa: B023
        same_folders(undisturbed, folder)
        shutil.rmtree(folder)
    assert hits >= 5


@pytest.mark.slow
def test_10_to_the_7_rows(adapter: Path, tmp_path: Path):
    count, block = 10_000_000, 1_000_000
    folder = tmp_path / "shards"
    folder.mkdir()
    rng = np.random.default_rng(3)
    for number in range(count // block):
        values = rng.normal(size=(block, FULL)).astype(np.float16)
        np.save(folder / f"documents-{number:05}.npy", values)
    out = tmp_path / "o.npy"
    done = command(adapter, folder, out, "--encoder=toy", "--dtype=int8")
    shown, errors = done.communicate()
    assert done.returncode == 0, errors
    assert "10,000,000 rows, 12 to 5 coordinates, 240,001,280 to 50,000,128 bytes" in shown
    codes = np.load(out, mmap_mode="r")
    assert codes.shape == (count, DIM)
    ranges = ranges_of(manifest_of(out))
    for number in (0, 5, 9):
        rows = np.load(folder / f"documents-{number:05}.npy", mmap_mode="r")[-100:]
        wanted = Compressor.load(adapter).compress(rows)
        last = number * block + block
        got = from_int8(np.asarray(codes[last - 100 : last]), ranges)
        assert np.abs(got - np.clip(wanted, ranges.low, ranges.high)).max() < 0.01
