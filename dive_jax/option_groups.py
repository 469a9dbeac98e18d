"""Settings in groups, once: frozen dataclasses whose fields carry their help, range and choices.

`dive_jax.options` makes each command's options of them. Standard library only.
"""

import os
from dataclasses import dataclass
from typing import Literal

from dive_jax.settings import Checked, setting
from dive_jax.types import InputError


@dataclass(frozen=True, kw_only=True)
class BaselineOptions(Checked):
    """Settings that one published method alone has."""

    pca_center: bool = setting(False, "pca: subtract the mean first; changes inner products.")
    rank_reduction: Literal["mean", "sum"] = setting(
        "mean",
        "Rank loss of search_adaptor, matryoshka_adaptor and smec: mean over its triples, or the "
        "published sum.",
        choices=("mean", "sum"),
    )
    search_recovery_weight: float = setting(0.1, "search_adaptor: alpha.", low=0)
    search_prediction_weight: float = setting(0.01, "search_adaptor: beta.", low=0)
    matryoshka_stages: Literal["both", "unsupervised", "supervised"] = setting(
        "both",
        "matryoshka_adaptor: both stages, half of the epochs each, or one alone.",
        choices=("both", "unsupervised", "supervised"),
    )
    matryoshka_recovery_weight: float = setting(1.0, "matryoshka_adaptor: beta.", low=0)
    nested_up_to: Literal["full", "dim"] = setting(
        "full",
        "matryoshka_adaptor: prefixes up to the full width (published), or up to --dim.",
        choices=("full", "dim"),
    )
    smec_learning_rate: float = setting(5e-6, "smec: AdamW's constant learning rate.", above=0)


@dataclass(frozen=True, kw_only=True)
class TuningOptions(Checked):
    """What is decided on held-out training queries."""

    early_stopping: str = setting(
        "default",
        "Epochs chosen on held-out queries: of documents that do not train, of any, or both kinds. "
        "By default both for dive_batch and dive_batch_linear, off for the others.",
        choices=("default", "off", "unseen", "validation", "both"),
    )
    patience: int = setting(5, "Epochs without a better score after which training ends.", low=1)
    dial: str = setting(
        "off",
        "Share of what the adapter adds, 0 to 1, chosen on held-out queries.",
        choices=("off", "validation"),
    )


