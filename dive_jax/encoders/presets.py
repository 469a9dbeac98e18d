"""Encoders by name: where their weights lie and how they want to be fed.

Every store is written with unit rows, so an encoder that was trained for inner products without
normalisation (Contriever) is used by cosine here.
"""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float32, Int64

POOLINGS = ("mean", "cls", "last")
DEFAULT_MAX_TOKENS = 512
"""Bound for an encoder that names none; a decoder's own is often far more than memory takes."""

_SEARCH = "Given a web search query, retrieve relevant passages that answer the query:"
_BGE = "Represent this sentence for searching relevant passages: "


@dataclass(frozen=True, kw_only=True)
class Spec:
    """All that decides an encoder's vectors.

    Attributes:
      name: Name of its folder under `<dataset>/embeddings`.
      weights: Folder or hub id that is loaded.
      source: Where the weights come from, in words that are the same on every machine.
      kind: transformer, pipeline (a sentence-transformers model with modules of its own) or
        llm2vec.
      revision: Branch, tag or commit of `weights` on the hub.
      peft: Folders or hub ids of PEFT weights that go on top, in order (llm2vec).
      pooling: mean, cls, last, or what a pipeline is made of; None for the encoder's own.
      query_prefix: Put before every query; for llm2vec the instruction.
      document_prefix: The same for documents.
      max_tokens: Tokens after which a text is cut; None for what the encoder's files say.
      usual_tokens: Bound on what they say; None for none.
      dim: Width that the weights must have; None if it is not known before.
      chat: Name of the base model whose chat template LLM2Vec applies.
    """

    name: str
    weights: str
    source: str
    kind: str = "transformer"
    revision: str | None = None
    peft: tuple[str, ...] = ()
    pooling: str | None = None
    query_prefix: str = ""
    document_prefix: str = ""
    max_tokens: int | None = None
    usual_tokens: int | None = None
    dim: int | None = None
    chat: str | None = None

    def prefix(self, side: str) -> str:
        """Returns what goes before the texts of "query" or "document"."""
        return self.query_prefix if side == "query" else self.document_prefix


@runtime_checkable
class Encoder(Protocol):
    """What turns texts into vectors: batch by batch, nothing kept between two.

    Attributes:
      dim: Width of the vectors.
      pooling: How a text's token vectors become one.
      max_tokens: Tokens after which a text is cut.
      fingerprint: SHA-256 (hex) of the weights.
      compute: Number type and device, in words.
    """

    dim: int
    pooling: str
    max_tokens: int
    fingerprint: str
    compute: str

    def lengths(self, texts: list[str], side: str) -> Int64[np.ndarray, " texts"]:
        """Returns the tokens of each text before it is cut; 0 if nothing would be embedded."""
        ...

    def encode(self, texts: list[str], side: str) -> Float32[np.ndarray, "texts dim"]:
        """Returns one vector a text, not normalised, all in one batch."""
        ...


def _preset(weights: str, dim: int, **facts: Any) -> Spec:
    name = facts.pop("name", weights.rpartition("/")[2])
    facts = {"pooling": "mean", "max_tokens": DEFAULT_MAX_TOKENS} | facts
    return Spec(name=name, weights=weights, source=weights, dim=dim, **facts)


def _e5(name: str, dim: int) -> Spec:
    return _preset(f"intfloat/{name}", dim, query_prefix="query: ", document_prefix="passage: ")


def _llm2vec(name: str, base: str, dim: int, chat: str) -> Spec:
    # 400 tokens of text, within 512 with the instruction: the defaults of LLM2Vec's own class.
    return _preset(
        base,
        dim,
        name=name,
        kind="llm2vec",
        peft=(f"{base}-supervised",),
        query_prefix=_SEARCH,
        max_tokens=400,
        chat=chat,
    )


_KNOWN = (
    _e5("e5-small-v2", 384),
    _e5("e5-base-v2", 768),
    _e5("e5-large-v2", 1024),
    _e5("multilingual-e5-small", 384),
    _e5("multilingual-e5-base", 768),
    _e5("multilingual-e5-large", 1024),
    _preset("BAAI/bge-small-en-v1.5", 384, pooling="cls", query_prefix=_BGE),
    _preset("BAAI/bge-base-en-v1.5", 768, pooling="cls", query_prefix=_BGE),
    _preset("BAAI/bge-large-en-v1.5", 1024, pooling="cls", query_prefix=_BGE),
    _preset("BAAI/bge-m3", 1024, pooling="cls", max_tokens=8192),
    _preset("thenlper/gte-small", 384),
    _preset("thenlper/gte-base", 768),
    _preset("thenlper/gte-large", 1024),
    _preset("facebook/contriever", 768),
    _preset("facebook/contriever-msmarco", 768),
    _preset("sentence-transformers/all-mpnet-base-v2", 768, max_tokens=384),
    _preset("sentence-transformers/all-MiniLM-L6-v2", 384, max_tokens=256),
    _preset("sentence-transformers/all-MiniLM-L12-v2", 384, max_tokens=128),
    _llm2vec(
        "LLM2Vec-Mistral-7B",
        "McGill-NLP/LLM2Vec-Mistral-7B-Instruct-v2-mntp",
        4096,
        "mistralai/Mistral-7B-Instruct-v0.2",
    ),
    _llm2vec(
        "LLM2Vec-Sheared-LLaMA-1.3B",
        "McGill-NLP/LLM2Vec-Sheared-LLaMA-mntp",
        2048,
        "princeton-nlp/Sheared-LLaMA-1.3B",
    ),
)

PRESETS: dict[str, Spec] = {each.name: each for each in _KNOWN}
"""Encoders whose pooling, prefixes and bounds are known, by name."""


def find(name: str) -> Spec | None:
    """Returns the preset of a name or hub id, in any case of letters; None if there is none.

    Example:
      >>> find("intfloat/e5-base-v2").query_prefix
      'query: '
      >>> find("all-minilm-l6-v2").dim, find("my-own")
      (384, None)
    """
    wanted = name.lower()
    for each in _KNOWN:
        if wanted in (each.name.lower(), each.source.lower()):
            return each
    return None
