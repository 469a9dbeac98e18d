"""LLM2Vec's real class on tiny random decoders; needs the extra llm2vec and its pins."""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dive_jax.encoders import llm2vec
from dive_jax.encoders.presets import PRESETS, Spec
from dive_jax.options import ExportOptions
from dive_jax.studies.export_places import resolve
from dive_jax.types import InputError
from tests import tiny, toy

# Its pinned transformers is older than the torch and hub libraries it is run with.
pytestmark = [
    pytest.mark.llm2vec,
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

ASK = "w30 w31:"
TEXTS = ["w1", "w2 w3 w4", "w5 w6 " * 30, "w7 w8"]


def adapter(base: Path, target: Path, seed: int) -> Path:
    """Writes random PEFT weights for a base model."""
    import torch
    from llm2vec import LLM2Vec
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(seed)
    model = LLM2Vec.from_pretrained(str(base)).model
    config = LoraConfig(r=2, lora_alpha=8, target_modules=["q_proj", "v_proj"])
    made = get_peft_model(model, config)
    with torch.no_grad():
        for name, each in made.named_parameters():
            if "lora_" in name:
                each.copy_(torch.randn(each.shape) * 0.3)
    made.save_pretrained(str(target))
    return target


class Parts:
    """A base and two adapters for it."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.base = tiny.decoder(folder / "base", kind)
        self.one = adapter(self.base, folder / "one", 1)
        self.two = adapter(self.base, folder / "two", 2)


@pytest.fixture(scope="module", params=["Mistral", "Llama"])
def parts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Parts:
    return Parts(tmp_path_factory.mktemp(request.param), request.param)


def spec(parts: Parts, *peft: Path, **more: Any) -> Spec:
    given = {"query_prefix": ASK, "kind": "llm2vec", "source": "a folder", "name": "tiny"}
    return Spec(weights=str(parts.base), peft=tuple(map(str, peft)), **(given | more))


def load(parts: Parts, *peft: Path, dtype: str = "float32", **more: Any) -> Any:
    return llm2vec.load(spec(parts, *peft, **more), device="cpu", dtype=dtype)


def test_vectors_are_those_of_its_own_encode(parts: Parts):
    from llm2vec import LLM2Vec

    own = LLM2Vec.from_pretrained(str(parts.base), peft_model_name_or_path=str(parts.one))
    encoder = load(parts, parts.one)
    assert (encoder.dim, encoder.pooling, encoder.max_tokens) == (tiny.WIDTH, "mean", 400)
    for side, sentences in (("query", [[ASK, each] for each in TEXTS]), ("document", TEXTS)):
        wanted = own.encode(sentences, show_progress_bar=False, device="cpu")
        found = encoder.encode(TEXTS, side)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, wanted.numpy(), atol=1e-5)


def test_every_adapter_counts_and_so_does_their_order(parts: Parts):
    vectors = [
        load(parts, *peft).encode(TEXTS, "document")
        for peft in ([], [parts.one], [parts.two], [parts.one, parts.two])
    ]
    for row, one in enumerate(vectors):
        for other in vectors[row + 1 :]:
            assert np.abs(one - other).max() > 1e-3


def test_an_adapter_that_names_its_base_is_one_too(parts: Parts):
    from peft import PeftModel

    both = load(parts, parts.one, parts.two)
    assert not isinstance(both._model.model.base_model.model, PeftModel)
    told = json.loads((parts.one / "adapter_config.json").read_text())
    assert told["base_model_name_or_path"] == str(parts.base)
    # As the published ones are: a folder with configuration, tokenizer and PEFT weights alone.
    for each in parts.base.glob("*token*"):
        (parts.one / each.name).write_bytes(each.read_bytes())
    (parts.one / "config.json").write_bytes((parts.base / "config.json").read_bytes())
    named = llm2vec.load(
        Spec(
            name="tiny",
            weights=str(parts.one),
            peft=(str(parts.two),),
            source="a folder",
            kind="llm2vec",
        ),
        device="cpu",
        dtype="float32",
    )
    np.testing.assert_allclose(
        named.encode(TEXTS, "document"), both.encode(TEXTS, "document"), atol=1e-5
    )


def test_only_queries_are_instructed_and_the_instruction_is_not_pooled(parts: Parts):
    encoder, plain = load(parts), load(parts, query_prefix="")
    np.testing.assert_array_equal(
        encoder.encode(TEXTS, "document"), plain.encode(TEXTS, "document")
    )
    assert np.abs(encoder.encode(TEXTS, "query") - plain.encode(TEXTS, "query")).max() > 1e-3
    assert list(encoder.lengths([*TEXTS, ""], "query")) == [1, 3, 60, 2, 0]


def test_a_text_in_a_batch_is_what_it_is_alone(parts: Parts):
    encoder = load(parts, parts.one)
    alone = np.concatenate([encoder.encode([each], "query") for each in TEXTS])
    np.testing.assert_allclose(encoder.encode(TEXTS, "query"), alone, atol=1e-5)


def test_texts_are_cut_at_the_tokens_asked_for(parts: Parts):
    encoder = load(parts, max_tokens=4)
    assert encoder.max_tokens == 4
    cut = encoder.encode(["w1 w2 w3 w4"], "query")
    np.testing.assert_allclose(encoder.encode(["w1 w2 w3 w4 w5 w6"], "query"), cut, atol=1e-6)


def test_its_separator_within_a_text_does_not_tear_it(parts: Parts):
    encoder = load(parts)
    whole = encoder.encode(["w1 w2 !@#$%^&*() w3"], "query")
    assert np.abs(whole - encoder.encode(["w3"], "query")).max() > 1e-3
    assert np.isfinite(whole).all()


@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_pooling_can_be_chosen(pooling: str, parts: Parts):
    found = load(parts, pooling=pooling).encode(TEXTS, "query")
    assert np.isfinite(found).all()
    if pooling == "last":
        assert np.abs(found - load(parts).encode(TEXTS, "query"))[1:].max() > 1e-3


def test_bfloat16_is_close(parts: Parts):
    one, two = load(parts).encode(TEXTS, "query"), load(parts, dtype="bf16").encode(TEXTS, "query")
    cosines = (one * two).sum(1) / np.linalg.norm(one, axis=1) / np.linalg.norm(two, axis=1)
    assert cosines.min() > 0.99


def test_the_template_of_the_base_is_applied_whatever_its_folder_is_called(parts: Parts):
    encoder = load(parts, chat=PRESETS["LLM2Vec-Mistral-7B"].chat)
    assert encoder._model.prepare_for_tokenization("x") == "[INST] x [/INST]"
    assert load(parts)._model.prepare_for_tokenization("x") == "x"


def test_the_fingerprint_covers_base_and_adapters(parts: Parts):
    marks = [load(parts, *peft).fingerprint for peft in ([], [parts.one], [parts.two])]
    assert len(set(marks)) == 3


def test_missing_peft_weights_are_one_line(parts: Parts, tmp_path: Path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError) as caught:
        load(parts, tmp_path / "empty")
    assert "\n" not in str(caught.value)
    assert "empty" in str(caught.value)


class Trap:
    """What writes a file as it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize("name", ["adapter_model.safetensors", "adapter_model.bin"])
def test_pickled_peft_weights_are_not_executed(name: str, parts: Parts, tmp_path: Path):
    told = (parts.two / "adapter_config.json").read_text()
    (tmp_path / "adapter_config.json").write_text(told)
    (tmp_path / name).write_bytes(pickle.dumps(Trap(tmp_path / "executed")))
    with pytest.raises(InputError) as caught:
        load(parts, tmp_path)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "executed").exists()


