"""What goes wrong in practice: each one clear line and status 2, and nothing half-written."""

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dive_jax import compress, evaluate, train
from tests import toy


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clean")
    toy.write(folder)
    return folder


@pytest.fixture(scope="module")
def run(clean: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "toy"
    more = [f"--data_root={clean}", f"--run_dir={folder}", "--epochs=1"]
    assert train.main([*toy.FLAGS, *more]) == 0
    return folder


@pytest.fixture
def root(clean: Path, tmp_path: Path) -> Path:
    shutil.copytree(clean, tmp_path / "data")
    return tmp_path / "data"


Mend = Callable[[Path], object]


def line(name: str, number: int, text: str | bytes) -> Mend:
    """Replaces one line (from 1) of a dataset's file."""

    def change(dataset: Path) -> None:
        lines = (dataset / name).read_bytes().split(b"\n")
        lines[number - 1] = text if isinstance(text, bytes) else text.encode()
        (dataset / name).write_bytes(b"\n".join(lines))

    return change


def gone(name: str) -> Mend:
    def change(dataset: Path) -> None:
        path = dataset / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return change


def holds(name: str, content: bytes) -> Mend:
    return lambda dataset: (dataset / name).write_bytes(content)


def store(change: Callable[[Path], object]) -> Mend:
    return lambda dataset: change(dataset / "embeddings" / toy.ENCODER)


def vectors(name: str, change: Callable[[np.ndarray], np.ndarray | None]) -> Mend:
    """Changes a store's vector file, its manifest left as it is."""

    def edit(folder: Path) -> None:
        array = np.load(folder / name)
        changed = change(array)
        np.save(folder / name, array if changed is None else changed)

    return store(edit)


def manifest(**changes: object) -> Mend:
    def edit(folder: Path) -> None:
        told = json.loads((folder / "manifest.json").read_text()) | changes
        (folder / "manifest.json").write_text(json.dumps(told))

    return store(edit)


def at(row: int, value: float) -> Callable[[np.ndarray], None]:
    def change(array: np.ndarray) -> None:
        array[row] = value

    return change


def both(dataset: Path) -> None:
    (dataset / "corpus.jsonl.gz").write_bytes(gzip.compress(b"{}"))


def crossed(dataset: Path) -> None:
    (dataset / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\nq1\tabsent\t1\n")


DATA: dict[str, tuple[Mend, list[str], str]] = {
    "no dataset": (lambda _: None, ["--dataset=absent"], "absent: no such dataset"),
    "no encoder": (lambda _: None, ["--encoder=absent"], "there are: toy-encoder"),
    "no texts and no vectors": (gone("embeddings"), [], "no such embeddings"),
    "two corpus files": (both, [], "both corpus.jsonl and corpus.jsonl.gz exist"),
    "a corpus of nothing": (holds("corpus.jsonl", b""), [], "corpus.jsonl: empty"),
    "no JSON": (line("corpus.jsonl", 3, "{oops"), [], "corpus.jsonl:3: "),
    "no object": (line("corpus.jsonl", 3, "[1]"), [], "corpus.jsonl:3: "),
    "no id": (line("corpus.jsonl", 3, '{"text": "x"}'), [], "corpus.jsonl:3: _id is missing"),
    "no text": (line("corpus.jsonl", 3, '{"_id": "d2"}'), [], "corpus.jsonl:3: text is missing"),
    "a numeric id": (line("corpus.jsonl", 3, '{"_id": 2, "text": "x"}'), [], "corpus.jsonl:3: "),
    "a numeric text": (line("corpus.jsonl", 3, '{"_id": "d2", "text": 1}'), [], ":3: text: "),
    "a document twice": (
        line("corpus.jsonl", 3, '{"_id": "d0", "text": "x"}'),
        [],
        "corpus.jsonl:3: _id d0 repeats that of line 1",
    ),
    "Latin-1": (line("corpus.jsonl", 3, b'{"_id": "d2", "text": "\xe9"}'), [], "corpus.jsonl:3: "),
    "a query twice": (
        line("queries.jsonl", 2, '{"_id": "q0", "text": "x"}'),
        [],
        "queries.jsonl:2: _id q0 repeats",
    ),
    "another document": (
        line("corpus.jsonl", 3, '{"_id": "new", "text": "x"}'),
        [],
        "have a vector but no text, the first is d2",
    ),
    "another query": (
        line("queries.jsonl", 3, '{"_id": "new", "text": "x"}'),
        [],
        "have a vector but no text, the first is q2",
    ),
    "no judgments at all": (gone("qrels"), [], "wanted test.tsv, train.tsv or dev.tsv"),
    "no training judgments": (gone("qrels/train.tsv"), [], "qrels/train.tsv: missing"),
    "no test judgments": (gone("qrels/test.tsv"), ["--split=protocol"], "qrels/test.tsv: missing"),
    "two columns": (line("qrels/train.tsv", 2, "q0\td0"), [], "train.tsv:2: wanted 3 columns"),
    "a gain of words": (line("qrels/train.tsv", 2, "q0\td0\tyes"), [], "train.tsv:2: gain"),
    "a broken gain": (line("qrels/train.tsv", 2, "q0\td0\t0.5"), [], "train.tsv:2: gain"),
    "a contradiction": (line("qrels/train.tsv", 3, "q0\td0\t2"), [], "train.tsv:3: query q0"),
    "only absent documents": (crossed, [], "qrels/train.tsv: wanted at least 2 judged queries"),
    "no vectors file": (store(gone("documents.npy")), [], "documents.npy: missing"),
    "no ids file": (store(gone("queries.ids.txt")), [], "queries.ids.txt: missing"),
    "no manifest": (store(gone("manifest.json")), [], "manifest.json: missing"),
    "a manifest of a later format": (manifest(format_version=2), [], "format_version: wanted 1"),
    "a manifest without encoder": (manifest(encoder=""), [], "encoder: wanted a name"),
    "a NaN": (vectors("documents.npy", at(7, np.nan)), [], "row 7 (id d7): not finite"),
    "an infinity": (vectors("queries.npy", at(7, np.inf)), [], "row 7 (id q7): not finite"),
    "a row of zeros": (vectors("documents.npy", at(9, 0.0)), [], "row 9 (id d9): a row of zeros"),
    "a row too few": (vectors("documents.npy", lambda a: a[:-1]), [], "59 rows, 60 ids"),
    "another width": (vectors("documents.npy", lambda a: a[:, :8]), [], "width 32, got 8"),
    "integers": (vectors("documents.npy", lambda a: a.astype(np.int32)), [], "got <i4"),
    "three axes": (vectors("documents.npy", lambda a: a[None]), [], "wanted shape [rows, dim]"),
    "a changed vector": (vectors("documents.npy", at(3, 0.5)), ["--verify"], "changed since"),
    "an id twice": (
        store(line("documents.ids.txt", 2, "d0")),
        [],
        "documents.ids.txt:2: id d0 repeats line 1",
    ),
    "a truncated file": (
        store(lambda f: (f / "queries.npy").write_bytes((f / "queries.npy").read_bytes()[:999])),
        [],
        "queries.npy: damaged",
    ),
    "no array at all": (store(holds("queries.npy", b"hello")), [], "queries.npy: not a .npy file"),
    "too wide": (lambda _: None, ["--dim=64"], "--dim: wanted at most the full width 32, got 64"),
    "too many heads": (lambda _: None, ["--dim=8", "--heads=5"], "dim * heads <= the full width"),
    "an encoder too wide": (lambda _: None, ["--encoder=lsa", "--lsa_dim=900"], "--lsa_dim"),
}


def one_line(captured: pytest.CaptureFixture[str], command: str) -> str:
    shown = captured.readouterr()
    lines = [each for each in shown.err.splitlines() if each.startswith(f"dive_jax.{command}: ")]
    assert len(lines) == 1, shown.err
    assert shown.err.splitlines()[-1] == lines[0]
    assert shown.out == ""
    assert "Traceback" not in shown.err
    return lines[0]


@pytest.mark.parametrize("name", DATA)
def test_bad_data(
    name: str,
    root: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("DIVE_JAX_CACHE", str(tmp_path / "cache"))
    change, more, wanted = DATA[name]
    change(root / "toy")
    before = sorted(root.rglob("*"))
    folder = tmp_path / "run"
    arguments = [*toy.FLAGS, f"--data_root={root}", f"--run_dir={folder}", *more]
    assert train.main(arguments) == 2
    assert wanted in one_line(capsys, "train")
    assert not folder.exists()
    assert sorted(root.rglob("*")) == before


def test_a_run_folder_that_is_a_file(root: Path, tmp_path: Path, capsys):
    (tmp_path / "run").write_text("mine")
    assert train.main([*toy.FLAGS, f"--data_root={root}", f"--run_dir={tmp_path / 'run'}"]) == 2
    assert "is a file; name a folder" in one_line(capsys, "train")
    assert (tmp_path / "run").read_text() == "mine"


def test_a_run_folder_of_something_else(root: Path, tmp_path: Path, capsys):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.tex").write_text("mine")
    assert train.main([*toy.FLAGS, f"--data_root={root}", f"--run_dir={tmp_path / 'run'}"]) == 2
    assert "no options.flags" in one_line(capsys, "train")
    assert [each.name for each in (tmp_path / "run").iterdir()] == ["thesis.tex"]


def test_training_that_diverges_says_where(root: Path, tmp_path: Path, capsys):
    more = [f"--data_root={root}", f"--run_dir={tmp_path / 'run'}", "--learning_rate=1e38"]
    assert train.main([*toy.FLAGS, *more]) == 1
    assert "the loss is not finite in epoch 1, seed 1" in one_line(capsys, "train")
    assert not (tmp_path / "run" / "metrics.json").exists()
    assert not (tmp_path / "run" / "adapters" / "dive-1").exists()


def damaged(run: Path, name: str, content: bytes) -> None:
    (run / name).write_bytes(content)


def same(run: Path) -> None:
    """Leaves the run as it is."""


EVALUATE: dict[str, tuple[Callable[[Path], None], list[str], str]] = {
    "no run named": (same, ["--run="], "--run: wanted the folder of a finished run"),
    "no run there": (same, ["--run=/no/such"], "the folder of a finished run, got /no/such"),
    "no adapter": (
        lambda run: shutil.rmtree(run / "adapters" / "dive-1"),
        [],
        "dive-1",
    ),
    "a damaged adapter": (
        lambda run: damaged(run, "adapters/dive-1/adapter.safetensors", b"x" * 99),
        [],
        "adapter.safetensors",
    ),
    "an adapter that is no JSON": (
        lambda run: damaged(run, "adapters/pca/adapter.json", b"{"),
        [],
        "adapter.json",
    ),
    "damaged options": (
        lambda run: damaged(run, "options.flags", b"--dim=none\n"),
        [],
        "--dim=none",
    ),
    "another split": (same, ["--split=odd"], "--split: wanted one of protocol, official"),
    "no such dataset": (same, ["--dataset=absent"], "absent: no such dataset"),
    "a split that leaks": (same, ["--split=protocol"], "would score queries that trained"),
    "judgments that leak": (same, ["--judgments=all"], "would score queries that trained"),
}


@pytest.mark.parametrize("name", EVALUATE)
def test_bad_evaluations(name: str, run: Path, root: Path, tmp_path: Path, capsys):
    change, more, wanted = EVALUATE[name]
    shutil.copytree(run, tmp_path / "run")
    change(tmp_path / "run")
    out = tmp_path / "out"
    arguments = [f"--run={tmp_path / 'run'}", f"--data_root={root}", f"--out={out}", *more]
    assert evaluate.main(arguments) == 2
    assert wanted in one_line(capsys, "evaluate")
    assert not out.exists()


def test_vectors_of_another_encoder_are_refused(run: Path, root: Path, tmp_path: Path, capsys):
    manifest(encoder="another")(root / "toy")
    arguments = [f"--run={run}", f"--data_root={root}", f"--out={tmp_path / 'out'}"]
    assert evaluate.main(arguments) == 2
    shown = one_line(capsys, "evaluate")
    assert "another" in shown
    assert toy.ENCODER in shown


GOOD = toy.vectors(60, 48, 0)[0]

COMPRESS: dict[str, tuple[np.ndarray | bytes, list[str], str]] = {
    "no run": (GOOD, ["--run="], "--run: wanted the folder"),
    "no adapters": (GOOD, ["--run=/"], "--run: no adapters in /"),
    "another method": (GOOD, ["--method=magic"], "no adapter magic"),
    "another seed": (GOOD, ["--seed=99"], "no adapter dive-99"),
    "no vectors named": (GOOD, ["--vectors="], "--vectors: wanted a .npy, Parquet or"),
    "another kind of file": (GOOD, ["--vectors=x.csv"], "--vectors: wanted a name ending in .npy"),
    "no such table": (GOOD, ["--vectors=x.parquet"], "x.parquet: no such file"),
    "no such file": (GOOD, ["--vectors=/no/such.npy"], "/no/such.npy: no such file"),
    "no output named": (GOOD, ["--out="], "--out: wanted a name ending in .npy or .parquet"),
    "another side": (GOOD, ["--side=passage"], "--side: wanted one of query, document"),
    "another type": (GOOD, ["--dtype=int4"], "wanted one of float32, float16, int8, binary"),
    "another width": (GOOD[:, :9], [], "9"),
    "one axis": (GOOD[0], [], "wanted shape [rows, dim]"),
    "no rows": (GOOD[:0], [], "wanted shape [rows, dim]"),
    "integers": (GOOD.astype(np.int64), [], "got <i8"),
    "a row of zeros": (np.concatenate([GOOD, 0 * GOOD[:1]]), [], "row 60 is all zeros"),
    "a NaN": (np.concatenate([GOOD, np.nan * GOOD[:1]]), [], "row 60 has a value that is not"),
    "a pickle": (np.array([[{"a": 1}]], dtype=object), [], "in.npy: "),
    "a damaged file": (b"\x93NUMPY\x01\x00v\x00{'descr': '<f4'", [], "in.npy: damaged"),
    "the wrong encoder": (GOOD, ["--encoder=another"], "another"),
}


@pytest.mark.parametrize("name", COMPRESS)
def test_bad_vectors_to_compress(name: str, run: Path, tmp_path: Path, capsys):
    given, more, wanted = COMPRESS[name]
    path, out = tmp_path / "in.npy", tmp_path / "sub" / "out.npy"
    if isinstance(given, bytes):
        path.write_bytes(given)
    else:
        np.save(path, given, allow_pickle=True)
    arguments = [f"--run={run}", f"--vectors={path}", f"--out={out}", *more]
    assert compress.main(arguments) == 2
    shown = capsys.readouterr()
    told = [each for each in shown.err.splitlines() if each.startswith("dive_jax.compress: ")]
    assert len(told) == 1
    assert wanted in told[0]
    assert shown.out == ""
    assert not out.exists()
    assert not out.with_name("out.manifest.json").exists()


def test_vectors_whose_manifest_names_another_encoder(run: Path, tmp_path: Path, capsys):
    np.save(tmp_path / "in.npy", GOOD)
    (tmp_path / "in.manifest.json").write_text('{"encoder": "another", "fingerprint": "0"}')
    out = tmp_path / "out.npy"
    arguments = [f"--run={run}", f"--vectors={tmp_path / 'in.npy'}", f"--out={out}"]
    assert compress.main(arguments) == 2
    assert "another" in capsys.readouterr().err
    assert not out.exists()


def test_an_unwritable_place_is_one_line(run: Path, tmp_path: Path, capsys):
    np.save(tmp_path / "in.npy", GOOD)
    (tmp_path / "file").write_text("")
    out = tmp_path / "file" / "out.npy"
    arguments = [f"--run={run}", f"--vectors={tmp_path / 'in.npy'}", f"--out={out}"]
    assert compress.main(arguments) == 1
    assert capsys.readouterr().err.count("dive_jax.compress: ") == 1
