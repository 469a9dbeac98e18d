"""python -m dive_jax.index: compressed documents into an index that answers quickly."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dive_jax import cli
from dive_jax.options import IndexOptions
from dive_jax.types import InputError

ABOUT = (
    "Builds an index of faiss's (extra: faiss) from vectors that compress wrote, or from the "
    "documents of a run's dataset. Killed, the same command goes on where it stopped."
)


def _of_run(options: IndexOptions) -> Any:
    """Returns the documents of a run's dataset as its adapter compresses them."""
    from dive_jax.methods.protocol import load
    from dive_jax.studies.finished import adapter_folder, source_of
    from dive_jax.studies.indexed import of_run

    before = cli.trained_with(options.run)
    method = options.method or (before.method if before else "dive")
    folder = adapter_folder(Path(options.run), method, options.seed)
    return of_run(load(folder), source_of(options, before), options.chunk_rows)


def _of_file(options: IndexOptions) -> Any:
    """Returns the documents of a file, with ids from where they are found first."""
    from dive_jax.studies.compression import manifest_path
    from dive_jax.studies.indexed import of_file, read_ids

    path = Path(options.vectors)
    given = Path(options.ids) if options.ids else path.with_name(f"{path.stem}.ids.txt")

    def ids(rows: int) -> tuple[str, ...]:
        if options.ids or given.is_file():
            return read_ids(given, rows)
        print(
            f"{given} is absent, so ids are row numbers from 0; --ids names a file", file=sys.stderr
        )
        return tuple(map(str, range(rows)))

    return of_file(path, manifest_path(path), ids, options.chunk_rows)


def work(options: IndexOptions) -> None:
    """Builds the index."""
    if bool(options.run) == bool(options.vectors):
        raise InputError(
            "--run or --vectors: wanted one of them, got " + ("both" if options.run else "none")
        )
    if not options.out:
        raise InputError("--out: wanted the folder to make")
    from dive_jax.retrieval.indexes import Settings, library

    library()
    cli.configure_jax(options)
    from dive_jax.report.progress import Progress
    from dive_jax.studies.indexing import INDEX, build

    documents = _of_run(options) if options.run else _of_file(options)
    out = Path(options.out)
    about = build(
        documents,
        Settings(**{name: getattr(options, name) for name in Settings._fields}),
        out,
        checkpoint_seconds=options.checkpoint_seconds,
        progress=lambda total, done: Progress(total, f"indexing {options.kind}", "rows", done=done),
    )
    size = (out / INDEX).stat().st_size
    chosen = "".join(f", {name} {value}" for name, value in about["parameters"].items())
    print(
        f"{out}: {about['kind']}{chosen}; {about['rows']:,} rows, {about['dim']} wide, "
        f"{size:,} bytes, {size / about['rows']:.1f} a row"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command on `arguments`, by default the process's; returns the exit status."""
    return cli.main("index", ABOUT, IndexOptions, work, arguments)


if __name__ == "__main__":
    sys.exit(main())
