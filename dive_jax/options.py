"""Every command's options: one flat dataclass each, whose field names are the flag names.

They inherit the groups they need, of `dive_jax.option_groups`. Standard library only.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

from dive_jax.option_groups import AdapterOptions as AdapterOptions
from dive_jax.option_groups import BaselineOptions as BaselineOptions
from dive_jax.option_groups import ComputeOptions as ComputeOptions
from dive_jax.option_groups import SourceOptions as SourceOptions
from dive_jax.option_groups import SplitOptions as SplitOptions
from dive_jax.option_groups import TripletOptions as TripletOptions
from dive_jax.option_groups import TuningOptions as TuningOptions
from dive_jax.settings import setting
from dive_jax.text_options import ExportAdapterOptions as ExportAdapterOptions
from dive_jax.text_options import ExportOptions as ExportOptions
from dive_jax.text_options import IndexOptions as IndexOptions
from dive_jax.text_options import PrepareOptions as PrepareOptions
from dive_jax.text_options import SearchOptions as SearchOptions


@dataclass(frozen=True, kw_only=True)
class TrainOptions(ComputeOptions, AdapterOptions, TripletOptions, SplitOptions, SourceOptions):
    """Options of `python -m dive_jax.train`."""

    seeds: tuple[int, ...] = setting(
        (2027, 2028, 2029), "Seeds, trained side by side.", low=0, high=2**32 - 1
    )
    method: str = setting("dive", "Method to train; auto: chosen on held-out training queries.")
    run_dir: str | None = setting(
        None, "Folder of the run; default runs/<dataset>-<encoder>-<dim>.", result=False
    )
    smoke: bool = setting(False, "Two epochs and two seeds: a check that ends in seconds.")
    devices: int | None = setting(
        None,
        "Devices that train, the seeds divided over them, then the rows of a batch; by default all "
        "accelerators, and one device of a CPU.",
        low=1,
        result=False,
    )

    @property
    def folder(self) -> str:
        """The run's folder."""
        name = f"{self.dataset.replace('/', '_')}-{self.encoder}-{self.dim}"
        return self.run_dir or f"runs/{name}" + ("-smoke" if self.smoke else "")

    def effective(self) -> Any:
        """Returns the options that are run, of the same class: those of `--smoke` are cut down."""
        if not self.smoke:
            return self
        return dataclasses.replace(self, epochs=min(self.epochs, 2), seeds=self.seeds[:2])


@dataclass(frozen=True, kw_only=True)
class CompareOptions(TrainOptions):
    """Options of `python -m dive_jax.compare`."""

    methods: tuple[str, ...] | None = setting(None, "Methods to compare; default all.")
    datasets: tuple[str, ...] | None = setting(
        None, "Datasets to compare on, with commas between; default --dataset alone."
    )
    quantised: bool = setting(
        True, "Score the compressed vectors as float16, int8 and bits too.", result=False
    )

    @property
    def folder(self) -> str:
        """The studies' folder: the same for all of them, so that they share what they measure."""
        if self.run_dir:
            return self.run_dir
        names = "-".join(self.datasets or (self.dataset,)).replace("/", "_")
        return f"runs/studies-{names}-{self.encoder}-{self.dim}" + ("-smoke" if self.smoke else "")


STUDIES = (
    *("compare", "ablation", "select", "heads", "audit", "tuned", "widths", "dynamics"),
    *("backbones", "unseen"),
)
"""Studies whose table has a row a method or setting."""

THEORY = (
    *("calibration", "two_view", "selection", "operator_risk", "estimation", "rotation"),
    "rank_by_data",
)
"""Studies of the operator theory, each with a table of its own."""

INDEXES = ("indexes",)
"""Studies of indexes, with tables of their own too."""


