"""What each study measures: rows in, a table out. Values that the papers leave open are here."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from dive_jax.methods.registry import COMPARED, MAIN, find
from dive_jax.options import CompareOptions, StudyOptions, TrainOptions
from dive_jax.studies.rows import Measured, Row

SELECTED: dict[str, tuple[Any, ...]] = {
    "margin": (0.3, 0.5, 0.7, 0.9),
    "view_weight": (0.001, 0.01, 0.1),
    "geometry_weight": (1.0, 10.0, 100.0),
    "temperature": (0.05, 0.1, 0.2),
    "heads": (2, 4, 8),
}
"""Values tried of each setting, one at a time around the given ones."""

HEADS = (2, 4, 8)

TRAINED = (
    *("autoencoder", "matryoshka_adaptor", "search_adaptor", "smec", "dive_mlp"),
    *("dive_batch", "dive_batch_linear"),
)
"""Methods whose learning rate is audited; dive's is fixed."""


Ask: TypeAlias = Callable[[Sequence[Row], str], Measured]
"""Measures rows on the study's datasets, under a name of its own within the study ("" for none)."""


class Outcome(NamedTuple):
    """What a study found.

    Attributes:
      table: Its table.
      told: What else its JSON file holds.
    """

    table: Measured
    told: dict[str, Any]


Plan: TypeAlias = Callable[[Any, Ask], Outcome]
"""Takes the options of the command, and what measures."""


def methods_of(options: CompareOptions, default: Sequence[str] = COMPARED) -> tuple[str, ...]:
    """Returns the methods of a study, in the order of the registry unless they are named."""
    chosen = options.methods or tuple(default)
    for name in chosen:
        find(name)
    return chosen


def _row(label: str, options: StudyOptions, **settings: Any) -> Row:
    return Row(label, options.method, dataclasses.replace(options, **settings))


def compare(options: CompareOptions, ask: Ask) -> Outcome:
    """Every method under the same settings."""
    return Outcome(ask([Row(name, name, options) for name in methods_of(options)], ""), {})


def ablation(options: StudyOptions, ask: Ask) -> Outcome:
    """The full method, and without each of its parts."""
    rows = [
        _row("full", options),
        _row("no self-limiting", options, self_limiting=False),
        _row("no contrast", options, view_weight=0.0),
        _row("no geometry", options, geometry_weight=0.0),
        _row("no heads", options, heads=1),
    ]
    return Outcome(ask(rows, ""), {})


def select(options: StudyOptions, ask: Ask) -> Outcome:
    """Margin, weights, temperature and heads, one at a time around the given settings."""
    rows = [_row("as given", options)]
    for name in options.settings or SELECTED:
        values = SELECTED[name]
        given = options.wanted_lead if name == "margin" else getattr(options, name)
        rows += [
            _row(f"{name} = {value:g}", options, **{name: value})
            for value in values
            if value != given
        ]
    table = ask(rows, "")
    best = max(table.means, key=lambda label: table.means[label]["ndcg@10"]["mean"])
    return Outcome(table, {"best": best})


def heads(options: StudyOptions, ask: Ask) -> Outcome:
    """The number of heads."""
    return Outcome(ask([_row(f"{count} heads", options, heads=count) for count in HEADS], ""), {})


def _chosen(
    options: StudyOptions, ask: Ask, ways: Mapping[str, Mapping[str, dict[str, Any]]]
) -> tuple[Outcome, dict[str, str]]:
    """Tries some methods in several ways on validation queries; the winners go to test queries.

    Args:
      options: Of the study.
      ask: Measures.
      ways: Method, name of a way, the settings it changes; other methods run as they are given.

    Returns:
      The table on test queries with the means on validation queries, and each method's winner.
    """
    methods = methods_of(options)
    trying = dataclasses.replace(options, protocol="select")
    tried = {
        f"{method}, {way}": (method, way, settings)
        for method in methods
        for way, settings in ways.get(method, {}).items()
    }
    rows = [
        Row(label, method, dataclasses.replace(trying, **settings))
        for label, (method, _, settings) in tried.items()
    ]
    validation = ask(rows, "validation").means if rows else {}
    won: dict[str, str] = {}  # not of a method whose width is impossible: it is left out
    best_first = sorted(validation, key=lambda each: -validation[each]["ndcg@10"]["mean"])
    for label in best_first:
        method, way, _ = tried[label]
        won.setdefault(method, way)
    final = dataclasses.replace(options, protocol="final")
    rows = [
        Row(
            name,
            name,
            dataclasses.replace(final, **(ways[name][won[name]] if name in won else {})),
        )
        for name in methods
    ]
    table = ask(rows, "test")
    return Outcome(table, {"validation": validation} if validation else {}), won


