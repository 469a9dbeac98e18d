"""Splits: sizes, order, disjointness, manifests and what training has seen."""

import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dive_jax.data import splits
from dive_jax.data.beir import load_collection
from dive_jax.types import InputError

TEN = {f"q{n}": {f"d{n}": 1} for n in range(10)}


def parts(split: splits.Split) -> tuple[set[str], set[str], set[str]]:
    return set(split.train), set(split.validation), set(split.test)


def test_a_protocol_split_is_the_hashed_order_cut_at_60_and_80() -> None:
    split = splits.make_split({"test": TEN}, seed=7)
    order = sorted(TEN, key=lambda id: hashlib.sha256(f"7:{id}".encode()).hexdigest())
    assert list(split.train + split.validation + split.test) == order
    assert [len(each) for each in (split.train, split.validation, split.test)] == [6, 2, 2]
    assert (split.seed, split.kind, split.judgments, split.counts) == (7, "protocol", "test", {})


def test_the_hashed_order_is_pinned() -> None:
    # printf '2027:%s' a | sha256sum, and so on.
    assert splits.hashed_order(["a", "b", "c", "é"], 2027) == ("c", "b", "a", "é")


@given(st.sets(st.text("abcé0", min_size=1, max_size=4), min_size=23, max_size=23), st.integers(0))
def test_a_protocol_split_covers_every_query_once(ids: set[str], seed: int) -> None:
    qrels = {id: {"d": 1} for id in ids}
    split = splits.make_split({"test": qrels}, seed=seed)
    train, validation, test = parts(split)
    assert len(split.train) == 13
    assert len(split.validation) == 4
    assert len(split.test) == 6
    assert train | validation | test == ids
    backwards = dict(sorted(qrels.items(), reverse=True))
    assert splits.make_split({"test": backwards}, seed=seed) == split


@given(*[st.sets(st.sampled_from("abcdefghijkl"), min_size=5, max_size=8) for _ in range(3)])
def test_an_official_split_is_disjoint_and_keeps_every_test_query(train, dev, test) -> None:
    files = {"train": train, "dev": dev, "test": test}
    by_file = {name: {id: {name: 1} for id in ids} for name, ids in files.items()}
    try:
        split = splits.make_split(by_file, split="official")
    except InputError:
        assert not train - dev - test or not dev - test
        return
    assert parts(split) == (train - dev - test, dev - test, test)
    qrels = splits.qrels_of(split, by_file)
    assert set(qrels) == train | dev | test
    assert {next(iter(qrels[id])) for id in test} == {"test"}
    assert sum(split.counts.values()) == sum(map(len, files.values())) - len(qrels)


def test_queries_without_a_relevant_document_are_left_out_and_counted() -> None:
    odd = {"none": {}, "bad": {"d1": 0, "d2": -1}}
    split = splits.make_split({"test": TEN | odd})
    assert set.union(*parts(split)) == set(TEN)
    assert split.counts == {"queries without a relevant document": 2}
    assert set(splits.qrels_of(split, {"test": TEN | odd})) == set(TEN)
    official = splits.make_split({"train": TEN | odd, "test": {"t": {"d": 1}}}, split="official")
    assert official.counts == {"queries without a relevant document (train)": 2}


def test_all_judgments_are_the_union_and_the_highest_gain_wins() -> None:
    by_file = {
        "train": {"a": {"x": 1, "y": 2}, "b": {"x": 1}},
        "test": {"a": {"x": 3, "y": 0}, "c": {"x": 1}, "d": {"x": 1}, "e": {"x": 1}},
    }
    split = splits.make_split(by_file, judgments="all")
    assert set.union(*parts(split)) == set("abcde")
    assert splits.qrels_of(split, by_file)["a"] == {"x": 3, "y": 2}
    assert split.counts == {"judgments that differ between files (the highest gain counts)": 2}


def test_test_judgments_ignore_the_other_files() -> None:
    by_file = {"test": TEN, "train": {"q1": {"other": 1}, "z": {"d": 1}}}
    split = splits.make_split(by_file)
    assert split == splits.make_split({"test": TEN})
    assert splits.qrels_of(split, by_file)["q1"] == {"d1": 1}


def test_without_a_dev_file_the_last_quarter_of_train_validates() -> None:
    by_file = {"train": TEN, "test": {"t": {"d": 1}}}
    split = splits.make_split(by_file, split="official")
    assert split.train + split.validation == splits.hashed_order(TEN, 2027)
    assert len(split.validation) == 2
    two = {"train": {"a": {"d": 1}, "b": {"d": 1}}, "test": {"t": {"d": 1}}}
    assert [len(part) for part in splits.make_split(two, split="official")[:3]] == [1, 1, 1]


