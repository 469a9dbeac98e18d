"""python -m dive_jax.compare: every compressor side by side on your vectors and judgments."""

import sys
from collections.abc import Sequence
from pathlib import Path

from dive_jax import cli
from dive_jax.options import CompareOptions

ABOUT = (
    "Fits every method on the same triplets and splits, scores them on held-out queries and prints "
    "one table. What is finished is kept: the same command goes on where it stopped."
)


def work(options: CompareOptions) -> None:
    """Runs the comparison and prints its table."""
    cli.configure_jax(options)
    from dive_jax.studies.study import run

    cli.show_study(run("compare", options, Path(options.folder), cli.watch()), options.folder)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command on `arguments`, by default the process's; returns the exit status."""
    return cli.main("compare", ABOUT, CompareOptions, work, arguments)


if __name__ == "__main__":
    sys.exit(main())
