"""From metrics.json and the run's other records to the numbers and words of its page."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from dive_jax.options import TrainOptions
from dive_jax.report.markup import Table
from dive_jax.report.page import Chart, Figure, Page, Setting
from dive_jax.report.page_charts import Dot, Line
from dive_jax.report.page_queries import Group
from dive_jax.report.page_training import History
from dive_jax.report.tables import MISSING, Column
from dive_jax.settings import render
from dive_jax.studies import quantising
from dive_jax.studies.results import TABLE, table_rows

Quantised: TypeAlias = Mapping[str, Mapping[str, Any]]
"""Method -> kind (float16, int8, binary) -> what `quantising.summarised` gives."""

_ALL, _UNSEEN = "nDCG@10", "nDCG@10, unseen documents"
_CERTAIN = 0.05
_PAIRED = (
    Column("pair", "pair", align="left"),
    Column("difference", "nDCG@10"),
    Column("p", "p"),
)


def main_method(metrics: Mapping[str, Any]) -> str:
    """Returns the method that the page is about: the one trained, or PCA if that is frozen."""
    main = metrics.get("method", "dive")
    return main if main != "frozen" else "pca"


def _mean(entry: Mapping[str, Any], unseen: bool, measure: str = "ndcg@10") -> float | None:
    found = (entry["unseen"] if unseen else entry)[measure]
    return None if found is None else found["mean"]


def _quality(metrics: Mapping[str, Any], label: str, measure: str, unseen: bool) -> Figure:
    """Returns a measure of the main method beside that of the full vectors."""
    main = main_method(metrics)
    ours = _mean(metrics["methods"][main], unseen, measure)
    full = _mean(metrics["methods"]["frozen"], unseen, measure)
    if ours is None or full is None:
        return Figure(label, MISSING, "no such query")
    change, tested = ours - full, None
    if measure == "ndcg@10" and not unseen:
        tested = metrics["comparisons"].get(f"{main} - frozen")
    note = f"{change:+.4f} against {full:.4f} of the full vectors"
    if tested is None:
        return Figure(label, f"{ours:.4f}", note)
    tone = ("good" if change > 0 else "bad") if tested["p_value"] < _CERTAIN else ""
    return Figure(label, f"{ours:.4f}", f"{note}, p = {tested['p_value']:.4f}", tone)


def _figures(metrics: Mapping[str, Any]) -> list[Figure]:
    before, after = (metrics["methods"][name]["bytes"] for name in ("frozen", main_method(metrics)))
    return [
        Figure("Bytes a vector", f"{after:,}", f"{before / after:.3g} times fewer than {before:,}"),
        _quality(metrics, _ALL, "ndcg@10", False),
        _quality(metrics, _UNSEEN, "ndcg@10", True),
        _quality(metrics, "Recall@10", "recall@10", False),
    ]


def _parts(metrics: Mapping[str, Any]) -> tuple[bool, ...]:
    """Returns what there is to show: all queries, and those of unseen documents if not all are."""
    counts = metrics["queries"]
    return (False,) if counts["test_unseen"] == counts["test"] else (False, True)


def _warnings(metrics: Mapping[str, Any], options: TrainOptions) -> list[str]:
    main, methods = main_method(metrics), metrics["methods"]
    told = []
    if options.smoke:
        told.append("A smoke run: it shows that all works, and nothing of the quality.")
    if metrics["protocol"] == "select":
        told.append("Validation queries are scored here, which settings may be chosen on.")
    for unseen in _parts(metrics):
        where = "on queries of unseen documents" if unseen else "on these queries"
        if (least := _mean(methods[main], unseen)) is None:
            told.append("Training has seen a document of every query: nothing tells of new ones.")
            continue
        means = {name: _mean(entry, unseen) for name, entry in methods.items()}
        if better := [name for name, mean in means.items() if mean is not None and mean > least]:
            told.append(f"{main} scores below {' and '.join(better)} {where}.")
    return told


def _tables(metrics: Mapping[str, Any]) -> list[Table]:
    main = main_method(metrics)
    made = [Table(table_rows(metrics["methods"]), TABLE, "Means ± deviation over the seeds", main)]
    rows = [
        {
            "pair": pair.replace(" - ", " less "),
            "difference": f"{test['difference']:+.4f}",
            "p": f"{test['p_value']:.4f}",
        }
        for pair, test in metrics["comparisons"].items()
    ]
    if rows:
        over = f"Paired tests, {metrics['queries']['test']:,} queries"
        made.append(Table(rows, _PAIRED, over))
    return made


def _remarks(metrics: Mapping[str, Any]) -> list[str]:
    if (seen := metrics.get("overlap")) is None:
        return []
    return [
        f"{seen['seen_documents']:,} of the {seen['documents']:,} relevant documents of these "
        f"queries are also relevant for a training query; {seen['unseen_queries']:,} of the "
        f"{seen['queries']:,} queries have none of those."
    ]


def _line(
    name: str, entry: Mapping[str, Any], small: Mapping[str, Any], unseen: bool, series: int
) -> Line | None:
    """Returns a method's results by bytes: as float32, and as smaller numbers where known."""
    dots = []
    for kind, each in {"float32": entry, **small}.items():
        found = (each["unseen"] if unseen else each)["ndcg@10"]
        if found is not None:
            dots.append(Dot(each["bytes"], found["mean"], found["std"], kind))
    return Line(name, dots, series) if dots else None


