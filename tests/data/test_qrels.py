"""Judgments: what a file may hold, what is refused, and how several are put together."""

from pathlib import Path

import pytest

from dive_jax.data.qrels import read_qrels, union
from dive_jax.types import InputError


def test_gains_may_be_negative_zero_or_graded_and_a_header_is_optional(tmp_path: Path) -> None:
    path = tmp_path / "test.tsv"
    path.write_text("q\ta\t-1\nq\tb\t0\nq\tc\t+3\nq\tc\t3\n")
    expected = {"q": {"a": -1, "b": 0, "c": 3}}
    assert read_qrels(path) == (expected, {"repeated judgments": 1})
    for header in ("query-id\tcorpus-id\tscore\n", "Query_ID\tdoc\trel\n", "qid\tdocid\tgain\n"):
        path.write_text(header + "query\ta\t1\n")
        assert read_qrels(path) == ({"query": {"a": 1}}, {})
    path.write_text("query\ta\t1\n")  # an id that looks like a header, in the first line
    assert read_qrels(path)[0] == {"query": {"a": 1}}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (b"q1\td1\n", ":1: wanted 3 columns with tabs between them .* got 2"),
        (b"q1\td1\t1\nq1 d2 1\n", ":2: wanted 3 columns .* got 1"),
        (b"q1\t0\td1\t1\n", ":1: wanted 3 columns .* got 4"),
        (b"query-id\tcorpus-id\tscore\nq1\td1\t1.5\n", ":2: gain: wanted an integer, got '1.5'"),
        (b"q1\td1\tabc\n", ":1: gain: wanted an integer, got 'abc'"),
        (b"q1\td1\t\n", ":1: gain: wanted an integer, got ''"),
        (b"q1\td1\t 1\n", ":1: gain: wanted an integer, got ' 1'"),
        (b"q1\td1\t1_0\n", ":1: gain: wanted an integer, got '1_0'"),
        ("q1\td1\t\u0663\n".encode(), r":1: gain: wanted an integer, got '\\u0663'"),
        (b"q1\td1\t1000000\n", ":1: gain: wanted at most 10000 in size, got 1000000"),
        (b"q1\td1\t" + b"9" * 6000 + b"\n", ":1: gain: wanted at most 10000 in size, got 999"),
        (b"\td1\t1\n", ":1: query id: empty"),
        (b"q1\t\t1\n", ":1: document id: empty"),
        (b"q1\td\x001\t1\n", ":1: document id: .* holds a tab, newline or other control"),
        (b"q1\td1\t1\nq1\td\xe9\t1\n", ":2: not UTF-8"),
        (b"q1\td1\t1\nq2\td2\t1\nq1\td1\t2\n", ":3: query q1, document d1 has gain 2 .* 1 in line"),
        (b"", ": holds no judgment"),
        (b"query-id\tcorpus-id\tscore\n", ": holds no judgment"),
    ],
)
def test_bad_judgments_are_named(tmp_path: Path, rows: bytes, message: str) -> None:
    (tmp_path / "test.tsv").write_bytes(rows)
    with pytest.raises(InputError, match=r"/test\.tsv" + message) as caught:
        read_qrels(tmp_path / "test.tsv")
    assert "\n" not in str(caught.value)


def test_a_union_keeps_the_highest_gain_and_what_it_is_given() -> None:
    first, second = {"a": {"x": 1, "y": 2}}, {"a": {"x": 3, "y": 0}, "b": {"x": -1}}
    expected = {"a": {"x": 3, "y": 2}, "b": {"x": -1}}
    assert union({"one": first, "two": second}) == (expected, 2)
    assert union({"two": second, "one": first}) == (expected, 2)
    assert first == {"a": {"x": 1, "y": 2}}
    assert union({}) == ({}, 0)
