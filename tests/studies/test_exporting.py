"""Exports with an encoder of a few lines of NumPy; the real ones are in tests/encoders."""

import dataclasses
import fcntl
import hashlib
import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from dive_jax.data.embeddings import load_store
from dive_jax.encoders.presets import Spec
from dive_jax.options import ExportOptions
from dive_jax.sources import load
from dive_jax.studies import export_places
from dive_jax.studies.export_places import resolve
from dive_jax.studies.exporting import Exported, export
from dive_jax.types import InputError
from tests import toy

DIM = 6


class Fake:
    """Vectors by the words of a text, a little changed by the batch it is in, as on a machine."""

    dim, pooling, max_tokens, compute, fingerprint = DIM, "mean", 3, "float32 on paper", "f" * 64

    def __init__(self, *, special: int = 0, fail_at: int | None = None) -> None:
        self.special, self.fail_at, self.batches = special, fail_at, []

    def lengths(self, texts: list[str], side: str) -> np.ndarray:
        return np.array([len(text.split()) + self.special for text in texts], np.int64)

    def encode(self, texts: list[str], side: str) -> np.ndarray:
        if len(self.batches) == self.fail_at:
            raise KeyboardInterrupt
        self.batches.append(list(texts))
        return np.stack([self._vector(text, side, texts) for text in texts])

    def _vector(self, text: str, side: str, texts: list[str]) -> np.ndarray:
        if text in ("nan", "zero"):
            return np.full(DIM, np.nan if text == "nan" else 0, np.float32)
        seeds = [int(hashlib.sha256(each.encode()).hexdigest()[:8], 16) for each in (side, text)]
        change = sum(map(len, texts)) % 7 * 1e-3
        return (np.random.default_rng(seeds).normal(size=DIM) + change).astype(np.float32)


def dataset(root: Path, name: str = "toy", **texts: dict[str, str]) -> Path:
    """Writes a collection of texts of one to five words."""
    words = ["one", "two", "three", "four", "five"]
    documents = {f"d{i}": " ".join([f"word{i}", *words[: i % 5]]) for i in range(13)}
    queries = {f"q{i}": f"ask {i}" for i in range(5)}
    folder = root / name
    toy._lines(
        folder / "corpus.jsonl",
        [{"_id": i, "text": t} for i, t in (documents | texts.get("documents", {})).items()],
    )
    toy._lines(
        folder / "queries.jsonl",
        [{"_id": i, "text": t} for i, t in (queries | texts.get("queries", {})).items()],
    )
    toy._judgments(folder / "qrels" / "test.tsv", [(0, 0), (1, 1)])
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    dataset(tmp_path / "root")
    return tmp_path / "root"


def settings(root: Path, **more: object) -> ExportOptions:
    given = {"dataset": "toy", "data_root": str(root), "batch_size": 3, "shard_rows": 5}
    return ExportOptions(**(given | more))


SPEC = Spec(name="mine", weights="owner/mine", source="owner/mine", pooling="mean")


@pytest.fixture(autouse=True)
def no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dive_jax.encoders.weights.commit", lambda *_: "c0ffee")


def run(
    options: ExportOptions, encoder: Fake | None = None, spec: Spec = SPEC
) -> tuple[list[Exported], list[str], Fake]:
    encoder, notes = encoder or Fake(), []
    bar = SimpleNamespace(update=lambda _: None)
    stores = export(
        options,
        spec,
        load=lambda _: encoder,
        progress=lambda label, total, done: nullcontext(bar),
        note=notes.append,
    )
    return stores, notes, encoder


def contents(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in sorted(folder.iterdir())}


def test_the_store_is_what_the_others_load(root: Path):
    ((store,), notes, _) = run(settings(root))
    assert store.folder == root / "toy" / "embeddings" / "mine"
    assert (store.root, store.fresh, notes) == (root, True, [])
    source = load("toy", "mine", root=str(root), verify=True)
    assert source.store.dim == DIM
    assert source.store.sides.document.ids == tuple(f"d{i}" for i in range(13))
    assert source.store.sides.document.vectors.dtype == np.float16
    norms = np.linalg.norm(np.asarray(source.vectors.document, np.float64), axis=1)
    np.testing.assert_allclose(norms, 1, atol=1e-3)
    assert not list((root / "toy" / "embeddings").glob(".*"))