@dataclass(frozen=True, kw_only=True)
class AdapterOptions(TuningOptions, BaselineOptions):
    """Shape and loss of the residual adapter, and how it is trained."""

    dim: int = setting(64, "Coordinates kept.", low=1)
    heads: int = setting(4, "Heads H of the contrast; needs dim * heads <= full width.", low=1)
    hidden_dim: int | None = setting(
        None, "Hidden width; default 2048 from 2048 wide on, else half the full width.", low=1
    )
    basis: str = setting(
        "given",
        "Start from the coordinates as given (the paper's) or from the principal axes.",
        choices=("given", "principal"),
    )
    ranking: str = setting(
        "triplet",
        "Hinge on one negative a triplet (the paper's), or on all documents of the batch.",
        choices=("triplet", "batch"),
    )
    margin: float | None = setting(
        None,
        "Wanted lead of a positive, in cosine units; default 0.7, or 0.2 with --ranking=batch.",
        above=0,
        high=2,
    )
    ranking_temperature: float = setting(
        0.05, "Temperature of the soft maximum of --ranking=batch.", above=0
    )
    ranking_mode: str = setting(
        "sum",
        "Soft maximum of --ranking=batch: it grows with the number of negatives, or not.",
        choices=("sum", "mean"),
    )
    self_limiting: bool = setting(
        True, "Silent once the lead is reached; off: softplus, an ablation of the paper's."
    )
    temperature: float = setting(0.1, "Temperature of the head-wise contrast.", above=0)
    view_weight: float = setting(0.01, "Weight of the head-wise contrast.", low=0)
    geometry_weight: float = setting(10.0, "Weight of the Gram distillation.", low=0)
    learning_rate: float = setting(2e-4, "AdamW's constant learning rate.", above=0)
    weight_decay: float = setting(1e-4, "AdamW's decoupled weight decay.", low=0)
    epochs: int = setting(50, "Passes over the triplets.", low=1)
    max_steps: int | None = setting(
        None, "Steps at most: fewer whole epochs where there are many triplets.", low=1
    )
    batch_size: int = setting(128, "Triplets a step.", low=1)
    products: str = setting(
        "float32",
        "Factors of the adapter's products while dive and its kin train; sums stay float32.",
        choices=("float32", "bfloat16"),
    )

    def __post_init__(self) -> None:
        """Checks the ranges, and that the settings go together."""
        super().__post_init__()
        if not self.self_limiting and self.ranking == "batch":
            raise InputError("--self_limiting: off goes with --ranking=triplet only, got batch")

    def passes(self, rows: int) -> int:
        """Returns the epochs over `rows` triplets: --epochs, fewer to stay within --max_steps.

        Example:
          >>> AdapterOptions(max_steps=100, batch_size=10).passes(300), AdapterOptions().passes(300)
          (3, 50)
        """
        if self.max_steps is None:
            return self.epochs
        return max(1, min(self.epochs, self.max_steps // -(-rows // self.batch_size)))

    @property
    def wanted_lead(self) -> float:
        """The margin that is used."""
        if self.margin is not None:
            return self.margin
        return 0.7 if self.ranking == "triplet" else 0.2

    def hidden(self, full_dim: int) -> int:
        """Returns the hidden width used at an embedding width of `full_dim`."""
        if self.hidden_dim is not None:
            return self.hidden_dim
        return 2048 if full_dim >= 2048 else max(1, full_dim // 2)

    def check_dim(self, full_dim: int) -> None:
        """Raises `InputError` if `dim` columns do not fit into `full_dim`."""
        if self.dim > full_dim:
            raise InputError(f"--dim: wanted at most the full width {full_dim}, got {self.dim}")

    def check_width(self, full_dim: int) -> None:
        """Raises `InputError` if `dim * heads` columns do not fit into `full_dim`."""
        self.check_dim(full_dim)
        if self.dim * self.heads > full_dim:
            raise InputError(
                f"--dim and --heads: wanted dim * heads <= the full width {full_dim}, got "
                f"{self.dim} * {self.heads} = {self.dim * self.heads}; lower one of them"
            )


@dataclass(frozen=True, kw_only=True)
class TripletOptions(Checked):
    """Which training rows are made of the judgments."""

    negatives: str = setting(
        "random",
        "Negatives: any unjudged document, or the ten best unjudged of the frozen ranking.",
        choices=("random", "hard"),
    )
    negatives_per_positive: int = setting(5, "Negatives a (query, positive) pair.", low=1)
    triplet_seed: int = setting(2027, "Seed of the negatives, shared by all methods.", low=0)


@dataclass(frozen=True, kw_only=True)
class SourceOptions(Checked):
    """Where texts, judgments and vectors come from."""

    dataset: str = setting("python_docs", "Folder under the data root, or python_docs (built in).")
    encoder: str = setting("lsa", "Folder under <dataset>/embeddings, or lsa (built in, offline).")
    data_root: str | None = setting(
        None, "Folder of the datasets; default $DIVE_JAX_DATA, else data.", result=False
    )
    lsa_dim: int = setting(512, "Width of the built-in lsa encoder.", low=2)
    verify: bool = setting(False, "Check the SHA-256 of every vector file.", result=False)

    @property
    def root(self) -> str:
        """The folder that holds the datasets."""
        return self.data_root or os.environ.get("DIVE_JAX_DATA") or "data"


@dataclass(frozen=True, kw_only=True)
class SplitOptions(Checked):
    """Which queries train, validate and test."""

    judgments: str = setting(
        "test",
        "Judgments that are split: the test file's, or the union of all files.",
        choices=("test", "all"),
    )
    split: str = setting(
        "protocol",
        "60/20/20 by hashed query id, or the files train, dev and test as given.",
        choices=("protocol", "official"),
    )
    split_seed: int = setting(2027, "Seed of the hashed order.", low=0)
    protocol: str = setting(
        "final",
        "select: train on train, score validation; final: train on both, score test.",
        choices=("select", "final"),
    )


@dataclass(frozen=True, kw_only=True)
class ComputeOptions(Checked):
    """Memory bounds and pace; none changes a result."""

    chunk_rows: int = setting(
        16384, "Documents held at once while searching or compressing.", low=1, result=False
    )
    checkpoint_seconds: float = setting(
        5.0, "Least time between two checkpoints, in seconds.", low=0, result=False
    )
    compilation_cache: bool = setting(
        True, "Keep compiled programs on disk, so that the next start is quick.", result=False
    )
