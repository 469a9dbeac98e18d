"""An export's folder: whole or absent, with a manifest and a README that tell what it is."""

import errno
import hashlib
import importlib.util
import json
import os
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from dive_jax.artefact import Artefact, apply, load
from dive_jax.interop.targets import MANIFEST, README, TARGETS, contents, write
from dive_jax.types import InputError
from tests.interop import runtime
from tests.interop.cases import ENCODER, FULL, artefacts, exported, meta, normal

FILES = {"adapter.txt": b"weights", "0_part/config.json": b"{}"}
HERE = [name for name in TARGETS if name != "onnx"]  # written without packages that are not here


def tree(folder: Path) -> dict[str, bytes]:
    return {
        each.relative_to(folder).as_posix(): each.read_bytes()
        for each in sorted(folder.rglob("*"))
        if each.is_file()
    }


@pytest.mark.parametrize("target", HERE)
def test_every_export_tells_what_it_is(target: str, tmp_path: Path):
    saved = exported(artefacts()["linear"], target, tmp_path / "out")
    files = tree(tmp_path / "out")
    told = json.loads(files.pop(MANIFEST))
    text = files.pop(README).decode()
    assert told["target"] == target
    for key in ("method", "dim", "full_dim", "encoder", "fingerprint", "sides", "about"):
        assert told[key] == saved.meta[key]
    assert told["adapter_sha256"] == saved.meta["sha256"]
    assert {"dive_jax", "python", "numpy"} <= told["versions"].keys()
    assert "unknown" not in told["versions"].values()
    assert told["files"] == {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    for word in (ENCODER, saved.meta["fingerprint"], saved.meta["sha256"], "384 to 48", "pca"):
        assert word in text
    assert "```python\nimport" in text or "```python\nfrom" in text


@pytest.mark.parametrize("target", HERE)
def test_the_same_adapter_gives_the_same_bytes(target: str, tmp_path: Path):
    for name in ("a", "b"):
        exported(artefacts()["linear"], target, tmp_path / name)
    assert tree(tmp_path / "a") == tree(tmp_path / "b")


@pytest.mark.parametrize("name", artefacts())
def test_plain_weights_load_in_the_safetensors_library(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    saved = exported(artefacts()[name], "safetensors", tmp_path / "out")
    monkeypatch.chdir(tmp_path / "out")
    space: dict = {}
    exec(runtime.code(Path()), space)
    assert space["about"] == saved.meta
    assert space["arrays"].keys() == saved.arrays.keys()
    for key, values in safetensors.numpy.load_file("adapter.safetensors").items():
        np.testing.assert_array_equal(values, saved.arrays[key])
    rows = normal(3, 4, FULL)
    side = "query" if saved.meta["sides"] == "query" else "document"
    again = load(tmp_path / "out saved")
    np.testing.assert_array_equal(apply(again, rows, side), apply(saved, rows, side))


def test_a_strangers_names_stay_in_their_line():
    told = meta(encoder='x|y\n# "title" <script>`', method="a\nb", form="linear", sha256="0")
    odd = Artefact("linear", artefacts()["linear"].arrays, told)
    text = contents(odd, "sentence-transformers")[README].decode()
    assert "# a b, 384 to 48 wide" in text
    assert '| encoder | x/y # "title" (script>\' |' in text
    assert r'SentenceTransformer("x|y\n# \"title\" <script>`")' in text


@pytest.mark.parametrize("name", ["residual", "mlp", "chain"])
def test_faiss_refuses_what_is_not_linear(name: str):
    with pytest.raises(InputError, match="faiss keeps linear maps only; use --to=onnx") as caught:
        contents(artefacts()[name], "faiss")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("target", "extra"), [("onnx", "onnx"), ("faiss", "faiss")])
def test_a_missing_package_is_named_with_its_extra(
    target: str, extra: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    wanted = rf"^--to={target}: needs {target}, not installed here; pip install 'dive_jax\[{extra}]"
    with pytest.raises(InputError, match=wanted):
        contents(artefacts()["linear"], target)


def test_a_folder_is_written_once(tmp_path: Path):
    out = tmp_path / "deep" / "out"
    assert write(FILES, out)
    assert tree(out) == FILES
    assert not write(FILES, out)
    assert [each.name for each in out.parent.iterdir()] == ["out"]


def test_an_empty_folder_is_filled(tmp_path: Path):
    assert write(FILES, tmp_path)
    assert tree(tmp_path) == FILES


@pytest.mark.parametrize(
    "change",
    [
        lambda out: (out / "adapter.txt").write_bytes(b"other"),
        lambda out: (out / "more.txt").write_bytes(b""),
        lambda out: (out / "adapter.txt").unlink(),
        lambda out: (out / "link").symlink_to("/"),
        lambda out: os.mkfifo(out / "pipe"),
    ],
)
def test_a_folder_that_holds_anything_else_is_left_alone(change, tmp_path: Path):
    out = tmp_path / "out"
    write(FILES, out)
    change(out)
    before = sorted(each.name for each in out.rglob("*"))
    with pytest.raises(InputError, match=r"^--out: \S+ exists and is not this export \(see '"):
        write(FILES, out)
    assert sorted(each.name for each in out.rglob("*")) == before


def test_a_file_in_the_way(tmp_path: Path):
    (tmp_path / "file").write_text("mine")
    for out in (tmp_path / "file", tmp_path / "file" / "out"):
        with pytest.raises(InputError, match=rf"^--out: {out}: "):
            write(FILES, out)
    assert tree(tmp_path) == {"file": b"mine"}


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    put = Path.write_bytes

    def full(path: Path, data: bytes) -> int:
        if path.name == "config.json":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return put(path, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(InputError, match=r"^--out: \S+: No space left on device$"):
        write(FILES, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_cleared_and_a_live_ones_is_not(tmp_path: Path):
    dead, live, other = (
        tmp_path / f".out.{each}.partial" for each in (2**22 + 1, os.getppid(), "notes")
    )
    for each in (dead, live, other):
        each.mkdir()
    write(FILES, tmp_path / "out")
    assert not dead.exists()
    assert live.exists()
    assert other.exists()
