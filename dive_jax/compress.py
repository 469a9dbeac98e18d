"""python -m dive_jax.compress: stream frozen vectors to vectors of the kept width."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from dive_jax import cli
from dive_jax.options import CompressOptions
from dive_jax.types import InputError

ENDINGS = (".npy", ".parquet")
ABOUT = (
    "Compresses frozen vectors (.npy, Parquet, Arrow, or a folder of shards) with a run's adapter, "
    "in bounded memory, and writes .npy or Parquet with ids and a manifest beside it. Killed, the "
    "same command goes on where it stopped. Tables need the extra arrow."
)


def warn(line: str) -> None:
    """Tells something on standard error."""
    print(line, file=sys.stderr, flush=True)


def work(options: CompressOptions) -> None:
    """Compresses the vectors."""
    if not options.vectors:
        raise InputError("--vectors: wanted a .npy, Parquet or Arrow file, or a folder of them")
    if not options.out.endswith(ENDINGS):
        raise InputError(f"--out: wanted a name ending in {' or '.join(ENDINGS)}")
    if not options.run:
        raise InputError("--run: wanted the folder of a finished run, or of one saved adapter")
    # Arrow's own allocator keeps a hundred MiB that it has freed.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    cli.configure_jax(options)
    from dive_jax.report.progress import Progress
    from dive_jax.retrieval.codes import remark
    from dive_jax.studies.compression import Choices, compress_file
    from dive_jax.studies.finished import adapter_folder

    done = compress_file(
        adapter_folder(Path(options.run), options.method, options.seed),
        Path(options.vectors),
        Path(options.out),
        Choices(**{name: getattr(options, name) for name in Choices._fields}),
        progress=lambda total, done: Progress(total, "compressing", "rows", done=done),
        warn=warn,
    )
    if told := remark(cast(Any, options.dtype), done["dim"]):
        warn(told)
    pace = f", {done['rows_per_s']:,.0f} rows/s" if "rows_per_s" in done else ""
    print(
        f"{options.out}: {done['rows']:,} rows, {done['full_dim']} to {done['dim']} coordinates, "
        f"{done['bytes_before']:,} to {done['bytes_after']:,} bytes{pace}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command on `arguments`, by default the process's; returns the exit status."""
    return cli.main("compress", ABOUT, CompressOptions, work, arguments)


if __name__ == "__main__":
    sys.exit(main())
