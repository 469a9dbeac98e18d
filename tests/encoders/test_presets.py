import pytest

from dive_jax.encoders.presets import POOLINGS, PRESETS, find

FAMILIES = ["e5", "bge", "gte", "contriever", "all-mpnet-base-v2", "all-MiniLM-L6-v2", "LLM2Vec"]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_a_preset(family: str):
    assert any(name.startswith(family) for name in PRESETS)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_says_all_that_is_needed(name: str):
    spec = PRESETS[name]
    assert spec.name == name
    assert spec.source == spec.weights
    assert spec.weights.count("/") == 1
    assert spec.pooling in POOLINGS
    assert spec.dim in (384, 768, 1024, 2048, 4096)
    assert spec.max_tokens is not None
    assert spec.max_tokens >= 128
    assert (spec.kind == "llm2vec") == bool(spec.peft) == bool(spec.chat)


def test_presets_carry_what_their_authors_ask_for():
    e5, bge, gte = PRESETS["e5-base-v2"], PRESETS["bge-small-en-v1.5"], PRESETS["gte-large"]
    assert (e5.prefix("query"), e5.prefix("document")) == ("query: ", "passage: ")
    assert (bge.pooling, bge.document_prefix) == ("cls", "")
    assert bge.query_prefix.endswith("passages: ")
    assert (gte.pooling, gte.query_prefix) == ("mean", "")
    assert PRESETS["all-MiniLM-L6-v2"].max_tokens == 256
    assert PRESETS["LLM2Vec-Mistral-7B"].query_prefix.startswith("Given a web search query")
    assert PRESETS["LLM2Vec-Mistral-7B"].document_prefix == ""


def test_presets_are_found_by_name_and_by_hub_id():
    assert find("BAAI/BGE-M3") is PRESETS["bge-m3"]
    assert find("contriever") is PRESETS["contriever"]
    assert find("somebody/contriever") is None