def test_a_test_query_trains_nothing_and_keeps_the_test_files_judgments() -> None:
    by_file = {
        "train": {"a": {"x": 1}, "b": {"x": 1}, "c": {"x": 1}, "e": {"x": 1}},
        "dev": {"b": {"y": 1}, "c": {"y": 1}, "e": {"y": 0}},
        "test": {"c": {"z": 2}},
    }
    split = splits.make_split(by_file, split="official")
    assert parts(split) == ({"a", "e"}, {"b"}, {"c"})
    expected = {"a": {"x": 1}, "b": {"y": 1}, "c": {"z": 2}, "e": {"x": 1}}
    assert splits.qrels_of(split, by_file) == expected
    assert split.counts == {
        "queries without a relevant document (dev)": 1,
        "training queries dropped: they are test queries too": 1,
        "validation queries dropped: they are test queries too": 1,
        "training queries dropped: they are validation queries too": 1,
    }


def test_what_is_trained_on_and_scored() -> None:
    split = splits.make_split({"test": TEN})
    assert splits.trained_ids(split, "select") == split.train
    assert splits.scored_ids(split, "select") == split.validation
    assert splits.trained_ids(split, "final") == split.train + split.validation
    assert splits.scored_ids(split, "final") == split.test


def test_unseen_queries_and_overlap() -> None:
    qrels = {
        "t1": {"a": 1, "b": 0},
        "t2": {"c": 2},
        "s1": {"a": 1, "z": 1},  # one of its two is seen
        "s2": {"b": 1},  # judged in training, but not relevant there
        "s3": {"z": 1, "c": -1},  # c is not relevant here
    }
    assert splits.unseen_queries(["s3", "s2", "s1"], ["t1", "t2"], qrels) == ("s3", "s2")
    found = splits.overlap(["s1", "s2", "s3"], ["t1", "t2"], qrels)
    assert found == splits.Overlap(documents=3, seen_documents=1, queries=3, unseen_queries=2)


def test_a_manifest_is_the_same_byte_for_byte(tmp_path: Path) -> None:
    backwards = {id: TEN[id] for id in reversed(TEN)}
    for name, qrels in (("one", TEN), ("two", backwards)):
        splits.save_manifest(tmp_path / name, splits.make_split({"test": qrels}))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    written = json.loads((tmp_path / "one").read_text())
    split = splits.make_split({"test": TEN})
    assert written["seed"] == 2027
    assert written["fingerprint"] == split.fingerprint
    for part in ("train", "validation", "test"):
        assert tuple(written[part]) == getattr(split, part)
    splits.check_manifest(tmp_path / "one", split)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (splits.make_split({"test": TEN}, seed=1), "seed: wanted 1, got 2027"),
        (splits.make_split({"test": TEN | {"q0": {"d0": 2}}}), "qrels_sha256: wanted"),
        (splits.make_split({"test": TEN | {"r": {"d": 1}}}), "(test|validation|train): other qu"),
        (splits.make_split({"test": TEN}, judgments="all"), "judgments: wanted all, got test"),
        (
            splits.make_split({"train": TEN, "test": {"t": {"d": 1}}}, split="official"),
            "split: wanted official, got protocol",
        ),
    ],
)
def test_another_splits_manifest_is_refused(tmp_path: Path, other, message: str) -> None:
    path = tmp_path / "split.json"
    splits.save_manifest(path, splits.make_split({"test": TEN}))
    with pytest.raises(InputError, match=rf"split\.json: not the split of .*\({message}") as caught:
        splits.check_manifest(path, other)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m | {"fingerprint": "0" * 64}, "fingerprint: wanted"),
        (lambda m: m | {"test": m["test"][:1]}, "test: other queries"),
        (lambda m: {k: v for k, v in m.items() if k != "ids_sha256"}, "ids_sha256: wanted"),
        (lambda m: m | {"format_version": 2}, "format_version: wanted 1, got 2"),
    ],
)
def test_a_changed_manifest_is_refused(tmp_path: Path, change, message: str) -> None:
    path, split = tmp_path / "split.json", splits.make_split({"test": TEN})
    path.write_text(json.dumps(change(splits.manifest(split))))
    with pytest.raises(InputError, match=rf"split\.json: not the split of .*\({message}"):
        splits.check_manifest(path, split)


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, ":1: cannot be read"), (b"{", ": not JSON"), (b"[]", ": wanted a JSON object")],
)
def test_a_damaged_manifest_is_refused(tmp_path: Path, content, message: str) -> None:
    if content is not None:
        (tmp_path / "split.json").write_bytes(content)
    with pytest.raises(InputError, match=rf"split\.json{message}"):
        splits.check_manifest(tmp_path / "split.json", splits.make_split({"test": TEN}))


