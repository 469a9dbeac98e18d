"""Collections from the hub's files, zips and folders; no test asks the network."""

import gzip
import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dive_jax import prepare
from dive_jax.data import hub
from dive_jax.data.beir import load_collection
from dive_jax.studies import preparing
from tests import hub_files

COMMIT, OTHER = "a" * 40, "b" * 40


def beir(folder: Path) -> Path:
    """Writes a collection in BEIR's layout."""
    (folder / "qrels").mkdir(parents=True)
    for name, rows in (("corpus", hub_files.DOCUMENTS), ("queries", hub_files.QUERIES)):
        text = "".join(json.dumps(each) + "\n" for each in rows)
        (folder / f"{name}.jsonl").write_text(text)
    for split, rows in hub_files.JUDGMENTS.items():
        lines = "".join(f"{query}\t{document}\t{gain}\n" for query, document, gain in rows)
        (folder / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + lines)
    return folder


def zipped(folder: Path, path: Path) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for each in sorted(folder.rglob("*")):
            out.write(each, each.relative_to(folder.parent))
    return path


def run(root: Path, source: Path | str, *more: str, dataset: str = "scifact") -> int:
    return prepare.main(
        [f"--dataset={dataset}", f"--data_root={root}", f"--source={source}", *more]
    )


def record_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "prepared.json").read_text())


SOURCES: dict[str, Callable[[Path], Path]] = {
    "repositories": lambda folder: hub_files.repositories(folder / "BeIR"),
    "repositories above": lambda folder: hub_files.repositories(folder / "BeIR").parent,
    "zip": lambda folder: zipped(beir(folder / "scifact"), folder / "x.zip"),
    "folder": lambda folder: beir(folder / "anything"),
    "folder above": lambda folder: beir(folder / "scifact").parent,
}


@pytest.mark.parametrize("source", SOURCES)
def test_every_source_gives_the_same_collection(tmp_path: Path, source: str, capsys):
    (tmp_path / "in").mkdir()
    given, root = SOURCES[source](tmp_path / "in"), tmp_path / "data"
    assert run(root, given) == 0
    shown = capsys.readouterr()
    assert "scifact: 3 documents, 2 queries, judged queries train 1 / test 1" in shown.out
    assert "published figures are for 5,183 documents and 300 judged test queries" in shown.err
    folder = root / "scifact"
    assert sorted(each.name for each in folder.iterdir()) == [
        *("corpus.jsonl", "prepared.json", "qrels", "queries.jsonl"),
    ]
    assert [each.name for each in root.iterdir()] == ["scifact"]
    wanted = load_collection(beir(tmp_path / "wanted"))
    assert load_collection(folder).fingerprint == wanted.fingerprint
    told = record_of(folder)
    assert told["fingerprint"] == wanted.fingerprint
    assert told["source"]["kind"] == source.split()[0]
    assert set(told["files"]) == {
        "corpus.jsonl",
        "queries.jsonl",
        "qrels/train.tsv",
        "qrels/test.tsv",
    }


def test_what_is_finished_is_not_done_again_but_checked(tmp_path: Path, capsys):
    source, root = SOURCES["folder"](tmp_path), tmp_path / "data"
    assert run(root, source) == 0
    stamp = (root / "scifact" / "corpus.jsonl").stat().st_mtime_ns
    shutil.rmtree(source)
    assert run(root, source) == 0
    assert "was there already" in capsys.readouterr().out
    assert (root / "scifact" / "corpus.jsonl").stat().st_mtime_ns == stamp
    (root / "scifact" / "corpus.jsonl").write_text("{}")
    assert run(root, source) == 2
    assert "scifact: changed since it was made; remove it" in capsys.readouterr().err


def test_a_folder_that_the_user_filled_is_left_as_it_is(tmp_path: Path, capsys):
    beir(tmp_path / "data" / "scifact")
    assert run(tmp_path / "data", "hub") == 0
    assert "3 documents" in capsys.readouterr().out
    assert not (tmp_path / "data" / "scifact" / "prepared.json").exists()
    (tmp_path / "data" / "scifact" / "queries.jsonl").unlink()
    assert run(tmp_path / "data", "hub") == 2
    assert "queries.jsonl: missing" in capsys.readouterr().err


