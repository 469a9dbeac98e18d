"""Tries the compressors on held-out queries of unseen documents, and fits the best of them."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dive_jax.data.holdout import Held, NoUnseenError
from dive_jax.methods import dive, linear, pca
from dive_jax.methods.protocol import Compressor, Fit, Fitted, Fitting, Material
from dive_jax.methods.tuning import (
    Validate,
    best_share,
    chosen_epochs,
    dialled,
    held_out,
    part,
    scorer,
    start,
    with_about,
    without,
)
from dive_jax.options import AdapterOptions

NAME = "auto"


class Candidate(NamedTuple):
    """A way to train that is tried.

    Attributes:
      name: Of the method.
      fit: Trains it in one go.
      settings: Of its own, whatever the options say of them.
      margins: Wanted leads that are tried.
    """

    name: str
    fit: Fit
    settings: Mapping[str, Any]
    margins: tuple[float, ...]


def _candidate(name: str, fit: Any, basis: str, ranking: str, *margins: float) -> Candidate:
    settings = {"basis": basis, "ranking": ranking}
    return Candidate(name, functools.partial(fit, name=NAME), settings, margins)


CANDIDATES = (
    _candidate("dive_batch_linear", dive.fit_linear, "principal", "batch", 0.2, 0.1),
    _candidate("dive", dive.fit, "given", "triplet", 0.7, 0.3),
    _candidate("dive_principal", dive.fit, "principal", "triplet", 0.7, 0.3),
    _candidate("dive_batch", dive.fit, "principal", "batch", 0.2, 0.1),
)
"""What is tried beside pca and truncate, the simplest first."""


class Tried(NamedTuple):
    """One outcome, as it scored on the held-out queries.

    Attributes:
      label: What it is.
      score: Mean nDCG@10.
      chosen: What the artefact tells of it if it wins: method, margin, epochs, share.
      compressor: What was scored, before its dial.
      candidate: How it was trained, and is to be trained again; None where nothing trains.
    """

    label: str
    score: float
    chosen: dict[str, Any]
    compressor: Compressor
    candidate: Candidate | None = None


class _Bench(NamedTuple):
    """What all candidates share while they are tried."""

    material: Material
    held: Held
    options: AdapterOptions
    fitting: Fitting
    validate: Validate


def hold_out(material: Material) -> Held:
    """Holds out queries of unseen documents, or validation queries where there are none such.

    Raises:
      InputError: If no query can be held out, or there are no judgments.
    """
    try:
        return held_out(material, "unseen")
    except NoUnseenError:
        return held_out(material, "validation")


def check(material: Material, options: AdapterOptions) -> None:
    """Raises `InputError` for an impossible width, or if no query can be held out."""
    options.check_width(material.full_dim)
    hold_out(material)


def _references(bench: _Bench) -> list[Tried]:
    tried = []
    for name, fit in (("pca", pca.fit), ("truncate", linear.truncate)):
        compressor = fit(bench.material, bench.options, bench.fitting).compressors[0]
        score = bench.validate(compressor)
        tried.append(Tried(name, score, {"method": name}, compressor))
    return tried


def _settled(options: AdapterOptions, candidate: Candidate, margin: float) -> AdapterOptions:
    return dataclasses.replace(options, **candidate.settings, margin=margin)


def _trial(
    bench: _Bench, candidate: Candidate, margin: float, place: int, places: int
) -> tuple[list[Tried], Fitted]:
    """Trains a candidate on what is not held out, its first seed only, and scores it."""
    options = _settled(bench.options, candidate, margin)
    label = f"{candidate.name} {margin:g}"
    total = options.passes(len(bench.material.triplets.query))
    span = (place / places, (place + 1) / places)
    stage = f"candidates/{candidate.name}-{margin:g}"
    fitting = part(bench.fitting, stage, total, span, total)
    fitting = fitting._replace(seeds=fitting.seeds[:1], validate=bench.validate)
    fitted = candidate.fit(without(bench.material, bench.held), options, fitting)
    (compressor,) = fitted.compressors
    begun = start(bench.material, options, fitting)
    share, by_share = best_share(compressor, begun, bench.validate)
    chosen = {"method": candidate.name, "margin": margin, "epochs": chosen_epochs(fitted)}
    whole, part_of_it = by_share["1.0"], by_share[f"{share:.1f}"]
    return [
        Tried(label, whole, chosen | {"share": 1.0}, compressor, candidate),
        Tried(f"{label} dial", part_of_it, chosen | {"share": share}, compressor, candidate),
    ], fitted


def _told(best: Tried, tried: Sequence[Tried], held: Held) -> str:
    """Returns what was decided in one line."""
    kinds = {"unseen": "queries of unseen documents", "validation": "validation queries"}
    queries = f"{len(held.qrels)} held-out {kinds[held.kind]}"
    if best.label == "pca":
        return f"auto: nothing beats pca ({best.score:.4f}) on {queries}, so it is pca"
    chosen = ", ".join(f"{key} {value}" for key, value in best.chosen.items())
    first = tried[0]
    return (
        f"auto: {chosen}: best on {queries}, {best.score:.4f}; {first.label} has {first.score:.4f}"
    )


def _refitted(best: Tried, bench: _Bench, places: int) -> tuple[list[Compressor], Fitted | None]:
    """Fits the winner on everything, all seeds."""
    if best.candidate is None:
        meta = best.compressor.artefact.meta | {"method": NAME}
        artefact = dataclasses.replace(best.compressor.artefact, meta=meta)
        return [Compressor(artefact)] * len(bench.fitting.seeds), None
    options = _settled(bench.options, best.candidate, best.chosen["margin"])
    epochs = best.chosen["epochs"]
    total = options.passes(len(bench.material.triplets.query))
    fitting = part(bench.fitting, "", total, (1 - 1 / places, 1), epochs)
    fitted = best.candidate.fit(bench.material, options, fitting._replace(epochs=epochs))
    begun = start(bench.material, options, fitting)
    share = best.chosen["share"]
    return [dialled(each, begun, share) for each in fitted.compressors], fitted


def fit(
    material: Material,
    options: AdapterOptions,
    fitting: Fitting,
    *,
    candidates: Sequence[Candidate] = CANDIDATES,
) -> Fitted:
    """Tries every candidate on held-out queries, and fits the best one on everything.

    A candidate is trained on its first seed, stops early, and is scored twice: as it is, and at
    the best share of its dial. Of equals the first wins: the answer is pca unless it is beaten.

    Args:
      material: Frozen vectors, triplets and judgments.
      options: Width, optimiser, patience. Basis, ranking and margin are the candidates' own;
        early stopping is on, and the dial is tried.
      fitting: Seeds, checkpoints (a folder a candidate), report, note.
      candidates: What is tried beside pca and truncate.

    Returns:
      One compressor a seed, the same one where nothing is trained. `about` in the artefact tells
      what was chosen, and how every candidate scored.

    Raises:
      InputError: For an impossible width, or if no query can be held out.
      TrainingError: If a loss is not finite.
    """
    options.check_width(material.full_dim)
    held = hold_out(material)
    material = material._replace(axes=pca.rotation(material, fitting.chunk_rows))
    validate = scorer(material, held, fitting.chunk_rows)
    bench = _Bench(material, held, options, fitting, validate)
    tried, trials = _references(bench), []
    todo = [(each, margin) for each in candidates for margin in each.margins]
    for place, (candidate, margin) in enumerate(todo):
        outcomes, fitted = _trial(bench, candidate, margin, place, len(todo) + 1)
        tried += outcomes
        trials.append(fitted)
    best = max(tried, key=lambda each: each.score)
    compressors, last = _refitted(best, bench, len(todo) + 1)
    if fitting.note is not None:
        if held.kind != "unseen":
            fitting.note("auto: no query can be held out whose documents do not train")
        fitting.note(_told(best, tried, held))
    about = {
        "chosen": best.chosen | {"score": best.score},
        "candidates": {each.label: each.score for each in tried},
        "held_out": held.kind,
        "counts": held.counts,
    }
    trials += [] if last is None else [last]
    return Fitted(
        [with_about(each, **about) for each in compressors],
        {} if last is None else last.history,
        sum(each.compile_seconds for each in trials),
        sum(each.train_seconds for each in trials),
    )
