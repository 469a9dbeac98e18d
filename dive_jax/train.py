"""python -m dive_jax.train: fit, score on held-out queries, print the table."""

import sys
from collections.abc import Sequence
from pathlib import Path

from dive_jax import cli
from dive_jax.options import TrainOptions

ABOUT = (
    "Trains DIVE on one dataset's frozen vectors, and scores it beside the frozen vectors, their "
    "first coordinates and PCA. Everything lands in the run folder; the same command resumes."
)


def work(options: TrainOptions) -> None:
    """Runs the job and prints its table."""
    cli.configure_jax(options)
    from dive_jax.studies.experiment import run

    metrics = run(options, Path(options.folder), cli.watch())
    cli.show(metrics, options.folder)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command on `arguments`, by default the process's; returns the exit status."""
    return cli.main("train", ABOUT, TrainOptions, work, arguments)


if __name__ == "__main__":
    sys.exit(main())
