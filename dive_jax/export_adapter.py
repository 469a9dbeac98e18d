"""python -m dive_jax.export_adapter: a run's adapter, written for another runtime."""

import sys
from collections.abc import Sequence
from pathlib import Path

from dive_jax import cli
from dive_jax.options import ExportAdapterOptions
from dive_jax.types import InputError

ABOUT = (
    "Writes a run's adapter for another runtime, into a folder that says what it is and how to "
    "load it: plain weights, ONNX, PyTorch, sentence-transformers, faiss (linear adapters), or "
    "NumPy with a reader in one file. dive_jax is not needed to use any of them."
)


def work(options: ExportAdapterOptions) -> None:
    """Writes the folder."""
    from dive_jax.artefact import load
    from dive_jax.interop.targets import TARGETS, contents, write
    from dive_jax.studies.finished import adapter_folder

    if options.to is None:
        raise InputError(f"--to: wanted one of {', '.join(TARGETS)}")
    if not options.out:
        raise InputError("--out: wanted the folder to make")
    before = cli.trained_with(options.run)
    method = options.method or (before.method if before else "dive")
    artefact = load(adapter_folder(Path(options.run), method, options.seed))
    files = contents(artefact, options.to)
    if not write(files, Path(options.out)):
        print(f"{options.out} is finished; nothing to do", file=sys.stderr)
    meta, size = artefact.meta, sum(map(len, files.values()))
    print(
        f"{options.out}: {meta['method']} ({artefact.form}), {meta['full_dim']} to {meta['dim']} "
        f"wide, for {options.to}; {len(files)} files, {size:,} bytes; README.md says how to load it"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command on `arguments`, by default the process's; returns the exit status."""
    return cli.main("export_adapter", ABOUT, ExportAdapterOptions, work, arguments)


if __name__ == "__main__":
    sys.exit(main())
