"""python -m dive_jax.compare: every compressor side by side on your vectors and judgments."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dive_jax import cli
from dive_jax.options import CompareOptions

ABOUT = (
    "Fits every method on the same triplets and splits, scores them on held-out queries and prints "
    "one table. What is finished is kept: the same command goes on where it stopped."
)


def work(options: CompareOptions) -> None:
    """Runs the comparison and prints its table."""
    cli.configure_jax()
    from dive_jax.studies.comparison import run

    show(run(options, Path(options.folder), cli.watch()), options.folder)


def show(metrics: Mapping[str, Any], folder: str) -> None:
    """Prints a table a dataset, the paired test of the best two, and published figures."""
    from dive_jax.report.tables import Column, print_table
    from dive_jax.studies.results import TABLE, paired_lines, table_rows

    for dataset, entry in metrics["datasets"].items():
        queries = entry["queries"]
        print_table(
            table_rows(entry["methods"]),
            TABLE,
            title=f"{dataset}, {entry['encoder']}, {entry['full_dim']} to {entry['dim']} wide; "
            f"{queries['test']} queries, {queries['test_unseen']} unseen",
        )
        for line in paired_lines(entry["comparisons"]):
            print(line)
        print()
    if len(metrics["datasets"]) > 1:
        print_table(table_rows(metrics["methods"]), TABLE, title="mean over the datasets")
        print()
    if metrics["published"]:
        columns = [
            Column("method", "published, with another encoder", align="left"),
            Column("dim", "width"),
            Column("ndcg@10", "nDCG@10", 4),
            Column("recall@10", "Recall@10", 4),
        ]
        print_table(metrics["published"], columns)
    print(f"Everything of this comparison is in {folder}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command on `arguments`, by default the process's; returns the exit status."""
    return cli.main("compare", ABOUT, CompareOptions, work, arguments)


if __name__ == "__main__":
    sys.exit(main())
