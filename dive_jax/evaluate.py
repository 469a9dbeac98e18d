"""python -m dive_jax.evaluate: score a finished run again, also on other embeddings."""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from dive_jax import cli
from dive_jax.options import EvaluateOptions
from dive_jax.types import InputError

ABOUT = (
    "Scores the adapters of a finished run again, on its own dataset or on another one embedded by "
    "the same encoder, and prints the table."
)


def work(options: EvaluateOptions) -> None:
    """Scores and prints."""
    before, metrics = cli.trained_with(options.run), Path(options.run) / "metrics.json"
    if before is None or not metrics.is_file():
        missing = metrics.with_name("options.flags") if before is None else metrics
        raise InputError(f"--run: {missing} is missing, so this is no finished run")
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
