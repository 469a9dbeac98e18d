"""python -m dive_jax.evaluate: score a finished run again, also on other embeddings."""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from dive_jax import cli
from dive_jax.options import EvaluateOptions, TrainOptions
from dive_jax.types import InputError

ABOUT = (
    "Scores the adapters of a finished run again, on its own dataset or on another one embedded by "
    "the same encoder, and prints the table."
)


def trained_with(run: str) -> TrainOptions:
    """Returns the options of a finished run.

    Raises:
      InputError: If there is no finished run in the folder.
    """
    if not run:
        raise InputError("--run: wanted the folder of a finished run")
    folder = Path(run)
    for name in ("options.flags", "metrics.json"):
        if not (folder / name).is_file():
            raise InputError(f"--run: {folder / name} is missing, so this is no finished run")
    return cli.parse(TrainOptions, [f"--flagfile={folder / 'options.flags'}"])


def work(options: EvaluateOptions) -> None:
    """Scores and prints."""
    before = trained_with(options.run)
    given = {
        name: getattr(options, name)
        for name in ("dataset", "encoder", "data_root", "judgments", "split")
        if getattr(options, name) is not None
    }
    now = dataclasses.replace(
        before, **given, verify=options.verify, chunk_rows=options.chunk_rows
    ).effective()
    cli.configure_jax(options)
    from dive_jax.studies.evaluation import evaluate

    name = f"{now.dataset.replace('/', '_')}-{now.encoder}-{now.judgments}-{now.split}"
    out = Path(options.out or Path(options.run) / "evaluations" / name)
    cli.show(evaluate(Path(options.run), before.effective(), now, out), str(out))


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command on `arguments`, by default the process's; returns the exit status."""
    return cli.main("evaluate", ABOUT, EvaluateOptions, work, arguments)


if __name__ == "__main__":
    sys.exit(main())
