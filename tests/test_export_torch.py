"""The command from outside with a tiny encoder: what it leaves, and that a kill loses nothing."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from dive_jax import export
from dive_jax.data.embeddings import load_store
from tests import tiny, toy

pytestmark = pytest.mark.torch

COMMIT = "0123456789abcdef0123456789abcdef01234567"
ALONE = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
DOCUMENTS = 1500
WITHOUT_JAX = """
import sys
from dive_jax import export
status = export.main(sys.argv[1:])
assert "jax" not in sys.modules, "jax is loaded beside torch"
sys.exit(status)
"""


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.bert(tmp_path_factory.mktemp("encoder") / "tiny-bert")


def dataset(root: Path, documents: int, queries: int = 10) -> Path:
    rng = np.random.default_rng(0)
    words = [" ".join(rng.choice(tiny.WORDS, size=rng.integers(1, 30))) for _ in range(documents)]
    lines = [{"_id": f"d{i}", "title": "", "text": text} for i, text in enumerate(words)]
    toy._lines(root / "toy" / "corpus.jsonl", lines)
    toy._lines(
        root / "toy" / "queries.jsonl", [{"_id": f"q{i}", "text": f"w{i}"} for i in range(queries)]
    )
    toy._judgments(root / "toy" / "qrels" / "test.tsv", [(0, 0)])
    return root


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return dataset(tmp_path_factory.mktemp("root"), 50)


def flags(root: Path, encoder: Path, *more: str) -> list[str]:
    return ["--dataset=toy", f"--encoder={encoder}", f"--data_root={root}", *more]


def command(arguments: list[str], **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WITHOUT_JAX, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | ALONE | environment,
    )


def done(process: subprocess.Popen[str]) -> str:
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    return output + errors


def contents(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in sorted(folder.iterdir())}


def test_it_says_what_it_did_and_the_next_command(
    root: Path, encoder: Path, capsys: pytest.CaptureFixture[str]
):
    assert export.main(flags(root, encoder, "--batch_size=16", "--device=cpu")) == 0
    shown = capsys.readouterr()
    store = load_store(root / "toy" / "embeddings" / "tiny-bert", verify=True)
    assert store.sides.document.vectors.shape == (50, tiny.WIDTH)
    assert "toy: 50 documents and 10 queries, 32 wide, float16; cut at 16 tokens: " in shown.out
    assert f"train --data_root={root} --dataset=toy --encoder=tiny-bert" in shown.out
    assert store.manifest["texts"]["documents"]["truncated"] > 10
    assert store.manifest["compute"] == "float32 on cpu"
    assert {"torch", "transformers"} <= set(store.manifest["versions"])
    assert export.main(flags(root, encoder, "--device=cpu")) == 0
    assert "is finished; nothing to do" in capsys.readouterr().err
    assert export.main(flags(root, encoder, "--dtype=bf16")) == 2
    assert "--dtype=bf16 (there float32)" in capsys.readouterr().err


def test_the_order_of_the_batches_changes_no_more_than_the_last_digits(
    root: Path, encoder: Path, tmp_path: Path
):
    vectors = []
    for name, more in (("one", ["--batch_size=1"]), ("many", ["--shard_rows=7"])):
        out = tmp_path / name
        arguments = flags(root, encoder, f"--out={out}", "--store_dtype=float32", "--device=cpu")
        assert export.main([*arguments, *more]) == 0
        vectors.append(load_store(out / "toy" / "embeddings" / "tiny-bert").sides)
    for one, many in zip(*vectors, strict=True):
        assert one.ids == many.ids
        np.testing.assert_allclose(one.vectors, many.vectors, atol=1e-6)


def in_cache(encoder: Path, home: Path, repository: str) -> Path:
    """Lays an encoder into the hub's cache, as if it had been fetched."""
    folder = home / "hub" / f"models--{repository.replace('/', '--')}"
    shutil.copytree(encoder, folder / "snapshots" / COMMIT)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(COMMIT)
    return folder / "snapshots" / COMMIT


def test_a_hub_id_is_loaded_by_its_name(root: Path, encoder: Path, tmp_path: Path):
    snapshot = in_cache(encoder, tmp_path / "home", "somebody/tiny-cls")
    tiny.sentence_model(snapshot, {"pooling_mode_cls_token": True})
    absent = snapshot.parents[1] / ".no_exist" / COMMIT / "config_sentence_transformers.json"
    absent.parent.mkdir(parents=True)
    absent.touch()
    out = tmp_path / "out"
    arguments = flags(root, Path("somebody/tiny-cls"), f"--out={out}")
    done(command(arguments, HF_HOME=str(tmp_path / "home")))
    store = load_store(out / "toy" / "embeddings" / "tiny-cls")
    assert store.manifest["revision"] == COMMIT
    assert (store.manifest["source"], store.manifest["pooling"]) == ("somebody/tiny-cls", "cls")
    assert store.manifest["max_tokens"] == 12