def test_all_twelve_forums_are_prepared_one_by_one(tmp_path: Path, capsys):
    from dive_jax.sources import COMMUNITIES

    for name in COMMUNITIES["cqadupstack"]:
        hub_files.forum(tmp_path / "in", f"cqadupstack-{name}")
    assert run(tmp_path / "data", tmp_path / "in", dataset="cqadupstack") == 0
    assert len(capsys.readouterr().out.splitlines()) == 12
    for name in COMMUNITIES["cqadupstack"]:
        collection = load_collection(tmp_path / "data" / "cqadupstack" / name)
        assert collection.qrels == {"test": {"001": {"1": 1}, "q2": {"02": 0}}}
    assert run(tmp_path / "d", "hub", f"--revision={COMMIT}", dataset="cqadupstack") == 2
    assert "pin them one at a time" in capsys.readouterr().err


class Hub:
    """Stands in for the hub: repositories at hand, and the revisions that were asked for."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        import datasets

        self.asked: list[tuple[str, str | None]] = []
        self.newest = COMMIT
        build = datasets.load_dataset_builder

        def stand_in(path: str, name: str | None = None, **more: Any) -> Any:
            self.asked.append((path, more.pop("revision")))
            more["cache_dir"] = str(folder / "cache")
            return build(str(folder / path), name, **more)

        def resolve(repository: str, revision: str | None) -> str:
            return self.newest if revision in (None, "main") else str(revision)

        monkeypatch.setattr(datasets, "load_dataset_builder", stand_in)
        monkeypatch.setattr(hub, "_check_within", lambda *_: None)  # it knows the hub's own names
        monkeypatch.setattr(hub, "resolve", resolve)


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    hub_files.repositories(tmp_path / "hub" / "BeIR")
    hub_files.forum(tmp_path / "hub" / "mteb")
    return Hub(tmp_path / "hub", monkeypatch)


def test_the_hub_s_revision_is_resolved_used_and_recorded(tmp_path: Path, stand_in: Hub, capsys):
    assert run(tmp_path / "data", "hub") == 0
    assert set(stand_in.asked) == {("BeIR/scifact", COMMIT), ("BeIR/scifact-qrels", COMMIT)}
    told = record_of(tmp_path / "data" / "scifact")["source"]
    assert (told["kind"], told["revision"], told["qrels_revision"]) == ("hub", COMMIT, COMMIT)
    assert run(tmp_path / "data", "hub", f"--revision={COMMIT}") == 0
    assert run(tmp_path / "data", "hub", f"--revision={OTHER}") == 2
    assert f"--revision: {tmp_path}/data/scifact holds {COMMIT}" in capsys.readouterr().err


def test_a_revision_is_pinned_for_texts_and_judgments(tmp_path: Path, stand_in: Hub):
    assert run(tmp_path / "a", "hub", f"--revision={OTHER}", "--qrels_revision=v2") == 0
    assert set(stand_in.asked) == {("BeIR/scifact", OTHER), ("BeIR/scifact-qrels", "v2")}
    stand_in.asked.clear()
    more = [f"--revision={OTHER}"]
    assert run(tmp_path / "b", "hub", *more, dataset="cqadupstack/android") == 0
    assert set(stand_in.asked) == {("mteb/cqadupstack-android", OTHER)}


def test_another_repository_may_hold_it_all(tmp_path: Path, stand_in: Hub, capsys):
    named = "--repository=mteb/cqadupstack-android"
    assert run(tmp_path / "a", "hub", named, dataset="anything") == 0
    assert set(stand_in.asked) == {("mteb/cqadupstack-android", COMMIT)}
    assert run(tmp_path / "a", "hub", named, dataset="anything") == 0
    assert run(tmp_path / "a", "hub", "--repository=mteb/other", dataset="anything") == 2
    assert "--repository: " in capsys.readouterr().err
    given = tmp_path / "hub"
    assert run(tmp_path / "b", given, named, dataset="anything") == 0
    assert load_collection(tmp_path / "b" / "anything").qrels.keys() == {"test"}


def interrupted(monkeypatch: pytest.MonkeyPatch, name: str) -> pytest.MonkeyPatch:
    """Makes the writing of one file end as a signal would."""
    write = preparing.write_judgments

    def ends(path: Path, records: Any) -> int:
        if path.name == name:
            raise KeyboardInterrupt
        return write(path, records)

    monkeypatch.setattr(preparing, "write_judgments", ends)
    return monkeypatch


def test_interrupted_it_goes_on_with_what_is_missing_at_the_same_revision(
    tmp_path: Path, stand_in: Hub
):
    with pytest.MonkeyPatch.context() as patch:
        interrupted(patch, "test.tsv")
        assert run(tmp_path / "data", "hub") == 130
    aside = tmp_path / "data" / ".scifact.partial"
    assert not (tmp_path / "data" / "scifact").exists()
    stamp = (aside / "corpus.jsonl").stat().st_mtime_ns
    (aside / ".corpus.123.partial.jsonl").write_text("left by a kill")
    stand_in.newest, stand_in.asked = OTHER, []
    assert run(tmp_path / "data", "hub") == 0
    assert stand_in.asked == [("BeIR/scifact-qrels", COMMIT)]
    assert (tmp_path / "data" / "scifact" / "corpus.jsonl").stat().st_mtime_ns == stamp
    assert record_of(tmp_path / "data" / "scifact")["source"]["revision"] == COMMIT
    assert not list((tmp_path / "data").rglob("*partial*"))


def test_another_source_begins_anew(tmp_path: Path, stand_in: Hub):
    with pytest.MonkeyPatch.context() as patch:
        interrupted(patch, "test.tsv")
        assert run(tmp_path / "data", "hub") == 130
    assert run(tmp_path / "data", beir(tmp_path / "other")) == 0
    assert record_of(tmp_path / "data" / "scifact")["source"]["kind"] == "folder"


def test_two_at_once_do_not_mix(tmp_path: Path, capsys):
    from dive_jax.studies.alone import alone

    source, aside = beir(tmp_path / "in"), tmp_path / "data" / ".scifact.partial"
    aside.mkdir(parents=True)
    with alone(aside / ".lock", "x"):
        assert run(tmp_path / "data", source) == 2
    assert "another process is working on it" in capsys.readouterr().err
    assert run(tmp_path / "data", source) == 0


@pytest.mark.parametrize("more", [[], [f"--revision={COMMIT}", f"--qrels_revision={COMMIT}"]])
def test_without_a_network_one_line_names_the_folder_to_fill(
    tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch, more: list[str]
):
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)
    assert run(tmp_path / "data", "hub", *more) == 2
    (told,) = capsys.readouterr().err.splitlines()
    assert told.startswith("dive_jax.prepare: BeIR/scifact: cannot be got or read (")
    assert told.endswith(
        f"; fill {tmp_path}/data/scifact with corpus.jsonl, queries.jsonl and qrels/test.tsv, or "
        "give --source=ZIP or FOLDER"
    )
    assert not list((tmp_path / "data").iterdir())


def without(name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (beir(folder / "scifact") / name).unlink()
        return folder / "scifact"

    return make


def with_text(name: str, text: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (beir(folder / "scifact") / name).write_text(text)
        return folder / "scifact"

    return make


def strangers(folder: Path) -> Path:
    documents = [{"_id": f"x{each}", "title": "", "text": "a"} for each in range(4)]
    return hub_files.repositories(folder, documents=documents, queries=documents)


def null_text(folder: Path) -> Path:
    odd = [*hub_files.DOCUMENTS, {"_id": "9", "title": "", "text": None}]
    return hub_files.repositories(folder, documents=odd)


def climbing(folder: Path) -> Path:
    path = zipped(beir(folder / "scifact"), folder / "x.zip")
    with zipfile.ZipFile(path, "a") as out:
        out.writestr("../../../escaped", b"x")
    return path


def bomb(folder: Path) -> Path:
    beir(folder / "scifact")
    (folder / "scifact" / "corpus.jsonl").unlink()
    packed = gzip.compress(b"\n" * (40 << 20), 9)
    (folder / "scifact" / "corpus.jsonl.gz").write_bytes(packed)
    return folder / "scifact"


BAD: dict[str, tuple[Callable[[Path], Path | str], list[str], str]] = {
    "no such source": (lambda folder: folder / "no.zip", [], "--source: no such zip or folder"),
    "no zip": (with_text("x.zip", "PK"), ["--source={}/scifact/x.zip"], "not a zip, or damaged"),
    "nothing in the folder": (lambda folder: folder, [], "holds neither corpus.jsonl, here or in"),
    "no queries": (without("queries.jsonl"), [], "queries.jsonl: missing"),
    "no judgments": (with_text("qrels/test.tsv", "a\tb\n"), [], "wanted 3 columns"),
    "no text": (with_text("corpus.jsonl", '{"_id": "d"}\n'), [], "corpus.jsonl:1: text is missing"),
    "not JSON": (with_text("queries.jsonl", "{\n"), [], "queries.jsonl:1: not JSON"),
    "an id twice": (
        with_text("corpus.jsonl", '{"_id": "d", "text": "a"}\n' * 2),
        [],
        "corpus.jsonl:2: _id d repeats that of line 1",
    ),
    "judgments of others": (strangers, [], "texts and judgments do not belong together"),
    "a null text": (null_text, [], "corpus.jsonl: record 4: text: wanted a string, got NoneType"),
    "a zip that climbs": (climbing, [], "climbs out of the folder it is unpacked to"),
    "a bomb": (bomb, [], "unpacks to more than 16,777,216 bytes"),
    "no name": (beir, ["--dataset="], "--dataset: wanted a name, such as scifact"),
    "a name that climbs": (beir, ["--dataset=../x"], "--dataset: wanted a name such as scifact"),
    "a name from the root": (beir, ["--dataset=/etc"], "--dataset: wanted a name such as scifact"),
    "an unknown name": (
        lambda _: "hub",
        ["--dataset=unheard_of"],
        "--dataset: no collection 'unheard_of' on the hub is known; wanted one of scifact",
    ),
    "the folder itself": (beir, ["--data_root={}/..", "--dataset=in"], "is the folder to write"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_sources_are_one_line_and_leave_nothing(tmp_path: Path, name: str, capsys):
    make, more, wanted = BAD[name]
    (tmp_path / "in").mkdir()
    (tmp_path / "data").mkdir()
    if name == "the folder itself":
        (tmp_path / "in").rmdir()
    source = make(tmp_path / "in")
    if name == "the folder itself":
        (tmp_path / "in" / "qrels" / "test.tsv").unlink()  # else it stands as it is
        (tmp_path / "in" / "qrels" / "train.tsv").unlink()
        wanted = "wanted test.tsv, train.tsv or dev.tsv, found none"
    flags = [each.format(tmp_path / "in") for each in more]
    assert run(tmp_path / "data", source, *flags) == 2
    shown = capsys.readouterr()
    (told,) = [each for each in shown.err.splitlines() if each.startswith("dive_jax.prepare: ")]
    assert wanted in told
    assert shown.out == ""
    assert not (tmp_path / "data" / "scifact").exists()
    assert not list(tmp_path.rglob("escaped"))


def test_an_unwritable_place_is_one_line(tmp_path: Path, capsys):
    (tmp_path / "file").write_text("")
    assert run(tmp_path / "file", beir(tmp_path / "in")) == 1
    assert capsys.readouterr().err.count("dive_jax.prepare: ") == 1


def test_scifact_from_a_zip_is_the_one_at_hand(tmp_path: Path, data_root: Path, capsys):
    given = data_root / "scifact"
    with zipfile.ZipFile(
        tmp_path / "scifact.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=1
    ) as out:
        for name in ("corpus.jsonl", "queries.jsonl", "qrels/train.tsv", "qrels/test.tsv"):
            out.write(given / name, f"scifact/{name}")
    assert run(tmp_path / "data", tmp_path / "scifact.zip") == 0
    shown = capsys.readouterr()
    assert "5,183 documents" in shown.out
    assert "published" not in shown.err
    for name in ("corpus.jsonl", "qrels/test.tsv"):
        assert (tmp_path / "data" / "scifact" / name).read_bytes() == (given / name).read_bytes()
