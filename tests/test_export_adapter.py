"""The command that writes a run's adapter for another runtime."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dive_jax import artefact as artefact_files
from dive_jax import export_adapter
from dive_jax.artefact import Artefact, apply, save
from dive_jax.interop.adapter_numpy import load
from dive_jax.interop.targets import TARGETS
from dive_jax.options import ExportAdapterOptions

FULL, DIM = 6, 3


def artefact(method: str, form: str, arrays: dict[str, np.ndarray]) -> Artefact:
    meta = {"format_version": 1, "method": method, "sides": "both", "dim": DIM, "full_dim": FULL}
    meta |= {"normalized": True, "encoder": "toy", "fingerprint": "0", "about": {}}
    return Artefact(form, arrays, meta)


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """What training leaves, as far as it matters here: adapters, and how they were trained."""
    folder = tmp_path / "run"
    for seed in (3, 12):
        arrays = {
            "hidden_weight": normal(seed, 4, FULL),
            "hidden_bias": normal(1, 4),
            "out_weight": normal(2, DIM, 4),
            "out_bias": normal(3, DIM),
        }
        save(artefact("smart", "residual", arrays), folder / "adapters" / f"smart-{seed}")
    save(artefact("pca", "linear", {"weight": normal(4, DIM, FULL)}), folder / "adapters" / "pca")
    (folder / "options.flags").write_text("--method=smart\n")
    return folder


def command(*arguments: str) -> int:
    return export_adapter.main(list(arguments))


def test_the_choices_are_the_targets():
    fields = ExportAdapterOptions.__dataclass_fields__
    assert set(fields["to"].metadata["choices"]) == set(TARGETS)


def test_it_writes_the_trained_method_of_the_lowest_seed(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    out = tmp_path / "out"
    assert command(f"--run={run}", "--to=numpy", f"--out={out}") == 0
    shown = capsys.readouterr()
    assert shown.out.startswith(f"{out}: smart (residual), 6 to 3 wide, for numpy; 5 files, ")
    assert shown.err == ""
    rows = normal(5, 4, FULL)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    saved = artefact_files.load(run / "adapters" / "smart-3")
    np.testing.assert_allclose(load(out).compress(rows), apply(saved, rows), atol=1e-6)


def test_the_folder_of_one_adapter_is_enough(run: Path, tmp_path: Path):
    arguments = [f"--run={run / 'adapters' / 'pca'}", f"--out={tmp_path / 'out'}"]
    assert command(*arguments, "--to=faiss") == 0
    assert (tmp_path / "out" / "adapter.faiss").is_file()


@pytest.mark.parametrize(
    ("flags", "name"), [(["--seed=12"], "smart-12"), (["--method=pca", "--seed=12"], "pca")]
)
def test_a_method_and_a_seed_can_be_chosen(run: Path, tmp_path: Path, flags: list, name: str):
    assert command(f"--run={run}", "--to=safetensors", f"--out={tmp_path / 'out'}", *flags) == 0
    for file in ("adapter.safetensors", "adapter.json"):
        made, wanted = (tmp_path / "out" / file, run / "adapters" / name / file)
        assert made.read_bytes() == wanted.read_bytes()


def test_the_same_command_again_has_nothing_to_do(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    arguments = [f"--run={run}", "--method=pca", "--to=torch", f"--out={tmp_path / 'out'}"]
    assert command(*arguments) == 0
    first = capsys.readouterr().out
    assert command(*arguments) == 0
    shown = capsys.readouterr()
    assert shown.out == first
    assert shown.err == f"{tmp_path / 'out'} is finished; nothing to do\n"


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        (["--run=", "--to=numpy"], "--run: wanted the folder of a finished run, got nothing"),
        (["--run={tmp}/no", "--to=numpy"], "--run: wanted the folder of a finished run, got "),
        (["--run={tmp}", "--to=numpy"], "--run: no adapters in "),
        ([], "--to: wanted one of safetensors, onnx, torch, sentence-transformers, faiss, numpy"),
        (["--to=caffe"], "--to: wanted one of safetensors, onnx"),
        (["--to=numpy", "--out="], "--out: wanted the folder to make"),
        (["--to=numpy", "--method=dive"], "no adapter dive in "),
        (["--to=numpy", "--seed=4"], "no adapter smart-4 in "),
        (["--to=faiss"], "--to=faiss: the adapter 'smart' is of form 'residual', and faiss keeps"),
        (["--to=numpy", "--out={tmp}"], "exists and is not this export (see '"),
        (["--to=numpy", "--out={tmp}/run/options.flags/out"], "Not a directory"),
        (["--to=numpy", "--out=/proc/out"], "--out: /proc/out: "),
    ],
)
def test_a_mistake_is_one_line_and_status_2(
    run: Path, tmp_path: Path, flags: list, wanted: str, capsys: pytest.CaptureFixture[str]
):
    before = sorted(tmp_path.rglob("*"))
    given = [each.format(tmp=tmp_path) for each in flags]
    assert command(f"--run={run}", f"--out={tmp_path / 'out'}", *given) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("dive_jax.export_adapter: ")
    assert shown.err.count("\n") == 1
    assert wanted in shown.err
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("file", "content", "wanted"),
    [
        ("adapter.safetensors", b"\x80\x04c os\nsystem\n.", "wanted the SHA-256"),
        ("adapter.json", b"{}", "format_version: wanted a value of type int, got nothing"),
        ("adapter.json", b'{"format_version": 9}', "made by a newer version"),
        ("adapter.json", b"\x80\x04.", "wanted JSON"),
    ],
)
def test_a_damaged_or_foreign_adapter_is_refused(
    run: Path,
    tmp_path: Path,
    file: str,
    content: bytes,
    wanted: str,
    capsys: pytest.CaptureFixture[str],
):
    (run / "adapters" / "pca" / file).write_bytes(content)
    arguments = [f"--run={run}", "--method=pca", "--to=numpy", f"--out={tmp_path / 'out'}"]
    assert command(*arguments) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert wanted in told
    assert not (tmp_path / "out").exists()


KILLED = """
import os, signal, sys
from pathlib import Path
from dive_jax import export_adapter
put, left = Path.write_bytes, [int(sys.argv[1])]
def write(path, data):
    put(path, data)
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
Path.write_bytes = write
export_adapter.main(sys.argv[2:])
"""


@pytest.mark.parametrize("after", [1, 5])
def test_killed_it_leaves_nothing_and_the_same_command_ends_with_the_same_bits(
    after: int, run: Path, tmp_path: Path
):
    arguments = [f"--run={run}", "--to=sentence-transformers"]
    assert command(*arguments, f"--out={tmp_path / 'whole'}") == 0
    out = tmp_path / "out"
    done = subprocess.run([sys.executable, "-c", KILLED, str(after), *arguments, f"--out={out}"])
    assert done.returncode == -9
    assert not out.exists()
    assert command(*arguments, f"--out={out}") == 0
    assert sorted(each.name for each in tmp_path.iterdir()) == ["out", "run", "whole"]
    for path in (tmp_path / "whole").rglob("*"):
        if path.is_file():
            other = out / path.relative_to(tmp_path / "whole")
            assert path.read_bytes() == other.read_bytes()


def test_neither_jax_nor_torch_is_loaded(run: Path, tmp_path: Path):
    code = (
        "import sys; from dive_jax import export_adapter;"
        "assert export_adapter.main(sys.argv[1:]) == 0;"
        "print({'jax', 'torch', 'flax', 'onnx', 'faiss'} & sys.modules.keys())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, f"--run={run}", "--to=torch", f"--out={tmp_path / 'out'}"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "set()"
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["target"] == "torch"
