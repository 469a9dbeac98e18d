"""report.html of a run: gathers what its folder holds, and hands it over as one page."""

import csv
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dive_jax.artefact import check_encoder
from dive_jax.data.splits import manifest, qrels_of, scored_ids
from dive_jax.files import write_text
from dive_jax.methods.protocol import load as load_compressor
from dive_jax.options import TrainOptions
from dive_jax.report.page import Page, render
from dive_jax.report.page_queries import Group
from dive_jax.sources import Source, parts
from dive_jax.studies import page_numbers
from dive_jax.studies.cells import fitted_names
from dive_jax.studies.examples import EACH, Scored, examples
from dive_jax.studies.histories import read_history
from dive_jax.studies.job import divided
from dive_jax.studies.page_numbers import Quantised
from dive_jax.studies.quantising import summarised
from dive_jax.types import InputError, Qrels

PAGE = "report.html"
_INPUTS = ("metrics.json", "history.csv", "per_query.csv", "quantised/*.json")
_NO_EXAMPLES = (
    "No example queries: the dataset and its vectors, or the adapters, were not at hand as the run "
    f"had them when this page was written. Put them back, remove {PAGE}, and run the same command "
    "again."
)


class Searched(NamedTuple):
    """What the run searched: vectors and ids, and the judgments of the scored queries."""

    source: Source
    qrels: Qrels


class PerQuery(NamedTuple):
    """What per_query.csv holds.

    Attributes:
      ndcg: Method and seed (empty for a method without chance) -> query -> nDCG@10.
      unseen: Queries of unseen documents, in the order of the file.
    """

    ndcg: dict[tuple[str, str], dict[str, float]]
    unseen: tuple[str, ...]


def read_per_query(path: Path) -> PerQuery:
    """Reads per_query.csv; empty where there is none."""
    ndcg: dict[tuple[str, str], dict[str, float]] = {}
    unseen: dict[str, None] = {}
    if path.is_file():
        with open(path, newline="", encoding="utf-8") as stream:
            for row in csv.DictReader(stream):
                scores = ndcg.setdefault((row["method"], row["seed"]), {})
                scores[row["query_id"]] = float(row["ndcg@10"])
                if row["unseen"] == "1":
                    unseen[row["query_id"]] = None
    return PerQuery(ndcg, tuple(unseen))


def _json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _stale(folder: Path) -> bool:
    """Says whether the page is missing, or older than what it shows."""
    page = folder / PAGE
    inputs = [path for pattern in _INPUTS for path in folder.glob(pattern)]
    return not page.is_file() or page.stat().st_mtime_ns < max(
        path.stat().st_mtime_ns for path in inputs
    )


def _quantised(folder: Path, metrics: Mapping[str, Any], unseen: tuple[str, ...]) -> Quantised:
    """Returns method -> kind -> bytes and scores, of the methods that have all their files."""
    found = {}
    for method, entry in metrics["methods"].items():
        names = fitted_names(method, tuple(metrics["seeds"]))
        paths = {seed: folder / "quantised" / f"{name}.json" for seed, name in names.items()}
        if all(path.is_file() for path in paths.values()):
            scores: dict[str, Any] = {seed: _json(path) for seed, path in paths.items()}
            found[method] = summarised(scores, entry["dim"], unseen)
    return found


def _searched(metrics: Mapping[str, Any], options: TrainOptions) -> Searched:
    """Loads what a finished run searched.

    Raises:
      InputError: If it is not at hand, or no longer what it was.
    """
    source, split = divided(metrics["dataset"], options)
    now = {
        "vectors": source.store.fingerprint,
        "texts": source.collection.fingerprint,
        "split": manifest(split)["fingerprint"],
    }
    for name, value in now.items():
        if metrics["fingerprints"][name] != value:
            raise InputError(f"{metrics['dataset']}: its {name} are not what the run was made of")
    qrels = qrels_of(split, source.collection.qrels)
    return Searched(source, {query: qrels[query] for query in scored_ids(split, options.protocol)})