@dataclass(frozen=True, kw_only=True)
class StudyOptions(CompareOptions):
    """Options of `python -m dive_jax.study`."""

    study: str = setting("ablation", "Which study.", choices=(*STUDIES, *THEORY, *INDEXES))
    settings: tuple[str, ...] | None = setting(
        None,
        "select: settings to vary; default all that it knows.",
        choices=("margin", "view_weight", "geometry_weight", "temperature", "heads"),
    )
    encoders: tuple[str, ...] | None = setting(
        None, "backbones: embeddings to compare, with commas between; default --encoder alone."
    )
    widths: tuple[int, ...] = setting(
        (16, 32, 64, 128, 256, 512),
        "widths, indexes: coordinates kept; widths adds the full width.",
        low=1,
    )
    learning_rates: tuple[float, ...] = setting((1e-4, 2e-4, 5e-4), "audit: rates tried.", above=0)
    smec_learning_rates: tuple[float, ...] = setting(
        (1e-6, 5e-6, 2e-5), "audit: rates tried for smec.", above=0
    )


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(ComputeOptions):
    """Options of `python -m dive_jax.evaluate`; what is not given is the run's own."""

    run: str = setting("", "Folder of a finished run.")
    dataset: str | None = setting(None, "Dataset to score; default the run's.")
    encoder: str | None = setting(None, "Embeddings to score; default the run's.")
    data_root: str | None = setting(
        None, "Folder of the datasets; default $DIVE_JAX_DATA, else data."
    )
    verify: bool = setting(False, "Check the SHA-256 of every vector file.")
    judgments: str | None = setting(
        None, "Judgments that are split; default the run's.", choices=("test", "all")
    )
    split: str | None = setting(None, "Split; default the run's.", choices=("protocol", "official"))
    out: str | None = setting(
        None, "Folder for metrics.json and per_query.csv; default <run>/evaluations/<what>."
    )


@dataclass(frozen=True, kw_only=True)
class CompressOptions(ComputeOptions):
    """Options of `python -m dive_jax.compress`."""

    run: str = setting("", "Folder of a finished run, or of one saved adapter.")
    vectors: str = setting(
        "", "What to compress: a .npy, Parquet or Arrow file, or a folder of shards of one kind."
    )
    out: str = setting("", "The file to write, .npy or .parquet: unit rows, with ids if known.")
    method: str = setting("dive", "Which of the run's methods to apply.")
    seed: int | None = setting(None, "Which seed's adapter; default the run's lowest.", low=0)
    side: str = setting(
        "document", "Which side the vectors belong to.", choices=("query", "document")
    )
    dtype: str = setting(
        "float32",
        "Type of the output; int8 within calibrated ranges, binary eight signs a byte.",
        choices=("float32", "float16", "int8", "binary"),
    )
    calibration_rows: int = setting(10000, "int8: rows that the ranges are fitted to.", low=1)
    column: str | None = setting(None, "Parquet, Arrow: column of vectors; default the only one.")
    id_column: str | None = setting(
        None, "Parquet, Arrow: column of ids; default id or _id, if there is one."
    )
    encoder: str | None = setting(
        None, "Encoder the vectors come from; refused unless it is the adapter's."
    )


@dataclass(frozen=True, kw_only=True)
class GeometryOptions(ComputeOptions, SplitOptions, SourceOptions):
    """Options of `python -m dive_jax.geometry`."""

    ranks: tuple[int, ...] = setting((4, 8, 16, 32), "Ranks to decide for.", low=1)
    splits: int = setting(20, "Random pairs of halves.", low=1)
    seed: int = setting(2027, "Seed of the halves and of the subsamples.", low=0, high=2**32 - 1)
    draws: int = setting(3, "Subsamples of each size.", low=1)
    run_dir: str | None = setting(
        None, "Folder of the run; default runs/geometry-<dataset>-<encoder>.", result=False
    )

    @property
    def folder(self) -> str:
        """The run's folder."""
        return self.run_dir or f"runs/geometry-{self.dataset.replace('/', '_')}-{self.encoder}"