def test_every_vector_stands_in_its_text_s_row(root: Path):
    encoder = Fake()
    ((store,), _, _) = run(settings(root, store_dtype="float32"), encoder)
    loaded = load_store(store.folder).sides
    for batch in encoder.batches:
        side = "query" if batch[0].startswith("ask") else "document"
        wanted = np.stack([encoder._vector(text, side, batch) for text in batch])
        wanted /= np.linalg.norm(wanted, axis=1, keepdims=True)
        number = [
            int(text.split()[1 if side == "query" else 0].removeprefix("word")) for text in batch
        ]
        np.testing.assert_allclose(getattr(loaded, side).vectors[number], wanted, atol=1e-6)


def test_batches_are_sorted_by_length_within_a_shard(root: Path):
    _, _, encoder = run(settings(root))
    lengths = [[min(len(text.split()), 3) for text in batch] for batch in encoder.batches]
    assert lengths == [[3, 3, 3], [2, 1], [3, 3, 3], [2, 1], [3, 2, 1], [2, 2, 2], [2, 2]]


def test_the_manifest_says_how_it_was_made(root: Path):
    ((store,), _, _) = run(settings(root))
    found = json.loads((store.folder / "manifest.json").read_text())
    assert found["encoder"] == "mine"
    assert found["dataset"] == "toy"
    assert (found["pooling"], found["max_tokens"], found["normalized"]) == ("mean", 3, True)
    assert (found["query_prefix"], found["document_prefix"]) == ("", "")
    assert (found["source"], found["revision"]) == ("owner/mine", "c0ffee")
    assert (found["compute"], found["computed_in"]) == ("float32 on paper", "float32")
    assert found["texts"]["documents"] == {
        "tokens": 3 * 1 + 3 * 2 + 7 * 3,
        "truncated": 4,
        "truncated_share": 4 / 13,
        "without_text": 0,
    }
    assert set(found["texts_fingerprint"]) == {"documents", "queries"}
    assert found["loaded"] == {"kind": "transformer", "weights": "owner/mine", "peft": []}


def test_two_collections_of_one_encoder_share_its_fingerprint(root: Path):
    dataset(root, "other", documents={"d99": "more"})
    ((one,), _, _), ((two,), _, _) = run(settings(root)), run(settings(root, dataset="other"))
    stores = [load_store(each.folder) for each in (one, two)]
    assert stores[0].encoder_fingerprint == stores[1].encoder_fingerprint
    assert stores[0].fingerprint != stores[1].fingerprint
    other = Fake()
    other.fingerprint = "0" * 64
    ((three,), _, _) = run(settings(root), other, dataclasses.replace(SPEC, name="mine2"))
    assert load_store(three.folder).encoder_fingerprint != stores[0].encoder_fingerprint


@pytest.mark.parametrize(("fail_at", "kept"), [(0, 0), (1, 0), (3, 2), (5, 5), (6, 5)])
def test_stopped_anywhere_it_ends_with_the_same_bits(
    fail_at: int, kept: int, root: Path, tmp_path: Path
):
    ((wanted,), _, undisturbed) = run(settings(root, out=str(tmp_path / "wanted")))
    options = settings(root, out=str(tmp_path / "stopped"))
    first = Fake(fail_at=fail_at)
    with pytest.raises(KeyboardInterrupt):
        run(options, first)
    ((store,), _, second) = run(options)
    assert contents(store.folder) == contents(wanted.folder)
    assert second.batches == undisturbed.batches[kept:]


def test_a_finished_export_is_not_done_again(root: Path):
    ((store,), _, _) = run(settings(root))
    (store.folder / "export.json").write_text("{}")  # killed just before it was removed
    before = contents(store.folder)

    def never(_: Spec) -> Fake:
        raise AssertionError

    bar = SimpleNamespace(update=lambda _: None)
    (again,) = export(
        settings(root),
        SPEC,
        load=never,
        progress=lambda *_: nullcontext(bar),
        note=lambda _: None,
    )
    assert not again.fresh
    assert contents(store.folder) == {n: v for n, v in before.items() if n != "export.json"}


