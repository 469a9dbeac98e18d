"""Reading BEIR folders: what is taken, what is counted, what is refused and how."""

import gzip
import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dive_jax.data import beir
from dive_jax.types import InputError

DOCUMENTS = [
    {"_id": "d1", "title": "Wings", "text": "of birds", "metadata": {"x": 1}},
    {"_id": "d2", "text": "of planes"},
    {"_id": "d3", "title": None, "text": ""},
    {"_id": "d4", "title": "Wings  of", "text": "\tbirds "},
]
QUERIES = [{"_id": "q1", "text": "what flies"}, {"_id": "q2", "text": " "}]


def jsonl(records: list[dict]) -> str:
    return "".join(json.dumps(each) + "\n" for each in records)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small, sound collection with an empty document, a twin and an empty query."""
    folder = tmp_path / "birds"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text(jsonl(DOCUMENTS))
    (folder / "queries.jsonl").write_text(jsonl(QUERIES))
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\nq2\td2\t2\n")
    return folder


def test_documents_and_queries_are_streamed_in_order(folder: Path) -> None:
    documents = list(beir.iter_documents(folder))
    assert [each.id for each in documents] == ["d1", "d2", "d3", "d4"]
    assert [each.full_text for each in documents[:3]] == ["Wings of birds", "of planes", ""]
    assert list(beir.iter_queries(folder)) == [("q1", "what flies"), ("q2", " ")]


def test_a_packed_folder_reads_the_same(folder: Path) -> None:
    plain = beir.load_collection(folder)
    for name in ("corpus.jsonl", "queries.jsonl"):
        with gzip.open(folder / f"{name}.gz", "wb") as stream:
            stream.write((folder / name).read_bytes())
        (folder / name).unlink()
    packed = beir.load_collection(folder)
    assert packed.fingerprint == plain.fingerprint
    assert packed.document_ids == plain.document_ids


def test_blank_lines_windows_line_ends_and_a_byte_order_mark_are_taken(folder: Path) -> None:
    before = beir.load_collection(folder)
    text = (folder / "corpus.jsonl").read_text().replace("\n", "\r\n\r\n")
    (folder / "corpus.jsonl").write_bytes(b"\xef\xbb\xbf" + text.encode())
    (folder / "qrels" / "test.tsv").write_bytes(b"q1\td1\t1\r\n\r\nq2\td2\t2")
    assert beir.load_collection(folder).fingerprint == before.fingerprint


def test_only_newlines_end_a_line(folder: Path) -> None:
    record = {"_id": "d9", "text": "a\u2028b\x85c"}
    (folder / "corpus.jsonl").write_text(json.dumps(record, ensure_ascii=False) + "\n", "utf-8")
    assert [each.text for each in beir.iter_documents(folder)] == ["a\u2028b\x85c"]


def test_a_collection_counts_what_is_odd_and_keeps_it(folder: Path) -> None:
    collection = beir.load_collection(folder)
    assert collection.name == "birds"
    assert collection.document_ids == ("d1", "d2", "d3", "d4")
    assert collection.query_ids == ("q1", "q2")
    assert collection.qrels == {"test": {"q1": {"d1": 1}, "q2": {"d2": 2}}}
    assert collection.counts == {
        "documents without text": 1,
        "documents whose text repeats an earlier one": 1,
        "queries without text": 1,
    }


def test_digests_know_equal_texts_and_follow_any_order(folder: Path) -> None:
    collection = beir.load_collection(folder)
    digests = collection.document_digests
    assert digests is not None
    assert digests.dtype == np.uint64
    assert digests[0] == digests[3] == beir.text_digest("Wings of birds")
    assert len(set(digests.tolist())) == 3
    other = collection.digests_of(("d2", "d1"))
    assert other is not None
    assert other.tolist() == [digests[1], digests[0]]


@given(st.lists(st.text("ab \t\n", max_size=6), min_size=3, max_size=3))
def test_digests_see_words_only(words: list[str]) -> None:
    joined = " ".join(words)
    same = " ".join(joined.split())
    assert beir.text_digest(joined) == beir.text_digest(same)
    assert beir.text_digest(joined + " c") != beir.text_digest(joined)


def test_judgments_of_what_is_absent_are_dropped_and_counted(folder: Path) -> None:
    (folder / "qrels" / "train.tsv").write_text(
        "q1\tgone\t1\nq1\td2\t0\nq1\td2\t0\nnobody\td1\t1\nnobody\tgone\t1\nq2\tgone\t1\n"
    )
    collection = beir.load_collection(folder)
    assert collection.qrels["train"] == {"q1": {"d2": 0}, "q2": {}}
    counts = {what: n for what, n in collection.counts.items() if "(train)" in what}
    assert counts == {
        "repeated judgments (train)": 1,
        "judgments of absent documents (train)": 2,
        "judgments of absent queries (train)": 2,
    }


def test_ids_can_stand_in_for_absent_texts(folder: Path) -> None:
    (folder / "corpus.jsonl").unlink()
    (folder / "queries.jsonl").unlink()
    collection = beir.load_collection(folder, ("d2", "d1"), ("q1",))
    assert collection.document_ids == ("d2", "d1")
    assert collection.document_digests is None
    assert collection.digests_of(("d1",)) is None
    assert collection.qrels == {"test": {"q1": {"d1": 1}}}
    assert collection.counts == {
        "documents without texts at hand: identical texts cannot be recognised": 2,
        "judgments of absent queries (test)": 1,
    }
    with pytest.raises(InputError, match="id d1 is given more than once"):
        beir.load_collection(folder, ("d1", "d2", "d1"), ("q1",))


def test_texts_at_hand_win_over_given_ids(folder: Path) -> None:
    assert beir.load_collection(folder, ("x",), ("y",)).document_ids == ("d1", "d2", "d3", "d4")


@pytest.mark.parametrize(
    ("change", "same"),
    [
        (lambda f: (f / "qrels" / "test.tsv").write_text("q2\td2\t2\nq1\td1\t1\n"), True),
        (lambda f: (f / "qrels" / "test.tsv").write_text("q2\td2\t1\nq1\td1\t1\n"), False),
        (lambda f: (f / "corpus.jsonl").write_text(jsonl(DOCUMENTS[:3])), False),
        (lambda f: (f / "queries.jsonl").write_text(jsonl(QUERIES).replace("flies", "f")), False),
    ],
)
def test_the_fingerprint_follows_the_content(folder: Path, change, same: bool) -> None:
    before = beir.load_collection(folder).fingerprint
    change(folder)
    assert (beir.load_collection(folder).fingerprint == before) is same


def test_texts_are_not_held(tmp_path: Path) -> None:
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "test.tsv").write_text("q\t1\t1\n")
    (tmp_path / "queries.jsonl").write_text('{"_id": "q", "text": "t"}\n')
    with open(tmp_path / "corpus.jsonl", "w") as stream:
        for number in range(400):
            stream.write(json.dumps({"_id": str(number), "text": f"{number} " * 5000}) + "\n")
    size = (tmp_path / "corpus.jsonl").stat().st_size
    tracemalloc.start()
    beir.load_collection(tmp_path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < size / 4


GOOD = b'{"_id": "x", "text": "t"}\n'
BAD_LINES = {
    "not UTF-8": (GOOD + b'{"_id": "y", "text": "\xff"}\n', ":2: not UTF-8 (byte 23 of the line)"),
    "not JSON": (GOOD + b"{'_id': 'y'}\n", ":2: not JSON"),
    "cut off": (GOOD + b'{"_id": "y", "te', ":2: not JSON"),
    "absurdly deep": (GOOD + b"[" * 100_000 + b"\n", ":2: not JSON"),
    "a list": (GOOD + b"[1]\n", ":2: wanted a JSON object, got list"),
    "a number": (b"7\n", ":1: wanted a JSON object, got int"),
    "no id": (b'{"id": "y", "text": "t"}\n', ":1: _id is missing"),
    "no text": (GOOD + b'\n{"_id": "y"}\n', ":3: text is missing"),
    "id a number": (b'{"_id": 7, "text": "t"}\n', ":1: _id: wanted a string, got int"),
    "id null": (b'{"_id": null, "text": "t"}\n', ":1: _id: wanted a string, got NoneType"),
    "text a list": (b'{"_id": "y", "text": ["t"]}\n', ":1: text: wanted a string, got list"),
    "text null": (b'{"_id": "y", "text": null}\n', ":1: text: wanted a string, got NoneType"),
    "id empty": (b'{"_id": "", "text": "t"}\n', ":1: _id: empty"),
    "id with tab": (b'{"_id": "a\\tb", "text": "t"}\n', ":1: _id: 'a\\tb' holds a tab"),
    "id with newline": (b'{"_id": "a\\nb", "text": "t"}\n', ":1: _id: 'a\\nb' holds a tab"),
    "id half a pair": (b'{"_id": "\\ud800", "text": "t"}\n', ":1: _id: '\\ud800' holds"),
    "repeated id": (GOOD + b"\n" + GOOD, ":3: _id x repeats that of line 1"),
    "empty": (b"\n", ": empty; wanted one JSON object a line"),
}


@pytest.mark.parametrize("name", ["corpus.jsonl", "queries.jsonl"])
@pytest.mark.parametrize("case", BAD_LINES)
def test_bad_lines_are_named(folder: Path, name: str, case: str) -> None:
    content, message = BAD_LINES[case]
    (folder / name).write_bytes(content)
    with pytest.raises(InputError) as caught:
        beir.load_collection(folder)
    assert str(caught.value).startswith(f"{folder / name}{message}")
    assert "\n" not in str(caught.value)


def test_a_title_must_be_a_string(folder: Path) -> None:
    (folder / "corpus.jsonl").write_text('{"_id": "d", "title": 3, "text": ""}\n')
    with pytest.raises(InputError, match=r"corpus.jsonl:1: title: wanted a string, got int"):
        list(beir.iter_documents(folder))


def packed_twice(folder: Path) -> None:
    (folder / "corpus.jsonl.gz").write_bytes(gzip.compress(GOOD))


def not_packed(folder: Path) -> None:
    (folder / "queries.jsonl").rename(folder / "queries.jsonl.gz")


def cut_off(folder: Path) -> None:
    (folder / "queries.jsonl").unlink()
    (folder / "queries.jsonl.gz").write_bytes(gzip.compress(GOOD * 1000)[:40])


def a_folder(folder: Path) -> None:
    (folder / "corpus.jsonl").unlink()
    (folder / "corpus.jsonl").mkdir()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (packed_twice, "birds: both corpus.jsonl and corpus.jsonl.gz exist; remove one"),
        (not_packed, "queries.jsonl.gz:1: cannot be read"),
        (cut_off, "queries.jsonl.gz:1: cannot be read"),
        (a_folder, "corpus.jsonl:1: cannot be read"),
        (
            lambda f: (f / "corpus.jsonl").unlink(),
            "corpus.jsonl: missing, and so is corpus.jsonl.g",
        ),
        (lambda f: (f / "queries.jsonl").unlink(), "queries.jsonl: missing, and so is queries.jso"),
        (lambda f: (f / "qrels" / "test.tsv").unlink(), "qrels: wanted test.tsv, train.tsv or dev"),
        (lambda f: f.rename(f.with_name("b")), "birds: no such folder; check --data_root and --da"),
    ],
)
def test_missing_and_damaged_files_are_named(folder: Path, spoil, message: str) -> None:
    spoil(folder)
    with pytest.raises(InputError) as caught:
        beir.load_collection(folder)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "documents", "judged", "counts"),
    [
        ("scifact", 5183, {"train": 809, "test": 300}, {}),
        ("openbookqa-facts", 6473, {"train": 4957, "dev": 500, "test": 500}, {}),
        ("feedbackqa", 2364, {"train": 4407, "dev": 1100, "test": 1992}, {}),
        (
            "cranfield",
            1400,
            {"test": 225},
            {"documents without text": 2, "documents whose text repeats an earlier one": 1},
        ),
    ],
)
def test_real_collections(
    data_root: Path, name: str, documents: int, judged: dict, counts: dict
) -> None:
    collection = beir.load_collection(data_root / name)
    assert len(collection.document_ids) == documents
    assert {file: len(qrels) for file, qrels in collection.qrels.items()} == judged
    assert collection.counts == counts