def _groups(
    folder: Path, main: str, seed: str, scores: PerQuery, searched: Searched, options: TrainOptions
) -> list[Group]:
    """Returns the example queries of a run.

    Raises:
      InputError: If an adapter is missing, damaged or another encoder's.
    """
    before = scores.ndcg["frozen", ""]
    name = fitted_names(main, (int(seed or 0),))[seed]
    frozen, compressed = (load_compressor(folder / "adapters" / each) for each in ("frozen", name))
    store = searched.source.store
    for each in (frozen, compressed):
        check_encoder(
            each.artefact,
            encoder=store.encoder,
            fingerprint=store.encoder_fingerprint,
            dim=store.dim,
        )
    return examples(
        searched.source,
        searched.qrels,
        Scored(before, scores.ndcg[main, seed], frozenset(scores.unseen)),
        frozen,
        compressed,
        root=options.root,
        chunk_rows=options.chunk_rows,
    )


def _adapters(folder: Path) -> dict[str, dict[str, Any]]:
    """Returns name -> adapter.json of the adapters that the folder holds."""
    paths = sorted((folder / "adapters").glob("*/adapter.json"))
    return {path.parent.name: _json(path) for path in paths}


def gather(
    folder: Path,
    options: TrainOptions,
    note: Callable[[str], None],
    searched: Searched | None = None,
) -> Page:
    """Reads a finished run's folder and returns what its page shows.

    Args:
      folder: Holds metrics.json, and what else the run has kept.
      options: The run's options.
      note: Told why there are no example queries, if there are none.
      searched: What the run searched; loaded if None.
    """
    metrics = _json(folder / "metrics.json")
    scores = read_per_query(folder / "per_query.csv")
    main = page_numbers.main_method(metrics)
    seed = next((seed for method, seed in scores.ndcg if method == main), "")
    shown = f"{main}, seed {seed}" if seed else main
    groups: list[Group] = []
    if "parts" in metrics:
        pages = ", ".join(f"{Path(each).name}/{PAGE}" for each in metrics["parts"])
        rule = untrained = f"Each part of this dataset has a page of its own: {pages}."
    else:
        untrained = f"{main} does not train by epochs: there is nothing to draw."
        rule = (
            f"The {EACH} queries whose nDCG@10 differs most upwards between the full vectors and "
            f"{shown}, and the {EACH} that differ most downwards, of all "
            f"{metrics['queries']['test']:,} scored ones; equal differences in the order of their "
            "ids. Nothing else chose them."
        )
        try:
            searched = searched or _searched(metrics, options)
            groups = _groups(folder, main, seed, scores, searched, options)
        except (InputError, OSError, KeyError) as error:
            note(f"{folder / PAGE}: no example queries: {error}")
            rule = _NO_EXAMPLES
    return page_numbers.page(
        metrics,
        options,
        quantised=_quantised(folder, metrics, scores.unseen),
        history=read_history(folder / "history.csv"),
        untrained=untrained,
        groups=groups,
        rule=rule,
        shown=shown,
        adapters=_adapters(folder),
        environment=_json(folder / "environment.json"),
    )


def keep_page(
    folder: Path,
    options: TrainOptions,
    note: Callable[[str], None],
    searched: Searched | None = None,
) -> None:
    """Writes report.html, unless it is there and newer than what it shows.

    What is measured does not depend on it: where it cannot be written, that is told, no more.

    Args:
      folder: A finished run's folder, or that of a part.
      options: The run's options.
      note: Takes one line.
      searched: What the run searched, if it is loaded already.
    """
    if not _stale(folder):
        return
    try:
        write_text(folder / PAGE, render(gather(folder, options, note, searched)))
    except OSError as error:
        note(f"{folder / PAGE}: not written: {error}")


def keep_pages(folder: Path, options: TrainOptions, note: Callable[[str], None]) -> None:
    """Does `keep_page` for a finished run, and for its parts where the dataset has some.

    Args:
      folder: The run's folder.
      options: The run's options.
      note: Takes one line.
    """
    if parts(options.dataset) != (options.dataset,):
        for dataset in parts(options.dataset):
            keep_page(folder / Path(dataset).name, options, note)
    keep_page(folder, options, note)
