"""python -m dive_jax.study: ablation, selection, audit, widths and the papers' other studies."""

import sys
from collections.abc import Sequence
from pathlib import Path

from dive_jax import cli
from dive_jax.options import INDEXES, THEORY, StudyOptions

ABOUT = (
    "Runs one study (--study) and prints its table. What was measured under the same settings by "
    "any study of the folder is not measured again."
)


def work(options: StudyOptions) -> None:
    """Runs the study and prints its table."""
    cli.configure_jax(options)
    if options.study in (*THEORY, *INDEXES):
        from dive_jax.studies import theory

        done = theory.run(options.study, options, Path(options.folder), cli.watch())
        cli.show_theory(done, options.folder)
        return
    from dive_jax.studies.study import run

    cli.show_study(run(options.study, options, Path(options.folder), cli.watch()), options.folder)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command on `arguments`, by default the process's; returns the exit status."""
    return cli.main("study", ABOUT, StudyOptions, work, arguments)


if __name__ == "__main__":
    sys.exit(main())