CHANGES = {
    "a prefix": ({}, {"query_prefix": "query: "}, "--query_prefix=query:  (there )"),
    "pooling": ({}, {"pooling": "cls"}, "--pooling=cls (there mean)"),
    "tokens": ({}, {"max_tokens": 9}, "--max_tokens=9 (there 3)"),
    "the store's type": ({"store_dtype": "float32"}, {}, "--store_dtype=float32 (there float16)"),
    "the computing": ({"dtype": "bf16"}, {}, "--dtype=bf16 (there float32)"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_finished_store_of_other_settings_is_kept(name: str, root: Path):
    ((store,), _, _) = run(settings(root))
    before = contents(store.folder)
    options, spec, wanted = CHANGES[name]
    with pytest.raises(InputError, match="holds vectors made otherwise") as caught:
        run(settings(root, **options), spec=dataclasses.replace(SPEC, **spec))
    assert wanted in str(caught.value)
    assert contents(store.folder) == before


def test_an_unfinished_export_of_other_settings_is_kept(root: Path):
    with pytest.raises(KeyboardInterrupt):
        run(settings(root), Fake(fail_at=3))
    other = Fake()
    other.fingerprint = "0" * 64
    for options, encoder, wanted in (
        (settings(root, batch_size=2), Fake(), "--batch_size=2 (there 3)"),
        (settings(root, shard_rows=4), Fake(), "--shard_rows=4 (there 5)"),
        (settings(root), other, "other weights"),
    ):
        with pytest.raises(InputError, match="unfinished export with other settings") as caught:
            run(options, encoder)
        assert wanted in str(caught.value)
    dataset(root, documents={"d0": "changed"})
    with pytest.raises(InputError, match="other texts"):
        run(settings(root))


def test_other_versions_go_on_with_one_note(root: Path):
    with pytest.raises(KeyboardInterrupt):
        run(settings(root), Fake(fail_at=3))
    other = Fake()
    other.compute = "float32 on stone"
    _, notes, _ = run(settings(root), other)
    assert len(notes) == 1
    assert "began with other compute" in notes[0]


def test_a_shipped_store_is_not_touched(root: Path):
    folder = root / "toy" / "embeddings" / "mine"
    folder.mkdir(parents=True)
    (folder / "documents.npy").write_bytes(b"precious")
    with pytest.raises(InputError, match="exists and is not a store"):
        run(settings(root))
    assert (folder / "documents.npy").read_bytes() == b"precious"


def test_two_processes_do_not_share_an_export(root: Path):
    folder = root / "toy" / "embeddings" / ".mine.export"
    folder.mkdir(parents=True)
    with open(folder / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(InputError, match="another process is working on it"):
            run(settings(root))


def test_texts_without_words_are_embedded_where_the_encoder_can(root: Path):
    dataset(root, documents={"d3": "", "d4": " "}, queries={"q1": ""})
    ((store,), notes, _) = run(settings(root), Fake(special=2))
    assert notes == [
        "documents: 2 have no text; embedded as they are",
        "queries: 1 have no text; embedded as they are",
    ]
    assert store.manifest["texts"]["documents"]["without_text"] == 2
    assert store.manifest["dropped_queries"] == []


def test_queries_without_words_are_dropped_where_it_cannot(root: Path):
    dataset(root, queries={"q1": "", "q3": "\t"})
    ((store,), notes, _) = run(settings(root))
    assert store.manifest["dropped_queries"] == ["q1", "q3"]
    assert len(notes) == 1
    assert load("toy", "mine", root=str(root)).store.sides.query.ids == ("q0", "q2", "q4")


@pytest.mark.parametrize(
    ("texts", "wanted"),
    [
        ({"documents": {"d3": "", "d5": " "}}, r"document d3: has no text.*\(2 of the documents\)"),
        ({"queries": {f"q{i}": "" for i in range(5)}}, "query q0: has no text"),
        ({"documents": {"d6": "nan"}}, "document d6: .* not finite"),
        ({"documents": {"d7": "zero"}}, "document d7: .* a vector of zeros"),
        ({"queries": {"q2": "nan"}}, "query q2: the encoder, in float32 on paper"),
    ],
)
def test_a_text_without_a_vector_is_named(texts: dict, wanted: str, root: Path):
    dataset(root, **texts)
    with pytest.raises(InputError, match=wanted):
        run(settings(root))


def test_a_text_of_which_the_tokenizer_makes_nothing_is_named(
    root: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(
        Fake,
        "lengths",
        lambda _, texts, side: np.array(["word2" not in t for t in texts], np.int64),
    )
    with pytest.raises(InputError, match="document d2: the encoder's tokenizer makes nothing"):
        run(settings(root))


def test_weights_of_another_width_than_the_preset_s(root: Path):
    with pytest.raises(InputError, match="6 wide, but owner/mine is 768 wide"):
        run(settings(root), spec=dataclasses.replace(SPEC, dim=768))


def test_out_is_a_data_root_of_its_own(root: Path, tmp_path: Path):
    options = settings(root, out=str(tmp_path / "out"))
    ((store,), _, _) = run(options)
    assert store.folder == tmp_path / "out" / "toy" / "embeddings" / "mine"
    assert not (root / "toy" / "embeddings").exists()
    assert load("toy", "mine", root=str(tmp_path / "out")).collection.qrels["test"]
    dataset(root, documents={"d0": "changed"})
    with pytest.raises(InputError, match=r"corpus\.jsonl: differs from"):
        run(options, spec=dataclasses.replace(SPEC, name="second"))


def test_a_read_only_root_is_left_alone(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DIVE_JAX_DATA", str(root))
    (root / "toy").chmod(0o555)  # nor does the administrator write there
    try:
        ((store,), _, _) = run(settings(root, data_root=None))
        assert store.folder == Path("data/toy/embeddings/mine")
        assert store.root == Path("data")
        with pytest.raises(InputError, match=r"cannot be written; name a folder .* --out"):
            run(settings(root))
    finally:
        (root / "toy").chmod(0o755)
    assert not (root / "toy" / "embeddings").exists()


@pytest.mark.parametrize("where", ["a_file", "a_file/below"])
def test_a_folder_that_cannot_be_made_is_one_line(where: str, root: Path, tmp_path: Path):
    (tmp_path / "a_file").write_text("")
    with pytest.raises(InputError, match=r"cannot be written.*--out"):
        run(settings(root, out=str(tmp_path / where)))


def test_all_communities_are_embedded(root: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("dive_jax.sources.COMMUNITIES", {"many": ("a", "b")})
    for name in ("a", "b"):
        dataset(root, f"many/{name}")
    stores, _, _ = run(settings(root, dataset="many"))
    assert [each.dataset for each in stores] == ["many/a", "many/b"]
    assert {each.root for each in stores} == {root}


def test_the_built_in_dataset_keeps_its_vectors_beside_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("dive_jax.data.python_docs.build", lambda: root / "toy")
    ((store,), _, _) = run(ExportOptions(encoder="x/y"))
    assert store.folder == root / "toy" / "embeddings" / "mine"
    assert load("python_docs", "mine", root="nowhere").store.dim == DIM


BAD = {
    "no encoder": ({}, "--encoder: wanted a preset"),
    "lsa": ({"encoder": "lsa"}, "lsa is built in"),
    "no such preset": ({"encoder": "e5"}, "--encoder: e5 is no folder, no hub id"),
    "no such folder": ({"encoder": "./nowhere"}, "nowhere: no such folder"),
    "no such weights": ({"encoder": "gte-base", "weights": "/no/where"}, "/no/where: no such"),
    "peft without llm2vec": ({"encoder": "gte-base", "peft": ("a/b",)}, "--peft: goes with"),
    "a preset of another kind": ({"encoder": "gte-base", "kind": "llm2vec"}, "--kind: gte-base is"),
    "a name that climbs": ({"encoder": "gte-base", "name": "../x"}, "--name: wanted the name of"),
    "a hidden name": ({"encoder": "gte-base", "name": ".x"}, "--name: wanted the name of a folder"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_resolved_is_one_line(name: str):
    given, wanted = BAD[name]
    with pytest.raises(InputError) as caught:
        resolve(ExportOptions(**given))
    assert wanted in str(caught.value)
    assert "\n" not in str(caught.value)


def test_flags_win_over_a_preset(tmp_path: Path):
    spec = resolve(
        ExportOptions(
            encoder="intfloat/e5-base-v2",
            weights=str(tmp_path),
            query_prefix="",
            pooling="cls",
            max_tokens=64,
            revision="abc",
        )
    )
    assert spec.name == "e5-base-v2"
    assert (spec.weights, spec.source) == (str(tmp_path), "intfloat/e5-base-v2")
    assert (spec.query_prefix, spec.document_prefix) == ("", "passage: ")
    assert (spec.pooling, spec.max_tokens, spec.revision) == ("cls", 64, "abc")


def test_is_writable_looks_at_what_exists(tmp_path: Path):
    assert export_places.is_writable(tmp_path / "not" / "yet")
    (tmp_path / "file").write_text("")
    assert not export_places.is_writable(tmp_path / "file" / "below")
