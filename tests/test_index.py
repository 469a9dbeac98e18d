"""python -m dive_jax.index: what it leaves, that a kill loses nothing, and what it refuses."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from dive_jax import compress, index
from dive_jax.files import sha256_file, write_json
from dive_jax.retrieval import indexes
from dive_jax.studies import indexing
from tests import toy
from tests.adapters import write_run

pytest.importorskip("faiss")

FILES = ("ids.txt", "index.faiss", "index.json")
DOCUMENTS = 260  # ivfpq learns 256 centroids


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data")
    toy.write(root, documents=DOCUMENTS)
    return write_run(root / "run", root, dataset="toy", encoder=toy.ENCODER)


@pytest.fixture(scope="module")
def squeezed(run: Path) -> Path:
    """Vectors that compress wrote, with ids and a manifest."""
    out = run.parent / "out.npy"
    vectors = run.parent / "toy" / "embeddings" / toy.ENCODER / "documents.npy"
    assert compress.main([f"--run={run}", f"--vectors={vectors}", f"--out={out}"]) == 0
    return out


def same(one: Path, other: Path) -> None:
    for name in FILES:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


@pytest.mark.parametrize("kind", indexes.KINDS)
def test_every_kind_of_a_runs_documents(
    kind: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    out = tmp_path / "index"
    assert index.main([f"--run={run}", f"--out={out}", f"--kind={kind}"]) == 0
    shown = capsys.readouterr()
    assert f"{out}: {kind}" in shown.out
    assert "260 rows, 4 wide" in shown.out
    assert "(100 %)" in shown.err
    assert sorted(each.name for each in tmp_path.rglob("*")) == sorted([*FILES, "index"])
    about = json.loads((out / "index.json").read_text())
    adapter = json.loads((run / "adapters" / "dive-1" / "adapter.json").read_text())
    assert about["adapter_sha256"] == adapter["sha256"]
    assert (about["encoder"], about["fingerprint"]) == (toy.ENCODER, adapter["fingerprint"])
    assert (about["kind"], about["metric"], about["rows"], about["dim"]) == (
        kind,
        "inner_product",
        DOCUMENTS,
        4,
    )
    assert about["sha256"] == sha256_file(out / "index.faiss")
    assert (out / "ids.txt").read_text().splitlines() == [f"d{row}" for row in range(DOCUMENTS)]
    opened = indexing.load(out)
    assert opened.index.ntotal == DOCUMENTS
    assert opened.ids[-1] == "d259"


def test_compressed_vectors_give_the_same_index_as_their_run(
    run: Path, squeezed: Path, tmp_path: Path
):
    for name, given in (("run", f"--run={run}"), ("file", f"--vectors={squeezed}")):
        assert index.main([given, f"--out={tmp_path / name}", "--kind=hnsw"]) == 0
    for name in ("ids.txt", "index.faiss"):
        assert sha256_file(tmp_path / "run" / name) == sha256_file(tmp_path / "file" / name)
    one, other = (
        json.loads((tmp_path / name / "index.json").read_text()) for name in ("run", "file")
    )
    assert one.pop("source") != other.pop("source")
    assert one == other


def test_ids_from_a_file_or_row_numbers(
    squeezed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    for end in ("npy", "manifest.json"):
        shutil.copy(squeezed.with_name(f"out.{end}"), tmp_path / f"x.{end}")
    arguments = [f"--vectors={tmp_path / 'x.npy'}", f"--out={tmp_path / 'index'}"]
    assert index.main(arguments) == 0
    assert "ids are row numbers" in capsys.readouterr().err
    assert (tmp_path / "index" / "ids.txt").read_text().splitlines()[:2] == ["0", "1"]
    names = tmp_path / "names.txt"
    names.write_text("".join(f"n{row}\n" for row in range(DOCUMENTS)))
    more = [f"--ids={names}", f"--out={tmp_path / 'named'}"]
    assert index.main([*arguments, *more]) == 0
    assert indexing.load(tmp_path / "named").ids[3] == "n3"
    names.write_text("a\n")
    assert index.main([*arguments, *more[:1], f"--out={tmp_path / 'third'}"]) == 2
    assert "wanted 260 ids, one a row, got 1" in capsys.readouterr().err


def test_again_is_no_work_but_what_is_there_is_kept(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    arguments = [f"--run={run}", f"--out={tmp_path / 'index'}"]
    assert index.main(arguments) == 0
    stamp = (tmp_path / "index" / "index.faiss").stat().st_mtime_ns
    assert index.main(arguments) == 0
    assert index.main([*arguments, "--kind=int8"]) == 2
    assert "is not the index that this command builds" in capsys.readouterr().err
    assert (tmp_path / "index" / "index.faiss").stat().st_mtime_ns == stamp
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    assert index.main([*arguments, f"--out={tmp_path / 'mine'}"]) == 2
    assert (tmp_path / "mine" / "letter.txt").read_text() == "dear"


def edited(squeezed: Path, folder: Path, **changes: object) -> Path:
    """Copies vectors with a manifest that says something else."""
    for end in ("npy", "ids.txt", "manifest.json"):
        shutil.copy(squeezed.with_name(f"out.{end}"), folder / f"x.{end}")
    path = folder / "x.manifest.json"
    told = json.loads(path.read_text()) | changes
    write_json(path, {name: value for name, value in told.items() if value is not None})
    return folder / "x.npy"


MANIFESTS = {
    "queries": ({"side": "query"}, "holds queries; wanted compressed documents"),
    "another width": ({"dim": 5}, "wanted 5 coordinates as its manifest says, got 4"),
    "other bytes": ({"sha256": "0" * 64}, "changed since its manifest was written"),
    "no adapter": ({"adapter_sha256": None}, "adapter_sha256: wanted a str, got None"),
    "a number for a name": ({"encoder": 7}, "encoder: wanted a str, got 7"),
}


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_manifest_must_fit(
    name: str, squeezed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    changes, told = MANIFESTS[name]
    vectors = edited(squeezed, tmp_path, **changes)
    assert index.main([f"--vectors={vectors}", f"--out={tmp_path / 'index'}"]) == 2
    shown = capsys.readouterr().err
    assert told in shown
    assert shown.count("\n") == 1
    assert not (tmp_path / "index").exists()


def test_vectors_without_a_manifest_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    np.save(tmp_path / "x.npy", np.eye(4, dtype=np.float32))
    assert index.main([f"--vectors={tmp_path / 'x.npy'}", f"--out={tmp_path / 'i'}"]) == 2
    assert "has no x.manifest.json beside it" in capsys.readouterr().err


WRONG = {
    "nothing to index": ([], "--run or --vectors: wanted one of them, got none"),
    "two things": (["--run=x", "--vectors=y.npy"], "wanted one of them, got both"),
    "no folder": (["--run=x", "--out="], "--out: wanted the folder to make"),
    "no such run": (["--run=/no/such"], "--run: wanted the folder of a finished run"),
    "another kind": (["--run=x", "--kind=tree"], "--kind: wanted one of flat, hnsw"),
    "another method": (["--method=magic"], "no adapter magic"),
    "another seed": (["--seed=9"], "no adapter dive-9"),
    "no such dataset": (["--dataset=none"], "no such dataset"),
    "no such encoder": (["--encoder=none"], "no such embeddings"),
    "no divisor": (["--kind=ivfpq", "--code_bytes=3"], "wanted a divisor of the width 4"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_one_line(
    name: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    more, told = WRONG[name]
    own = not more or any(each.startswith("--run") for each in more)
    arguments = [f"--out={tmp_path / 'index'}", *([] if own else [f"--run={run}"]), *more]
    assert index.main(arguments) == 2
    shown = capsys.readouterr().err
    assert told in shown
    assert shown.count("\n") == 1


def test_without_faiss_the_extra_is_named(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setitem(sys.modules, "faiss", None)
    assert index.main([f"--run={run}", f"--out={tmp_path / 'index'}"]) == 2
    assert "pip install 'dive_jax[faiss]'" in capsys.readouterr().err


def test_a_damaged_index_is_refused(run: Path, tmp_path: Path):
    out = tmp_path / "index"
    assert index.main([f"--run={run}", f"--out={out}"]) == 0
    content = (out / "index.faiss").read_bytes()
    (out / "index.faiss").write_bytes(content[:-1] + b"\0")
    with pytest.raises(indexing.InputError, match="changed since the index was built"):
        indexing.load(out)
    (out / "index.faiss").unlink()
    with pytest.raises(indexing.InputError, match="missing"):
        indexing.load(out)
    (out / "index.json").write_text('{"format_version": 1, "kind": 3}')
    with pytest.raises(indexing.InputError, match="kind: wanted a str, got 3"):
        indexing.load(out)


@pytest.fixture(scope="module")
def many(squeezed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """So many vectors that a kill hits the middle."""
    folder = tmp_path_factory.mktemp("many")
    vectors = np.random.default_rng(0).normal(size=(12_000, 4)).astype(np.float32)
    np.save(folder / "in.npy", vectors)
    told = json.loads(squeezed.with_name("out.manifest.json").read_text())
    told |= {"rows": 12_000, "sha256": sha256_file(folder / "in.npy")}
    write_json(folder / "in.manifest.json", told)
    return folder / "in.npy"


def flags(many: Path, out: Path, kind: str) -> list[str]:
    more = ["--chunk_rows=500", "--checkpoint_seconds=0", "--ef_construction=40"]
    return [f"--vectors={many}", f"--out={out}", f"--kind={kind}", *more]


@pytest.fixture(scope="module")
def undisturbed(many: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    for kind in indexes.KINDS:
        assert index.main(flags(many, folder / kind, kind)) == 0
    return folder


def start(arguments: list[str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "dive_jax.index", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def kill_and_resume(many: Path, out: Path, kind: str, undisturbed: Path, wait_s: float) -> int:
    """Kills a build once something is kept; returns the rows that the next start found."""
    aside = out.with_name(f".{out.name}.partial")
    process = start(flags(many, out, kind))
    while process.poll() is None and not list(aside.glob("rows-[1-9]*.faiss")):
        time.sleep(0.002)
    time.sleep(wait_s)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert out.exists() == (not aside.exists())
    again = start(flags(many, out, kind))
    _, errors = again.communicate()
    assert again.returncode == 0, errors
    same(undisturbed / kind, out)
    assert sorted(each.name for each in out.parent.iterdir() if each.name[0] == ".") == []
    told = errors.partition(f"indexing {kind}: ")[2].partition("/")[0]
    return int(told.replace(",", "") or 0)


def test_killed_it_goes_on_to_the_same_bytes(many: Path, undisturbed: Path, tmp_path: Path):
    assert kill_and_resume(many, tmp_path / "index", "hnsw", undisturbed, 0.0) >= 500


@pytest.mark.slow
def test_killed_ten_times_it_ends_with_the_same_bytes(
    many: Path, undisturbed: Path, tmp_path: Path
):
    rng = np.random.default_rng(os.getpid())
    for turn in range(10):
        kind = indexes.KINDS[turn % len(indexes.KINDS)]
        kill_and_resume(many, tmp_path / f"index{turn}", kind, undisturbed, rng.uniform(0, 0.3))


def test_a_full_disk_keeps_what_was_written(
    many: Path,
    undisturbed: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    out, write, calls = tmp_path / "index", indexes.write, []

    def full(built: object, path: Path) -> None:
        calls.append(path)
        write(built, path if len(calls) < 4 else Path("/dev/full"))

    monkeypatch.setattr(indexing, "_COST", 0)  # a file after each chunk
    monkeypatch.setattr(indexes, "write", full)
    assert index.main(flags(many, out, "int8")) == 1
    shown = capsys.readouterr().err.splitlines()
    assert "/dev/full: cannot be written" in shown[-1]
    (kept,) = (tmp_path / ".index.partial").glob("*.faiss")
    assert int(kept.stem.removeprefix("rows-")) > 0
    assert not out.exists()
    monkeypatch.setattr(indexes, "write", write)
    assert index.main(flags(many, out, "int8")) == 0
    same(undisturbed / "int8", out)


def test_two_builds_do_not_share_a_folder(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    from dive_jax.studies.alone import alone

    out = tmp_path / "index"
    with alone(out.with_name(".index.lock"), "test"):
        assert index.main([f"--run={run}", f"--out={out}"]) == 2
    assert "another process is working on it" in capsys.readouterr().err
