"""Figures that the papers print, to stand beside ours. Other encoders: never one ranking.

Only what is comparable in kind becomes a row of a table: nDCG@10 and Recall@10 of whole methods.
The rest (gains, ablations, active ratios, speed) is data in `FIGURES`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

NDCG, RECALL = "ndcg@10", "recall@10"
GAIN = "gain in ndcg@10"
LEAST, GREATEST = "least ndcg@10", "greatest ndcg@10"
BELOW_TENTH = "first epoch below 10 % active"
ACTIVE = "active ratio at epoch 50"
MEMORY, LATENCY, THROUGHPUT = "times less memory", "times lower latency", "times the throughput"

MISTRAL, LLAMA, UNNAMED = "LLM2Vec-Mistral-7B", "Sheared-LLaMA-1.3B", "unnamed, 4096 wide"
SECOND, FIRST = "DIVE, second version (arXiv 2605.20689)", "DIVE, first version"

THREE = ("scifact", "fiqa", "arguana")
FIVE = (*THREE, "quora", "cqadupstack")


@dataclass(frozen=True, kw_only=True)
class PublishedFigure:
    """One printed number.

    Attributes:
      datasets: The dataset; several for their mean; none where they are not named.
      method: Our name of the method, or the paper's words.
      measure: What is counted, such as "ndcg@10"; shares are from 0 to 1.
      value: The number.
      width: Coordinates kept; None where that is not told.
      encoder: Whose vectors.
      full_dim: Their width.
      note: What else a reader must know.
      source: The text it stands in.
    """

    datasets: tuple[str, ...]
    method: str
    measure: str
    value: float
    width: int | None = 128
    encoder: str = MISTRAL
    full_dim: int = 4096
    note: str = ""
    source: str = SECOND

    @property
    def label(self) -> str:
        """The method's name for a table, marked as another encoder's."""
        return f"{self.method} (published, {self.encoder})"


def _each(
    datasets: Sequence[str], method: str, measure: str, values: Iterable[float], **rest: Any
) -> tuple[PublishedFigure, ...]:
    """Returns one figure a dataset."""
    return tuple(
        PublishedFigure(datasets=(dataset,), method=method, measure=measure, value=value, **rest)
        for dataset, value in zip(datasets, values, strict=True)
    )


def _means(
    datasets: tuple[str, ...], measure: str, values: Mapping[str, float], **rest: Any
) -> tuple[PublishedFigure, ...]:
    """Returns one figure a method: its mean over the datasets."""
    return tuple(
        PublishedFigure(datasets=datasets, method=method, measure=measure, value=value, **rest)
        for method, value in values.items()
    )


_BASELINE = "strongest baseline"
_AUDITED = {"note": "held out, after the learning-rate audit"}
_LLAMA = {"encoder": LLAMA, "full_dim": 2048}
_WIDE = {"width": 256, "note": "seed 2027"}
_WHOLE = {"width": 4096, "note": "seed 2027, beside 256 wide"}
_VALIDATION = {"note": "validation"}
_HEADS = {"note": "over the head sweep, seed 2027"}
_SEARCH = {"note": "search of 522,931 vectors against the full width, exact flat index, A100"}
_NARROW, _BROAD = {"width": 128} | _SEARCH, {"width": 256} | _SEARCH
_FIRST = {"encoder": UNNAMED, "source": FIRST}
_UNTOLD = _FIRST | {"width": None}
_ABLATION = {
    "dive": 0.4093,
    "dive, no contrast": 0.3991,
    "dive, no geometry": 0.3555,
    "dive, no self-limiting": 0.2793,
}

FIGURES: tuple[PublishedFigure, ...] = (
    *_each(THREE, "dive", NDCG, (0.6223, 0.2087, 0.4028), **_AUDITED),
    *_each(THREE, _BASELINE, NDCG, (0.5592, 0.1837, 0.3882), **_AUDITED),
    *_each(
        FIVE,
        "dive",
        GAIN,
        (0.0721, 0.0249, 0.0146, 0.0119, 0.0021),
        note="over the strongest compressed baseline",
    ),
    *_means(FIVE, RECALL, {"dive": 0.6217}),
    *_means(THREE, NDCG, _ABLATION, **_VALIDATION),
    *_means(
        THREE,
        NDCG,
        {"pca": 0.3284, "autoencoder": 0.3905, "dive": 0.4113},
        note="beside unsupervised compressors",
    ),
    *_means(THREE, NDCG, {"dive": 0.4217, "matryoshka_adaptor": 0.4151}, **_WIDE),
    *_means(THREE, RECALL, {"dive": 0.6242, "matryoshka_adaptor": 0.6159}, **_WIDE),
    *_means(THREE, NDCG, {"frozen": 0.4341}, **_WHOLE),
    *_means(THREE, RECALL, {"frozen": 0.6537}, **_WHOLE),
    *_each(THREE, "dive", NDCG, (0.4137, 0.0996, 0.3425), **_LLAMA),
    *_each(THREE, _BASELINE, NDCG, (0.3958, 0.0990, 0.3316), **_LLAMA),
    *_each(FIVE[:4], "dive", BELOW_TENTH, (36, 28, 42, 23)),
    *_each(FIVE, "dive", ACTIVE, (0.082, 0.069, 0.090, 0.057, 0.106)),
    *_each(THREE, "dive", LEAST, (0.6599, 0.1625, 0.3895), **_HEADS),
    *_each(THREE, "dive", GREATEST, (0.6810, 0.1719, 0.3950), **_HEADS),
    *_each(("quora",), "dive", MEMORY, (16,), **_BROAD),
    *_each(("quora",), "dive", MEMORY, (32,), **_NARROW),
    *_each(("quora",), "dive", LATENCY, (2.96,), **_BROAD),
    *_each(("quora",), "dive", LATENCY, (3.31,), **_NARROW),
    *_each(("quora",), "dive", THROUGHPUT, (7.50,), **_BROAD),
    *_each(("quora",), "dive", THROUGHPUT, (9.51,), **_NARROW),
    *_each(("nfcorpus", "scidocs"), "matryoshka_adaptor", NDCG, (0.098, 0.031), **_UNTOLD),
    *_each(("quora",), "search_adaptor", NDCG, (0.778,), **_UNTOLD),
    *_each(("nfcorpus", "quora"), "frozen", NDCG, (0.292, 0.863), **(_FIRST | {"width": 4096})),
    *_each(
        ("nfcorpus", "fiqa"),
        "dive_mlp",
        GAIN,
        (0.326, 0.307),
        **(_FIRST | {"note": "over search_adaptor"}),
    ),
    *_means((), GAIN, {"dive_mlp, no contrast or heads": -0.17}, **_UNTOLD),
    *_means((), "earliest " + BELOW_TENTH, {"dive_mlp": 5}, **_UNTOLD),
    *_means((), "latest " + BELOW_TENTH, {"dive_mlp": 15}, **_UNTOLD),
)
"""All that are kept, as printed."""


def published(
    datasets: str | Iterable[str], dim: int, *, measures: Sequence[str] = (NDCG, RECALL)
) -> list[PublishedFigure]:
    """Returns what is printed for a dataset, or for the mean over several, at one width.

    Args:
      datasets: Name of the dataset, or the names averaged over, in any order.
      dim: Coordinates kept. Frozen figures, and those whose width is not told, are always given.
      measures: Which measures.

    Returns:
      The figures in the papers' order; none if nothing is printed.

    Example:
      >>> [(each.method, each.value) for each in published("scifact", 128)][:2]
      [('dive', 0.6223), ('strongest baseline', 0.5592)]
      >>> published("cranfield", 128)
      []
    """
    wanted = {datasets} if isinstance(datasets, str) else set(datasets)
    return [
        each
        for each in FIGURES
        if each.measure in measures
        and wanted
        and set(each.datasets) == wanted
        and (each.width in (dim, None) or each.method == "frozen")
    ]


def table_rows(datasets: str | Iterable[str], dim: int) -> list[dict[str, Any]]:
    """Returns the published figures as rows of a table, one a method, marked as another encoder's.

    Args:
      datasets: As for `published`.
      dim: As for `published`.

    Returns:
      Rows with the keys of a table of methods (method, dim, ndcg@10, recall@10), full_dim, note
      and source; what is not printed is None.

    Example:
      >>> row = table_rows("scifact", 128)[0]
      >>> row["method"], row["dim"], row["ndcg@10"], row["recall@10"]
      ('dive (published, LLM2Vec-Mistral-7B)', 128, 0.6223, None)
    """
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for each in published(datasets, dim):
        key = each.label, each.width, each.note, each.source
        new = {"method": each.label, "dim": each.width, "full_dim": each.full_dim}
        new |= {NDCG: None, RECALL: None, "note": each.note, "source": each.source}
        rows.setdefault(key, new)[each.measure] = each.value
    return list(rows.values())