FOUR = {id: TEN[id] for id in list(TEN)[:4]}
ONE = {"t": {"d": 1}}
NONE = {"t": {"d": 0}}


@pytest.mark.parametrize(
    ("by_file", "options", "message"),
    [
        ({"test": FOUR}, {}, "needs at least 5 judged queries, got 4"),
        ({"test": NONE}, {}, "needs at least 5 judged queries, got 0"),
        ({}, {"judgments": "all"}, "needs at least 5 judged queries, got 0"),
        ({"train": TEN}, {}, "qrels/test.tsv: missing, .* there are: train; choose another"),
        ({}, {}, "qrels/test.tsv: missing, and this split needs it; there are: none"),
        ({"test": TEN}, {"split": "official"}, "qrels/train.tsv: missing, .* there are: test"),
        ({"train": TEN}, {"split": "official"}, "qrels/test.tsv: missing, .* there are: train"),
        ({"train": ONE, "test": TEN}, {"split": "official"}, "train.tsv: wanted at least 2 .* 1"),
        ({"train": TEN, "test": TEN}, {"split": "official"}, "train.tsv: wanted at least 2 .* 0"),
        (
            {"train": ONE, "dev": ONE, "test": TEN},
            {"split": "official"},
            "train.tsv: wanted at least 1 .* 0",
        ),
        ({"train": TEN, "test": NONE}, {"split": "official"}, "test.tsv: wanted at least 1 .* non"),
        (
            {"train": TEN, "dev": NONE, "test": ONE},
            {"split": "official"},
            "dev.tsv: wanted at least 1 judged query, got none",
        ),
        ({"test": TEN}, {"split": "random"}, "--split: wanted protocol or official, got random"),
        ({"test": TEN}, {"judgments": "dev"}, "--judgments: wanted test or all, got dev"),
    ],
)
def test_splits_that_cannot_be_made_say_why(by_file: dict, options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        splits.make_split(by_file, **options)
    assert "\n" not in str(caught.value)


def test_other_mistakes_say_why() -> None:
    split = splits.make_split({"test": TEN})
    with pytest.raises(InputError, match="--protocol: wanted select or final, got test"):
        splits.trained_ids(split, "test")
    with pytest.raises(InputError, match=r"query q\d of the split has no judgment"):
        splits.qrels_of(split, {"test": FOUR})


@pytest.mark.parametrize(
    ("name", "options", "sizes"),
    [
        ("scifact", {}, (180, 60, 60)),
        ("scifact", {"judgments": "all"}, (665, 221, 223)),
        ("scifact", {"split": "official"}, (607, 202, 300)),
        ("openbookqa-facts", {"split": "official"}, (4957, 500, 500)),
        ("feedbackqa", {"split": "official"}, (4407, 1100, 1992)),
        ("cranfield", {}, (135, 45, 45)),
    ],
)
def test_real_sizes(data_root: Path, name: str, options: dict, sizes: tuple) -> None:
    split = splits.make_split(load_collection(data_root / name).qrels, **options)
    assert tuple(map(len, split[:3])) == sizes
    assert split.counts == {}


def test_a_real_fingerprint_is_pinned(data_root: Path) -> None:
    split = splits.make_split(load_collection(data_root / "scifact").qrels)
    assert split.test[:3] == ("1088", "619", "784")
    assert split.fingerprint.startswith("866ccfe4")


@pytest.mark.parametrize(
    ("name", "trained", "found"),
    [
        # SciFact has no dev file: train and validation together are its train file.
        ("scifact", "final", splits.Overlap(283, 181, 300, 104)),
        # Against the train file alone, as the data's notes count them.
        ("feedbackqa", "select", splits.Overlap(1230, 898, 1992, 1094)),
        ("openbookqa-facts", "select", splits.Overlap(417, 395, 500, 23)),
        # Against train and dev, which the final protocol trains on.
        ("feedbackqa", "final", splits.Overlap(1230, 959, 1992, 1033)),
        ("openbookqa-facts", "final", splits.Overlap(417, 399, 500, 19)),
    ],
)
def test_real_overlap(data_root: Path, name: str, trained: str, found: splits.Overlap) -> None:
    by_file = load_collection(data_root / name).qrels
    split = splits.make_split(by_file, split="official")
    qrels = splits.qrels_of(split, by_file)
    assert splits.overlap(split.test, splits.trained_ids(split, trained), qrels) == found