def test_without_a_network_it_is_one_line(root: Path, tmp_path: Path):
    for name in ("e5-small-v2", "somebody/unknown"):
        process = command(flags(root, Path(name)), HF_HOME=str(tmp_path / "home"))
        _, errors = process.communicate()
        assert process.returncode == 2
        assert "is not on this machine, and the hub cannot be reached" in errors
        assert errors.count("\n") == 1
    assert not (root / "toy" / "embeddings" / ".e5-small-v2.export").exists()


MANY = ["--batch_size=4", "--shard_rows=16", "--device=cpu"]


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return dataset(tmp_path_factory.mktemp("many"), DOCUMENTS)


@pytest.fixture(scope="module")
def undisturbed(many: Path, encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("undisturbed")
    done(command(flags(many, encoder, f"--out={out}", *MANY)))
    return out / "toy" / "embeddings" / "tiny-bert"


def killed(many: Path, encoder: Path, out: Path, wait_s: float) -> bool:
    """Starts an export and kills it a while after a new shard; says whether it was running."""
    ledger = out / "toy" / "embeddings" / ".tiny-bert.export" / "documents.shards.jsonl"
    before = ledger.stat().st_size if ledger.exists() else 0
    process = command(flags(many, encoder, f"--out={out}", *MANY))
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        if ledger.exists() and ledger.stat().st_size > before:
            break
        time.sleep(0.01)
    time.sleep(wait_s)
    running = process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return running


def test_killed_it_ends_with_the_same_bits(
    many: Path, encoder: Path, undisturbed: Path, tmp_path: Path
):
    assert killed(many, encoder, tmp_path, random.Random(os.getpid()).uniform(0, 0.2))
    aside = tmp_path / "toy" / "embeddings" / ".tiny-bert.export"
    kept = len((aside / "documents.shards.jsonl").read_bytes().splitlines())
    shown = done(command(flags(many, encoder, f"--out={tmp_path}", *MANY)))
    first = int(shown.split("toy documents: ")[1].split("/")[0].replace(",", ""))
    assert 16 * kept - 16 <= first <= 16 * kept
    assert first > 0
    assert contents(tmp_path / "toy" / "embeddings" / "tiny-bert") == contents(undisturbed)


@pytest.mark.slow
def test_killed_ten_times_it_ends_with_the_same_bits(
    many: Path, encoder: Path, undisturbed: Path, tmp_path: Path
):
    hits = 0
    for seed in range(5):
        out = tmp_path / str(seed)
        chance = random.Random(seed)
        hits += sum(killed(many, encoder, out, chance.uniform(0, 0.5)) for _ in range(2))
        done(command(flags(many, encoder, f"--out={out}", *MANY)))
        assert contents(out / "toy" / "embeddings" / "tiny-bert") == contents(undisturbed)
    assert hits >= 5


def test_a_full_disk_is_one_line_and_earlier_shards_stay(
    encoder: Path, undisturbed: Path, tmp_path: Path
):
    arguments = flags(dataset(tmp_path, DOCUMENTS), encoder, *MANY)
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, -1))\n"
    process = subprocess.run(
        [sys.executable, "-c", limit + WITHOUT_JAX, *arguments],
        capture_output=True,
        text=True,
        env=os.environ | ALONE,
    )
    assert process.returncode == 1
    assert "of 1,500 rows are kept: make room" in process.stderr.splitlines()[-1]
    aside = tmp_path / "toy" / "embeddings" / ".tiny-bert.export"
    assert (aside / "documents.shards.jsonl").read_text().count("\n") == 50_000 // (16 * 64)
    shown = done(command(arguments))
    assert "toy documents: 768/1,500 texts" in shown
    assert contents(tmp_path / "toy" / "embeddings" / "tiny-bert") == contents(undisturbed)


def test_manifests_hold_json_only(undisturbed: Path):
    manifest = json.loads((undisturbed / "manifest.json").read_text())
    assert manifest["shard_rows"] == 16
    assert manifest["encoder_fingerprint_extra"]
