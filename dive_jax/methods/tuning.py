"""Two trainings instead of one: the first chooses on held-out queries, the second uses it all."""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from dive_jax.data.holdout import Held
from dive_jax.methods import linear, pca
from dive_jax.methods.protocol import Compressor, Fit, Fitted, Fitting, Material
from dive_jax.options import AdapterOptions
from dive_jax.scoring import mean, score
from dive_jax.training.loop import best_epoch
from dive_jax.types import InputError

Validate: TypeAlias = Callable[[Compressor], float]

FLAGS = ("early_stopping", "dial")
"""What can be chosen on held-out queries: the number of epochs, and the share of the adapter."""

SHARES = tuple(tenths / 10 for tenths in range(11))
"""The dial's grid. 0 leaves the starting point: the first coordinates, or the principal axes."""

MEASURE = "ndcg@10"

_OFF = ("off", "default")


def resolved(options: AdapterOptions, stops: str) -> AdapterOptions:
    """Returns the options with a method's own default for early stopping filled in.

    Example:
      >>> resolved(AdapterOptions(), "unseen").early_stopping
      'unseen'
    """
    if options.early_stopping != "default":
        return options
    return dataclasses.replace(options, early_stopping=stops)


def possible(material: Material, options: AdapterOptions, stops: str) -> AdapterOptions:
    """Returns `resolved` options; a default gives way where nothing can be held out for it.

    What the user asks for does not give way: holding it out raises.
    """
    chosen = resolved(options, stops)
    if options.early_stopping != "default" or stops == "off":
        return chosen
    for kind in (stops, "validation"):
        try:
            held_out(material, kind)
        except InputError:
            continue
        return dataclasses.replace(chosen, early_stopping=kind)
    return dataclasses.replace(chosen, early_stopping="off")


def held_kind(options: AdapterOptions, tunes: tuple[str, ...]) -> str | None:
    """Returns which queries are held out, unseen, validation or both; None if nothing is chosen.

    Args:
      options: The settings.
      tunes: Which of `FLAGS` a method heeds.

    Example:
      >>> held_kind(AdapterOptions(dial="validation"), FLAGS)
      'validation'
      >>> held_kind(AdapterOptions(dial="validation", early_stopping="unseen"), FLAGS)
      'unseen'
    """
    for flag in FLAGS:
        if flag in tunes and (kind := getattr(options, flag)) not in _OFF:
            return kind
    return None


def held_out(material: Material, kind: str) -> Held:
    """Holds queries out of those that train.

    Raises:
      InputError: If there are no judgments, or none can be held out.
    """
    if material.hold_out is None:
        raise InputError("held-out queries were asked for, and there are no judgments")
    return material.hold_out(kind)


def scorer(material: Material, held: Held, chunk_rows: int) -> Validate:
    """Returns a compressor's mean nDCG@10 over the held-out queries as a function of it.

    All documents are searched exactly, `chunk_rows` at once.
    """

    def validate(compressor: Compressor) -> float:
        scores = score(
            material.vectors,
            held.ids,
            held.qrels,
            compress=compressor.sides(chunk_rows),
            chunk_rows=chunk_rows,
        )
        found = mean(scores, MEASURE)
        if found is None:
            raise ValueError("held: wanted at least one query, got none")
        return found

    return validate


def without(material: Material, held: Held) -> Material:
    """Returns what trains while the queries are held out."""
    return material._replace(triplets=held.triplets, judgments=held.judgments, hold_out=None)


def start(material: Material, options: AdapterOptions, fitting: Fitting) -> Compressor:
    """Returns where an adapter starts: the first coordinates, or the principal axes."""
    if options.basis == "given":
        return linear.truncate(material, options, fitting).compressors[0]
    return pca.fit(material, options, fitting, center=False).compressors[0]


def dialled(compressor: Compressor, begun: Compressor, share: float) -> Compressor:
    """Returns an adapter that adds only a share of what it has learnt to its starting point.

    Args:
      compressor: A trained adapter of form residual or linear.
      begun: Its starting point; see `start`.
      share: 0 for the starting point itself, to 1 for the adapter as it is.

    Raises:
      ValueError: For another form.
    """
    if share == 1:
        return compressor
    artefact = compressor.artefact
    arrays = dict(artefact.arrays)
    if artefact.form == "residual":
        arrays |= {name: share * arrays[name] for name in ("out_weight", "out_bias")}
    elif artefact.form == "linear":
        first = np.eye(compressor.dim, compressor.full_dim, dtype=np.float32)
        base = begun.artefact.arrays.get("weight", first)
        arrays["weight"] = base + share * (arrays["weight"] - base)
    else:
        raise ValueError(f"form: wanted residual or linear, got {artefact.form}")
    return Compressor(dataclasses.replace(artefact, arrays=arrays))