def audit(options: StudyOptions, ask: Ask) -> Outcome:
    """Three learning rates a method on validation queries, then the winners on test queries."""
    common = {f"{rate:g}": {"learning_rate": rate} for rate in options.learning_rates}
    smec = {f"{rate:g}": {"smec_learning_rate": rate} for rate in options.smec_learning_rates}
    ways = {name: smec if name == "smec" else common for name in TRAINED}
    outcome, won = _chosen(options, ask, ways)
    rates = {method: next(iter(ways[method][way].values())) for method, way in won.items()}
    return Outcome(outcome.table, outcome.told | {"winners": rates})


def tuned(options: StudyOptions, ask: Ask) -> Outcome:
    """Each baseline as given and in ways of its own, where the common protocol holds it back."""
    longer = {
        "learning_rate": 2e-3,
        "epochs": 4 * options.epochs,
        "max_steps": options.max_steps and 4 * options.max_steps,
    }
    own: dict[str, dict[str, dict[str, Any]]] = {
        "autoencoder": {"four times as long at 2e-3": longer},
        "matryoshka_adaptor": {
            "unsupervised": {"matryoshka_stages": "unsupervised"},
            "prefixes up to the width": {"nested_up_to": "dim"},
        },
        "search_adaptor": {
            "rank loss summed": {"rank_reduction": "sum"},
            "rank loss summed, at 1e-3": {"rank_reduction": "sum", "learning_rate": 1e-3},
        },
        "smec": {"at 2e-4": {"smec_learning_rate": 2e-4}},
        "dive_mlp": {"stopped early": {"early_stopping": "both"}},
    }
    ways = {method: {"as given": {}} | each for method, each in own.items()}
    outcome, won = _chosen(options, ask, ways)
    return Outcome(outcome.table, outcome.told | {"winners": won})


def widths(options: StudyOptions, ask: Ask) -> Outcome:
    """Every method at every width; of the heads as many as fit."""
    rows = []
    for name in methods_of(options):
        for width in () if name == "frozen" else (*options.widths, None):
            adapt = functools.partial(_narrowed, width=width)
            rows.append(Row(f"{name} {width or 'full'}", name, options, adapt))
        if name == "frozen":
            rows.append(Row(name, name, options))
    return Outcome(ask(rows, ""), {})


def _narrowed(options: TrainOptions, full_dim: int, *, width: int | None) -> TrainOptions:
    dim = width or full_dim
    return dataclasses.replace(options, dim=dim, heads=max(1, min(options.heads, full_dim // dim)))


def dynamics(options: StudyOptions, ask: Ask) -> Outcome:
    """How training falls silent, epoch by epoch, beside where it starts."""
    return Outcome(
        ask([_row(options.method, options), Row("truncate", "truncate", options)], ""), {}
    )


def unseen(options: StudyOptions, ask: Ask) -> Outcome:
    """What early stopping, the dial and a linear adapter do for documents nobody trained on."""
    ways = {
        "": {"early_stopping": "off"},
        ", stopped on unseen": {"early_stopping": "unseen"},
        ", stopped on validation": {"early_stopping": "validation"},
        ", stopped on both": {"early_stopping": "both"},
        ", dial": {"early_stopping": "off", "dial": "validation"},
        ", stopped on unseen, dial": {"early_stopping": "unseen", "dial": "validation"},
    }
    chosen = methods_of(options, ("dive_principal", "dive_batch", "dive_batch_linear"))
    rows = [Row(name, name, options) for name in ("frozen", "truncate", "pca")]
    rows += [
        Row(name + words, name, dataclasses.replace(options, **settings))
        for name in chosen
        for words, settings in ways.items()
    ]
    return Outcome(ask(rows, ""), {})


def backbones(options: StudyOptions, ask: Ask) -> Outcome:
    """The main methods on vectors of several encoders of one collection."""
    parts = {}
    for encoder in options.encoders or (options.encoder,):
        changed = dataclasses.replace(options, encoder=encoder)
        rows = [Row(name, name, changed) for name in methods_of(options, MAIN)]
        parts[encoder] = ask(rows, encoder)
    first = next(iter(parts.values()))
    datasets = {
        f"{dataset}, {encoder}": entry
        for encoder, part in parts.items()
        for dataset, entry in part.datasets.items()
    }
    folders = {
        f"{dataset}, {encoder}": entry
        for encoder, part in parts.items()
        for dataset, entry in part.folders.items()
    }
    means, left_out = (
        {
            f"{label}, {encoder}": each
            for encoder, part in parts.items()
            for label, each in getattr(part, name).items()
        }
        for name in ("means", "left_out")
    )
    return Outcome(Measured(first.rows, datasets, means, left_out, folders), {})


PLANS: dict[str, Plan] = {
    "compare": compare,
    "ablation": ablation,
    "select": select,
    "heads": heads,
    "audit": audit,
    "tuned": tuned,
    "widths": widths,
    "dynamics": dynamics,
    "backbones": backbones,
    "unseen": unseen,
}
"""Every study by name."""