def test_the_command_embeds_a_dataset(parts: Parts, tmp_path: Path, capsys: Any):
    from dive_jax import export
    from dive_jax.data.embeddings import load_store

    words = [f"w{i} w{i + 1}" for i in range(9)]
    toy._lines(
        tmp_path / "toy" / "corpus.jsonl",
        [{"_id": f"d{i}", "text": text} for i, text in enumerate(words)],
    )
    queries = [{"_id": "q0", "text": "w1"}, {"_id": "q1", "text": " "}]
    toy._lines(tmp_path / "toy" / "queries.jsonl", queries)
    toy._judgments(tmp_path / "toy" / "qrels" / "test.tsv", [(0, 0)])
    arguments = ["--dataset=toy", f"--data_root={tmp_path}", f"--encoder={parts.base}"]
    more = [f"--peft={parts.one},{parts.two}", f"--query_prefix={ASK}", "--name=tiny"]
    assert export.main([*arguments, *more, "--device=cpu"]) == 0
    assert "1 have no text and get no vector" in capsys.readouterr().err
    store = load_store(tmp_path / "toy" / "embeddings" / "tiny", verify=True)
    assert store.sides.document.vectors.shape == (9, tiny.WIDTH)
    assert store.dropped_queries == ("q1",)
    assert store.manifest["query_prefix"] == ASK
    assert store.manifest["loaded"]["kind"] == "llm2vec"


def test_a_preset_takes_folders_for_its_weights(parts: Parts):
    options = ExportOptions(
        encoder="LLM2Vec-Sheared-LLaMA-1.3B", weights=str(parts.base), peft=(str(parts.one),)
    )
    found = resolve(options)
    assert found.kind == "llm2vec"
    assert found.query_prefix.startswith("Given a web search query")
    assert llm2vec.load(found, device="cpu", dtype="float32").dim == tiny.WIDTH