def best_share(
    compressor: Compressor, begun: Compressor, validate: Validate
) -> tuple[float, dict[str, float]]:
    """Chooses the share that scores best; the smaller one of equals, which changes less.

    Args:
      compressor: A trained adapter.
      begun: Its starting point.
      validate: Scores it on held-out queries.

    Returns:
      The share, and the score of every share.
    """
    scores = [validate(dialled(compressor, begun, share)) for share in SHARES]
    told = {f"{share:.1f}": score for share, score in zip(SHARES, scores, strict=True)}
    return SHARES[int(np.argmax(scores))], told


def chosen_epochs(fitted: Fitted) -> int:
    """Returns how many epochs a first training found best: all of them without validation."""
    if (scores := fitted.history.get("validation")) is not None:
        return best_epoch(scores) + 1
    return len(next(iter(fitted.history.values())))


def with_about(compressor: Compressor, **about: Any) -> Compressor:
    """Returns a compressor whose artefact tells more of its origin."""
    meta = compressor.artefact.meta
    meta = meta | {"about": meta["about"] | about}
    return Compressor(dataclasses.replace(compressor.artefact, meta=meta))


def part(
    fitting: Fitting, stage: str, total: int, span: tuple[float, float], epochs: int
) -> Fitting:
    """Returns the fitting of one training among several that count as a whole.

    Args:
      fitting: That of the whole.
      stage: Name of the folder of its checkpoints; empty for the whole's own.
      total: Epochs that the whole is told to have.
      span: Where this training begins and ends, as shares of the whole.
      epochs: Epochs that it has at most.
    """
    checkpoints, report = fitting.checkpoints, fitting.report
    if checkpoints is not None and stage:
        fitting = fitting._replace(checkpoints=lambda: checkpoints(stage))
    if report is not None:
        first, last = span

        def told(epoch: int, logged: Any) -> None:
            done = first + (last - first) * min(1.0, epoch / epochs)
            report(round(total * done), logged)

        fitting = fitting._replace(report=told)
    return fitting


def tuned(fit: Fit, name: str, tunes: tuple[str, ...], stops: str = "off") -> Fit:
    """Returns a fit that heeds --early_stopping and --dial.

    With both off it is the fit as it is. Else a first training leaves queries out, and chooses the
    epoch (best mean over the seeds) and each seed's share of the adapter on them; a second one
    trains on everything for that many epochs, and its adapters take those shares.

    Args:
      fit: Trains the method in one go, through `shared.trained`.
      name: Of the method, for notes.
      tunes: Which of `FLAGS` make sense for it.
      stops: What --early_stopping=default means for it.
    """

    def either(material: Material, options: AdapterOptions, fitting: Fitting) -> Fitted:
        options = possible(material, options, stops)
        wanted = [flag for flag in FLAGS if getattr(options, flag) not in _OFF]
        if (left := [f"--{flag}" for flag in wanted if flag not in tunes]) and fitting.note:
            fitting.note(f"{name} is fitted without {' and '.join(left)}")
        if (kind := held_kind(options, tunes)) is None:
            return fit(material, options, fitting)
        dial = options.dial != "off" and "dial" in tunes
        return _in_two(fit, material, options, fitting, held_out(material, kind), dial=dial)

    return either


def _in_two(
    fit: Fit,
    material: Material,
    options: AdapterOptions,
    fitting: Fitting,
    held: Held,
    *,
    dial: bool,
) -> Fitted:
    """Trains without the held-out queries, chooses on them, and trains again on everything."""
    if dial and options.basis == "principal":
        material = material._replace(axes=pca.rotation(material, fitting.chunk_rows))
    validate = scorer(material, held, fitting.chunk_rows)
    stops = options.early_stopping not in _OFF
    total = options.passes(len(material.triplets.query))
    one = part(fitting, "validation", total, (0, 0.5), total)
    first = fit(
        without(material, held), options, one._replace(validate=validate if stops else None)
    )
    epochs = chosen_epochs(first)
    two = part(fitting, "", total, (0.5, 1), epochs)
    second = fit(material, options, two._replace(epochs=epochs))
    about: dict[str, Any] = {"held_out": held.kind, "counts": held.counts}
    about["epochs"] = len(next(iter(second.history.values())))
    if stops:
        about["by_epoch"] = np.mean(first.history["validation"], axis=1, dtype=float).tolist()
    begun = start(material, options, fitting) if dial else None
    ends = []
    for tried, end in zip(first.compressors, second.compressors, strict=True):
        told: dict[str, Any] = {}
        if begun is not None:
            share, by_share = best_share(tried, begun, validate)
            end, told = dialled(end, begun, share), {"share": share, "by_share": by_share}
        ends.append(with_about(end, tuning=about | told))
    return Fitted(
        ends,
        second.history,
        first.compile_seconds + second.compile_seconds,
        first.train_seconds + second.train_seconds,
        first.history,
    )
