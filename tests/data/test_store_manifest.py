"""The manifest of an embedding store: every key it needs is missed by name."""

import copy
import json
from pathlib import Path

import pytest

from dive_jax.data.store_manifest import fingerprints, read_manifest, write_manifest
from dive_jax.types import InputError

SIDE = {"rows": 3, "dim": 4, "vectors_sha256": "a" * 64, "ids_sha256": "b" * 64}
MANIFEST = {
    "format_version": 1,
    "encoder": "tiny",
    "sides": {"documents": SIDE, "queries": SIDE | {"rows": 2}},
}


def changed(**keys: object) -> dict:
    """A sound manifest with other values; a__b is b within a, None takes the key away."""
    manifest = copy.deepcopy(MANIFEST)
    for name, value in keys.items():
        *outer, last = name.split("__")
        target = manifest
        for key in outer:
            target = target[key]
        target[last] = value
        if value is None:
            del target[last]
    return manifest


def test_a_sound_manifest_is_read(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(MANIFEST))
    assert read_manifest(path) == MANIFEST


def test_what_is_written_is_read_whatever_the_details(tmp_path: Path) -> None:
    for name in ("documents.npy", "documents.ids.txt", "queries.npy", "queries.ids.txt"):
        (tmp_path / name).write_text(name)
    shapes = {"documents": (3, 4), "queries": (2, 4)}
    write_manifest(tmp_path, "tiny", "float16", shapes, {"pooling": "mean"})
    found = read_manifest(tmp_path / "manifest.json")
    assert found["pooling"] == "mean"
    assert found["sides"]["queries"]["rows"] == 2
    with pytest.raises(ValueError, match=r"wanted other keys .* got \['dtype', 'sides'\]"):
        write_manifest(tmp_path, "tiny", "float16", shapes, {"sides": {}, "dtype": ""})


@pytest.mark.parametrize(
    ("keys", "encoder", "store"),
    [
        ({"dataset": "other", "dtype": "float32", "compute": "elsewhere"}, True, True),
        ({"sides__queries__ids_sha256": "c" * 64}, True, False),
        ({"sides__documents__vectors_sha256": "c" * 64}, True, False),
        ({"sides__documents__dim": 5}, False, False),
        ({"encoder": "other"}, False, False),
        ({"source": "other"}, False, False),
        ({"encoder_fingerprint_extra": "other"}, False, False),
    ],
)
def test_fingerprints_follow_what_they_stand_for(keys: dict, encoder: bool, store: bool) -> None:
    before, after = fingerprints(MANIFEST), fingerprints(changed(**keys))
    assert (after[0] == before[0], after[1] == before[1]) == (encoder, store)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"format_version": 2}, "format_version: wanted 1, got 2"),
        ({"format_version": True}, "format_version: wanted 1, got True"),
        ({"format_version": None}, "format_version: wanted 1, got None"),
        ({"encoder": None}, "encoder is missing; wanted a name"),
        ({"encoder": ["x"]}, "encoder: wanted a name"),
        ({"dropped_queries": "q1"}, "dropped_queries: wanted a list of ids, got 'q1'"),
        ({"sides": None}, "sides is missing; wanted an object"),
        ({"sides__queries": None}, "sides.queries is missing; wanted an object"),
        ({"sides__documents__rows": "3"}, "sides.documents.rows: wanted a positive int.*'3'"),
        ({"sides__documents__dim": None}, "sides.documents.dim is missing; wanted a positive"),
        ({"sides__queries__ids_sha256": "no"}, "sides.queries.ids_sha256: wanted a SHA-256"),
        ({"sides__queries__dim": 5}, "wanted one width, got 5 for the queries, 4 for the doc"),
    ],
)
def test_bad_manifests_are_named(tmp_path: Path, keys: dict, message: str) -> None:
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(changed(**keys)))
    with pytest.raises(InputError, match=f"{path}: {message}"):
        read_manifest(path)


@pytest.mark.parametrize("text", ["", "{", "[]", "\udcff"])
def test_a_manifest_that_is_no_json_object_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(InputError, match=r"manifest\.json.*: (not JSON|wanted a JSON|not UTF-8)"):
        read_manifest(tmp_path / "manifest.json")
