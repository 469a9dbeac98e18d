"""python -m dive_jax.compress: stream a file of frozen vectors to vectors of the kept width."""

import sys
from collections.abc import Sequence
from pathlib import Path

from dive_jax import cli
from dive_jax.options import CompressOptions
from dive_jax.types import InputError

ABOUT = (
    "Compresses a .npy file of frozen vectors with a run's adapter, in bounded memory, and writes "
    "the result with a manifest beside it. Killed, the same command goes on where it stopped."
)


def adapter_folder(options: CompressOptions) -> Path:
    """Returns the folder of the adapter meant by --run, --method and --seed.

    Raises:
      InputError: If there is none.
    """
    run = Path(options.run)
    if not options.run:
        raise InputError("--run: wanted the folder of a finished run, or of one saved adapter")
    if (run / "adapter.json").is_file():
        return run
    adapters = run / "adapters"
    if not adapters.is_dir():
        raise InputError(f"--run: no adapters in {run}; wanted the folder of a finished run")
    names = {each.name for each in adapters.iterdir() if (each / "adapter.json").is_file()}
    seeds = [each.rpartition("-")[2] for each in names if each.startswith(f"{options.method}-")]
    seeds = sorted(int(seed) for seed in seeds if seed.isdigit())
    wanted = options.method
    if wanted not in names:
        seed = seeds[0] if options.seed is None and seeds else options.seed
        wanted = options.method if seed is None else f"{options.method}-{seed}"
    if wanted not in names:
        there = ", ".join(sorted(names)) or "none"
        raise InputError(f"--method and --seed: no adapter {wanted} in {adapters}; there: {there}")
    return adapters / wanted


def work(options: CompressOptions) -> None:
    """Compresses the file."""
    for name in ("vectors", "out"):
        if not getattr(options, name):
            raise InputError(f"--{name}: wanted a .npy file")
        if not getattr(options, name).endswith(".npy"):
            raise InputError(f"--{name}: wanted a name ending in .npy")
    folder = adapter_folder(options)
    cli.configure_jax()
    from dive_jax.report.progress import Progress
    from dive_jax.studies.compression import compress_file

    done = compress_file(
        folder,
        Path(options.vectors),
        Path(options.out),
        side=options.side,
        dtype=options.dtype,
        chunk_rows=options.chunk_rows,
        encoder=options.encoder,
        progress=lambda total, done: Progress(total, "compressing", "rows", done=done),
        warn=lambda line: print(line, file=sys.stderr, flush=True),
    )
    print(
        f"{options.out}: {done['rows']:,} rows, {done['full_dim']} to {done['dim']} coordinates, "
        f"{done['bytes_before']:,} to {done['bytes_after']:,} bytes"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command on `arguments`, by default the process's; returns the exit status."""
    return cli.main("compress", ABOUT, CompressOptions, work, arguments)


if __name__ == "__main__":
    sys.exit(main())
