"""Options of the commands from text to vectors, and from adapter to search.

`dive_jax.options` gives them out with the others. Standard library only.
"""

import os
from dataclasses import dataclass

from dive_jax.option_groups import ComputeOptions
from dive_jax.settings import Checked, setting


@dataclass(frozen=True, kw_only=True)
class PrepareOptions(Checked):
    """Options of `python -m dive_jax.prepare`."""

    dataset: str = setting("", "A BEIR collection, cqadupstack (all 12 forums) or one of them.")
    source: str = setting(
        "hub", "hub, a BEIR zip, or a folder: BEIR's layout or copies of the hub's repositories."
    )
    data_root: str | None = setting(
        None, "Folder of the datasets; default $DIVE_JAX_DATA, else data."
    )
    revision: str | None = setting(
        None, "hub: branch, tag or commit of the texts; default the newest, recorded."
    )
    qrels_revision: str | None = setting(
        None, "hub: the same for the judgments, where they have a repository of their own."
    )
    repository: str | None = setting(
        None, "hub: one repository with configurations corpus, queries and default (judgments)."
    )

    @property
    def root(self) -> str:
        """The folder that holds the datasets."""
        return self.data_root or os.environ.get("DIVE_JAX_DATA") or "data"


@dataclass(frozen=True, kw_only=True)
class _RunOptions(ComputeOptions):
    """Which adapter of a run, and of which dataset the documents are; as the run's by default."""

    run: str = setting("", "Folder of a finished run, or of one saved adapter.")
    method: str | None = setting(None, "Which of the run's methods; default the one it trained.")
    seed: int | None = setting(None, "Which seed's adapter; default the run's lowest.", low=0)
    dataset: str | None = setting(None, "Dataset of the documents; default the run's.")
    encoder: str | None = setting(None, "Embeddings of the documents; default the run's.")
    data_root: str | None = setting(
        None, "Folder of the datasets; default the run's, else $DIVE_JAX_DATA, else data."
    )


@dataclass(frozen=True, kw_only=True)
class IndexOptions(_RunOptions):
    """Options of `python -m dive_jax.index`."""

    vectors: str = setting(
        "", "A .npy file that compress wrote; else the documents of --run are compressed."
    )
    out: str = setting("", "Folder to make: index.faiss, ids.txt, index.json.")
    kind: str = setting(
        "flat",
        "flat: exact; hnsw: a graph; ivfpq: lists of product codes; int8: a byte a coordinate; "
        "binary: a bit a coordinate, the best scored again with an int8 copy.",
        choices=("flat", "hnsw", "ivfpq", "int8", "binary"),
    )
    ids: str | None = setting(
        None, "File of the ids of --vectors, one a line; default x.ids.txt, else row numbers."
    )
    hnsw_links: int = setting(32, "hnsw: neighbours of a node.", low=2, high=1024)
    ef_construction: int = setting(200, "hnsw: candidates while building.", low=1)
    ef_search: int = setting(64, "hnsw: candidates while searching.", low=1)
    threads: int = setting(1, "hnsw: cores; with more than one the bytes may vary.", low=1)
    lists: int | None = setting(
        None, "ivfpq: lists; default about 4 sqrt(rows), fewer where rows are few.", low=1
    )
    probes: int | None = setting(None, "ivfpq: lists searched; default 32.", low=1)
    code_bytes: int | None = setting(
        None, "ivfpq: bytes a vector, a divisor of the width; default a quarter of it.", low=1
    )
    oversampling: int = setting(
        4, "binary: candidates scored again for each document wanted.", low=1
    )


@dataclass(frozen=True, kw_only=True)
class SearchOptions(_RunOptions):
    """Options of `python -m dive_jax.search`."""

    query: str | None = setting(
        None,
        "What to look for: words, or the id of one of the dataset's queries.",
        positional=True,
    )
    queries: str | None = setting(
        None, "File of queries instead: one a line, or .jsonl with _id and text."
    )
    index: str | None = setting(
        None, "Folder that dive_jax.index made; default exact search over the dataset."
    )
    top_k: int = setting(10, "Documents shown a query.", low=1)
    compare: bool = setting(False, "Show what the full vectors find beside it.")
    json: bool = setting(False, "Print JSON instead of tables.")
    weights: str | None = setting(
        None, "Folder or hub id of the documents' encoder; default as their manifest says."
    )
    encode_with: str | None = setting(
        None, "Python of an environment with the extra export; default this one."
    )


@dataclass(frozen=True, kw_only=True)
class ExportOptions(Checked):
    """Options of `python -m dive_jax.export`."""

    dataset: str = setting("python_docs", "Folder under the data root, or python_docs (built in).")
    encoder: str = setting("", "A preset (named above), a folder, or a hub id: owner/name.")
    data_root: str | None = setting(
        None, "Folder of the datasets; default $DIVE_JAX_DATA, else data."
    )
    out: str | None = setting(
        None,
        "Data root to write to, texts and judgments copied beside the vectors; default the "
        "dataset's own folder if it can be written, else data.",
    )
    name: str | None = setting(
        None, "Folder under <dataset>/embeddings; default the preset's name or the model's."
    )
    weights: str | None = setting(
        None, "Folder or hub id to load instead of the preset's; its facts stay."
    )
    revision: str | None = setting(None, "Branch, tag or commit on the hub; default its main one.")
    kind: str = setting(
        "auto",
        "How to run it; auto: the preset's, else as its files say.",
        choices=("auto", "transformer", "llm2vec"),
    )
    peft: tuple[str, ...] | None = setting(
        None, "llm2vec: folders or hub ids of PEFT weights, in order; default the preset's."
    )
    pooling: str | None = setting(
        None,
        "Default the preset's, else as the files say, else mean.",
        choices=("mean", "cls", "last"),
    )
    query_prefix: str | None = setting(
        None, "Put before every query; llm2vec: the instruction. Default the encoder's."
    )
    document_prefix: str | None = setting(None, "Put before every document. Default the encoder's.")
    max_tokens: int | None = setting(
        None, "Tokens after which a text is cut; default the encoder's.", low=1
    )
    dtype: str = setting("float32", "Type of the computing.", choices=("float32", "bf16"))
    store_dtype: str = setting(
        "float16", "Type of the vectors written.", choices=("float16", "float32")
    )
    batch_size: int = setting(64, "Texts a step.", low=1)
    shard_rows: int = setting(1024, "Texts written at once: what a kill can lose.", low=1)
    device: str = setting("auto", "auto: a GPU where there is one; or cpu, cuda, cuda:1, mps.")

    @property
    def root(self) -> str:
        """The folder that holds the datasets."""
        return self.data_root or os.environ.get("DIVE_JAX_DATA") or "data"


@dataclass(frozen=True, kw_only=True)
class ExportAdapterOptions(Checked):
    """Options of `python -m dive_jax.export_adapter`."""

    run: str = setting("", "Folder of a finished run, or of one saved adapter.")
    to: str | None = setting(
        None,
        "Runtime to write for; faiss takes linear adapters only.",
        choices=("safetensors", "onnx", "torch", "sentence-transformers", "faiss", "numpy"),
    )
    out: str = setting("", "Folder to make.")
    method: str | None = setting(None, "Which of the run's methods; default the one it trained.")
    seed: int | None = setting(None, "Which seed's adapter; default the run's lowest.", low=0)