def _charts(metrics: Mapping[str, Any], quantised: Quantised) -> list[Chart]:
    methods, main = metrics["methods"], main_method(metrics)
    order = sorted(methods, key=lambda name: (name != main, name != "frozen"))
    series = {name: index for index, name in enumerate(order)}
    charts = []
    for unseen in _parts(metrics):
        lines = [
            _line(name, entry, quantised.get(name, {}), unseen, series[name])
            for name, entry in methods.items()
        ]
        known = [line for line in lines if line is not None]
        if known:
            charts.append(
                Chart(_UNSEEN if unseen else _ALL, known, _mean(methods["frozen"], unseen))
            )
    return charts


def _sizes(metrics: Mapping[str, Any], quantised: Quantised) -> Table | None:
    if not quantised:
        return None
    entry = {"methods": metrics["methods"], "quantised": quantised}
    rows = quantising.table_rows({"datasets": {metrics["dataset"]: entry}})
    caption = "Kept as smaller numbers; bits also keep an int8 copy, to score candidates again"
    return Table(rows, quantising.TABLE[1:], caption)


def _settings(options: TrainOptions) -> tuple[list[Setting], list[Setting]]:
    """Returns the settings that decide results: those that are not their defaults, and the rest."""
    written, usual = (
        dict(line[2:].split("=", 1) for line in render(each).splitlines())
        for each in (options, type(options)())
    )
    made = [
        (Setting(field.name, written[field.name], field.metadata["help"]), field.name)
        for field in dataclasses.fields(options)
        if field.metadata["result"] and field.name in written
    ]
    return (
        [setting for setting, name in made if written[name] != usual.get(name)],
        [setting for setting, name in made if written[name] == usual.get(name)],
    )


def _flat(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, object]]:
    """Yields the values of mappings within mappings, each under the joined names."""
    for name, value in values.items():
        full = f"{before} {name}".strip()
        if isinstance(value, Mapping):
            yield from _flat(value, full)
        elif isinstance(value, Sequence) and not isinstance(value, str):
            yield full, ", ".join(map(str, value))
        else:
            yield full, value if full.endswith("seed") else _told(value)


def _told(value: object) -> object:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    return f"{value:,}" if isinstance(value, int) else value


def _facts(
    metrics: Mapping[str, Any],
    adapters: Mapping[str, Mapping[str, Any]],
    environment: Mapping[str, Any],
) -> dict[str, list[tuple[str, object]]]:
    digests = {f"adapter {name}": each["sha256"] for name, each in adapters.items()}
    main = main_method(metrics)
    ours = next((each for each in adapters.values() if each["method"] == main), {"about": {}})
    decided = {k: v for k, v in ours["about"].items() if k not in ("dataset", "vectors")}
    queries = metrics["queries"]
    data: dict[str, Any] = {
        "training queries": queries["train"],
        "scored queries": queries["test"],
        "scored queries of unseen documents": queries["test_unseen"],
    }
    made = {
        "Fingerprints (SHA-256)": _flat({**metrics["fingerprints"], **digests}),
        "Data": _flat(data | metrics["dropped"]),
        "How the adapter was made": _flat(decided),
        "Parameters of the adapter": _flat(metrics.get("parameters", {})),
        "Versions": _flat(metrics["versions"]),
        "Machine": _flat({k: v for k, v in environment.items() if k != "versions"}),
    }
    listed = {title: list(facts) for title, facts in made.items()}
    return {title: facts for title, facts in listed.items() if facts}


def _about(metrics: Mapping[str, Any]) -> list[str]:
    counts, seeds = metrics["queries"], len(metrics["seeds"])
    scored = "test" if metrics["protocol"] == "final" else "validation"
    return [
        f"{metrics['encoder']}, {metrics['full_dim']:,} to {metrics['dim']:,} coordinates; "
        f"{metrics['split']} split, {metrics['protocol']} protocol; "
        f"{seeds} seed{'' if seeds == 1 else 's'}.",
        f"{counts['train']:,} training queries and {counts['test']:,} {scored} queries, "
        f"{counts['test_unseen']:,} of them with documents that no training query has.",
    ]


def page(
    metrics: Mapping[str, Any],
    options: TrainOptions,
    *,
    quantised: Quantised,
    history: History,
    untrained: str,
    groups: Sequence[Group],
    rule: str,
    shown: str,
    adapters: Mapping[str, Mapping[str, Any]],
    environment: Mapping[str, Any],
) -> Page:
    """Returns what a run's page shows.

    Args:
      metrics: What metrics.json holds.
      options: The run's options.
      quantised: Scores of smaller numbers; empty where nothing is known.
      history: What was logged while training the main method.
      untrained: Why there is no history, if there is none.
      groups: Example queries.
      rule: How they were chosen.
      shown: What compressed them.
      adapters: Name -> adapter.json.
      environment: What environment.json holds.
    """
    chosen, defaults = _settings(options)
    return Page(
        title=f"{main_method(metrics)} on {metrics['dataset']}",
        about=_about(metrics),
        figures=_figures(metrics),
        warnings=_warnings(metrics, options),
        tables=_tables(metrics),
        remarks=_remarks(metrics),
        charts=_charts(metrics, quantised),
        sizes=_sizes(metrics, quantised),
        history=history,
        seeds=[str(seed) for seed in metrics["seeds"]],
        untrained=untrained,
        groups=groups,
        rule=rule,
        method=shown,
        chosen=chosen,
        defaults=defaults,
        facts=_facts(metrics, adapters, environment),
    )
