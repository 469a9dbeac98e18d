"""The reader that users copy: short, licensed, and not to be fooled."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dive_jax import safetensors
from dive_jax.artefact import apply
from dive_jax.interop import adapter_numpy
from dive_jax.interop.adapter_numpy import load
from tests.interop.cases import DIM, FULL, artefacts, exported, normal

SOURCE = Path(adapter_numpy.__file__)


def test_it_is_one_short_file_of_numpy_with_its_licence():
    text = SOURCE.read_text()
    assert text.count("\n") < 100
    assert text.startswith("# SPDX-License-Identifier: MIT\n# Copyright (c) 2026 The dive_jax")
    assert "dive_jax import" not in text


def test_it_runs_where_dive_jax_is_not(tmp_path: Path):
    exported(artefacts()["chain"], "numpy", tmp_path / "out")
    code = (
        "import sys; sys.path.insert(0, '.'); import adapter_numpy, numpy;"
        f"print(adapter_numpy.load('.').compress(numpy.ones((2, {FULL}))).shape);"
        "print({'dive_jax', 'jax', 'torch', 'safetensors'} & sys.modules.keys())"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], cwd=tmp_path / "out", capture_output=True, text=True
    )
    assert done.stdout.split("\n")[:2] == [f"(2, {DIM})", "set()"], done.stderr


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_length_and_type_of_vectors_do_not_matter(scale: float, dtype, tmp_path: Path):
    saved = exported(artefacts()["residual"], "numpy", tmp_path / "out")
    rows = normal(1, 4, FULL, scale=1.0)
    rows = rows if dtype is np.float16 else rows * np.float32(scale)
    unit = rows.astype(np.float64)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    got = load(tmp_path / "out").compress(rows.astype(dtype))
    np.testing.assert_allclose(got, apply(saved, unit), atol=1e-3 if dtype is np.float16 else 1e-5)


def test_no_rows_give_no_rows(tmp_path: Path):
    exported(artefacts()["mlp"], "numpy", tmp_path / "out")
    assert load(tmp_path / "out").compress(np.zeros((0, FULL))).shape == (0, DIM)


@pytest.mark.parametrize(
    ("shape", "side", "message"),
    [
        ((2, 3), "query", r"wanted vectors \[rows, 384\], got \(2, 3\)"),
        ((FULL,), "query", "wanted vectors"),
        ((2, FULL), "document", "maps the side query, not 'document'"),
        ((2, FULL), "passage", "maps the side query, not 'passage'"),
    ],
)
def test_other_vectors_are_refused(shape: tuple, side: str, message: str, tmp_path: Path):
    exported(artefacts()["queries"], "numpy", tmp_path / "out")
    with pytest.raises(ValueError, match=message):
        load(tmp_path / "out").compress(np.ones(shape), side)


def rewritten(folder: Path, change: Callable[[dict, dict], None]) -> None:
    """Changes meta and arrays of a saved adapter, with a sum that is right again."""
    meta = json.loads((folder / "adapter.json").read_text())
    arrays = safetensors.decode((folder / "adapter.safetensors").read_bytes())
    change(meta, arrays)
    data = safetensors.encode(arrays)
    (folder / "adapter.safetensors").write_bytes(data)
    (folder / "adapter.json").write_text(
        json.dumps(meta | {"sha256": hashlib.sha256(data).hexdigest()})
    )


def header(text: bytes, body: bytes = b"\0" * 64, length: int | None = None) -> bytes:
    return (len(text) if length is None else length).to_bytes(8, "little") + text + body


ENTRY = b'{"weight": {"dtype": "%s", "shape": %s, "data_offsets": %s}}'

BYTES = {
    "a pickle": b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00c os\nsystem\n.",
    "nothing": b"",
    "a header as long as a disk": header(b"{}", length=2**60),
    "a header that is no JSON": header(b"{weight}"),
    "a header that is a list": header(b"[1, 2]"),
    "a header nested deep": header(b"[" * 200_000),
    "an unknown type": header(ENTRY % (b"O", b"[16]", b"[0, 64]")),
    "an end past the file": header(ENTRY % (b"F32", b"[17]", b"[0, 68]")),
    "an end before the begin": header(ENTRY % (b"F32", b"[0]", b"[8, 0]")),
    "a begin before the file": header(ENTRY % (b"F32", b"[2]", b"[-8, 0]")),
    "a shape of another size": header(ENTRY % (b"F32", b"[48, 384]", b"[0, 64]")),
    "an absurd shape": header(ENTRY % (b"F32", b"[1000000000000, 1000000000]", b"[0, 64]")),
    "a negative shape": header(ENTRY % (b"F32", b"[-4, -4]", b"[0, 64]")),
    "values that are not finite": header(ENTRY % (b"F32", b"[16]", b"[0, 64]"), b"\xff" * 64),
}


@pytest.mark.parametrize("name", BYTES)
def test_a_strangers_bytes_are_refused(name: str, tmp_path: Path):
    exported(artefacts()["linear"], "numpy", tmp_path / "out")
    path = tmp_path / "out" / "adapter.json"
    told = json.loads(path.read_text())
    (tmp_path / "out" / "adapter.safetensors").write_bytes(BYTES[name])
    path.write_text(json.dumps(told | {"sha256": hashlib.sha256(BYTES[name]).hexdigest()}))
    with pytest.raises(ValueError, match="no sound adapter"):
        load(tmp_path / "out")


CHANGES = {
    "a newer format": lambda meta, arrays: meta.update(format_version=2),
    "an unknown form": lambda meta, arrays: meta.update(form="tree"),
    "a form that is no word": lambda meta, arrays: meta.update(form=["chain"]),
    "no width": lambda meta, arrays: meta.update(dim=0),
    "an absurd width": lambda meta, arrays: meta.update(full_dim=10**12),
    "a width that is no number": lambda meta, arrays: meta.update(dim="48"),
    "another width": lambda meta, arrays: meta.update(dim=47),
    "other sides": lambda meta, arrays: meta.update(sides="../both"),
    "no sides": lambda meta, arrays: meta.pop("sides"),
    "a missing array": lambda meta, arrays: arrays.pop("out_bias_1"),
    "a bias that would spread": lambda meta, arrays: arrays.update(
        out_bias_1=np.ones(1, np.float32)
    ),
    "a weight of another shape": lambda meta, arrays: arrays.update(
        out_weight_0=np.ones((3, 3), np.float32)
    ),
    "a coordinate that is not there": lambda meta, arrays: arrays["kept_1"].__setitem__(0, 100),
    "a coordinate counted from the end": lambda meta, arrays: arrays["kept_1"].__setitem__(0, -1),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_does_not_fit_is_refused(name: str, tmp_path: Path):
    exported(artefacts()["chain"], "numpy", tmp_path / "out")
    rewritten(tmp_path / "out", lambda meta, arrays: None)
    load(tmp_path / "out")
    rewritten(tmp_path / "out", CHANGES[name])
    with pytest.raises(ValueError, match="no sound adapter"):
        load(tmp_path / "out")


def test_one_changed_bit_is_noticed(tmp_path: Path):
    exported(artefacts()["linear"], "numpy", tmp_path / "out")
    path = tmp_path / "out" / "adapter.safetensors"
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match="is not the one that adapter"):
        load(tmp_path / "out")
