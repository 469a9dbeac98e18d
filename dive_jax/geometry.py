"""python -m dive_jax.geometry: do queries and documents deserve two projections?"""

import sys
from collections.abc import Sequence
from pathlib import Path

from dive_jax import cli
from dive_jax.options import GeometryOptions

ABOUT = (
    "Decides between one shared linear projection and one for each side, by rank, on the training "
    "queries of a dataset (CARS), and writes both operators as adapters for `compress`."
)


def work(options: GeometryOptions) -> None:
    """Runs the selector and prints its table."""
    cli.configure_jax(options)
    from dive_jax.report.tables import print_table
    from dive_jax.studies.geometry import TABLE, run, table_rows

    metrics = run(options, Path(options.folder), cli.watch())
    print_table(
        table_rows(metrics),
        TABLE,
        title=f"{metrics['dataset']}, {metrics['encoder']}, {metrics['full_dim']} wide; "
        f"{metrics['queries']} training queries, {metrics['splits']} splits",
    )
    print("score > 0: dual. It is signal - cost / queries, fitted over subsamples.")
    print(f"Everything of this run is in {options.folder}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command on `arguments`, by default the process's; returns the exit status."""
    return cli.main("geometry", ABOUT, GeometryOptions, work, arguments)


if __name__ == "__main__":
    sys.exit(main())
