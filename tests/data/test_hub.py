"""Repositories through the real `datasets` library, from copies of their files."""

from pathlib import Path
from typing import Any

import pytest

from dive_jax.data import hub
from dive_jax.types import InputError
from tests import hub_files


def place(folder: Path, tmp_path: Path) -> hub.Place:
    return hub.Place(str(folder), None, str(tmp_path / "cache"))


def test_texts_and_judgments_are_read_as_they_are_written(tmp_path: Path):
    root = hub_files.repositories(tmp_path / "BeIR")
    count, records = hub.texts(place(root / "scifact", tmp_path), "corpus")
    assert (count, list(records)) == (3, hub_files.DOCUMENTS)
    count, records = hub.texts(place(root / "scifact", tmp_path), "queries")
    assert (count, list(records)) == (2, hub_files.QUERIES)
    found = hub.judgments(place(root / "scifact-qrels", tmp_path), None)
    got = {name: [tuple(each.values()) for each in records] for name, (_, records) in found.items()}
    assert got == hub_files.JUDGMENTS  # ids are strings: "001" keeps its zeros


def test_the_dev_file_is_the_validation_split(tmp_path: Path):
    root = hub_files.repositories(tmp_path / "BeIR")
    (root / "scifact-qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\nq2\t1\t1\n")
    assert set(hub.judgments(place(root / "scifact-qrels", tmp_path), None)) == {
        *("train", "dev", "test"),
    }


def test_a_forum_has_all_in_one_repository(tmp_path: Path):
    root = hub_files.forum(tmp_path)
    one = place(root / "cqadupstack-android", tmp_path)
    assert list(hub.texts(one, "corpus")[1]) == hub_files.DOCUMENTS
    ((name, (count, records)),) = hub.judgments(one, "default").items()
    assert (name, count) == ("test", 2)
    assert [tuple(each.values()) for each in records] == hub_files.JUDGMENTS["test"]


def no_texts(root: Path) -> None:
    for each in (root / "scifact").glob("corpus*"):
        each.unlink()


def scripted(root: Path) -> None:
    """A repository of the old kind: a program that would be run."""
    no_texts(root)
    (root / "scifact" / "README.md").unlink()
    (root / "scifact" / "queries-00000-of-00001.parquet").unlink()
    (root / "scifact" / "scifact.py").write_text("open('executed', 'w')\n")


def damaged(root: Path) -> None:
    for each in (root / "scifact").glob("corpus*"):
        each.write_bytes(b"PAR1" + b"\0" * 40 + b"PAR1")


@pytest.mark.parametrize("harm", [no_texts, scripted, damaged])
def test_what_cannot_be_read_is_one_line_and_nothing_is_executed(
    tmp_path: Path, harm: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    root = hub_files.repositories(tmp_path / "BeIR")
    harm(root)
    with pytest.raises(InputError, match=r"scifact: ") as told:
        list(hub.texts(place(root / "scifact", tmp_path), "corpus")[1])
    assert "\n" not in str(told.value)
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("way", ["../../", "../scifact-qrels/../../", "{}/", "file://{}/"])
def test_a_card_that_names_files_elsewhere_is_refused(tmp_path: Path, way: str):
    root = hub_files.repositories(tmp_path / "BeIR")
    card = root / "scifact" / "README.md"
    card.write_text(card.read_text().replace("corpus*", way.format(tmp_path) + "secret.jsonl"))
    (tmp_path / "secret.jsonl").write_text('{"_id": "s", "title": "", "text": "secret"}\n')
    with pytest.raises(InputError, match=r"its card names a file outside of it|cannot be got"):
        hub.texts(place(root / "scifact", tmp_path), "corpus")


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        ("hf://datasets/BeIR/scifact@abc/corpus-0.parquet", True),
        ("hf://datasets/BeIR/scifact-qrels@abc/corpus-0.parquet", False),
        ("hf://datasets/BeIR/scifact@abc/../../x", False),
        ("/etc/hostname", False),
    ],
)
def test_files_of_a_repository_on_the_hub_lie_in_it(name: str, fits: bool):
    def check() -> None:
        hub._check_within({"corpus": [name]}, hub.Place("BeIR/scifact", "abc"))

    if fits:
        check()
    else:
        with pytest.raises(InputError, match="its card names a file outside of it"):
            check()


def test_columns_that_are_not_there_are_told(tmp_path: Path):
    nameless = [{"id": "1", "text": "a"}] * 2
    root = hub_files.repositories(tmp_path / "BeIR", documents=nameless)
    with pytest.raises(
        InputError, match="corpus: wanted columns _id and text, no _id among id, text"
    ):
        hub.texts(place(root / "scifact", tmp_path), "corpus")


def test_every_dataset_of_the_papers_has_its_repositories():
    from dive_jax.sources import parts

    for name in ("scifact", "fiqa", "arguana", "quora", "nfcorpus", "scidocs", "msmarco", "fever"):
        assert hub.repositories(name) == (f"BeIR/{name}", f"BeIR/{name}-qrels", None)
    forums = [hub.repositories(name) for name in parts("cqadupstack")]
    assert len({each.texts for each in forums}) == 12
    assert {each.qrels_configuration for each in forums} == {"default"}
    with pytest.raises(InputError, match=r"--dataset: no collection 'nothing' on the hub is known"):
        hub.repositories("nothing")


def test_a_whole_commit_is_not_asked_for_and_a_folder_is_no_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    assert hub.resolve("BeIR/scifact", "0" * 40) == "0" * 40
    hub_files.repositories(tmp_path / "BeIR")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="a folder of that name lies in the working folder"):
        hub.resolve("BeIR/scifact", None)


def test_fingerprints_follow_the_files(tmp_path: Path):
    root = hub_files.repositories(tmp_path / "BeIR")
    folders = {"texts": root / "scifact", "qrels": root / "scifact-qrels"}
    before = hub.fingerprint(folders)
    assert before == hub.fingerprint(folders)
    (root / "scifact-qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n")
    assert before != hub.fingerprint(folders)
