"""python -m dive_jax.export: texts to vectors, once, with any encoder."""

import sys
from collections.abc import Sequence
from pathlib import Path

from dive_jax import cli
from dive_jax.encoders.presets import PRESETS
from dive_jax.options import ExportOptions

ABOUT = (
    "Embeds a dataset's documents and queries with an encoder of transformers, "
    "sentence-transformers (extra: export) or LLM2Vec (extra: llm2vec), and writes the store of "
    "vectors that the other commands read. Killed, the same command goes on where it stopped.\n"
    f"Presets: {', '.join(PRESETS)}."
)


def work(options: ExportOptions) -> None:
    """Embeds the dataset and says where the vectors are."""
    from dive_jax.report.progress import Progress
    from dive_jax.studies.export_places import resolve
    from dive_jax.studies.exporting import export

    spec = resolve(options)
    if spec.kind == "llm2vec":
        from dive_jax.encoders import llm2vec as module
    else:
        from dive_jax.encoders import transformer as module
    module.check()
    stores = export(
        options,
        spec,
        load=lambda spec: module.load(spec, device=options.device, dtype=options.dtype),
        progress=lambda label, total, done: Progress(total, label, "texts", done=done),
        note=lambda line: print(line, file=sys.stderr, flush=True),
    )
    for store in stores:
        if not store.fresh:
            print(f"{store.folder} is finished; nothing to do", file=sys.stderr)
        sides, texts = store.manifest["sides"], store.manifest["texts"]
        documents = sides["documents"]
        print(
            f"{store.dataset}: {documents['rows']:,} documents and {sides['queries']['rows']:,} "
            f"queries, {documents['dim']} wide, {store.manifest['dtype']}; cut at "
            f"{store.manifest['max_tokens']} tokens: "
            f"{texts['documents']['truncated_share']:.1%} of the documents, "
            f"{texts['queries']['truncated_share']:.1%} of the queries; in {store.folder}"
        )
    print(f"next: {training(options, stores[0].root, stores[0].folder.name)}")


def training(options: ExportOptions, root: Path, encoder: str) -> str:
    """Returns the command that trains on what was embedded.

    Args:
      options: What was asked for.
      root: The data root that now holds the vectors; a built-in dataset needs none.
      encoder: Name of the folder of vectors.

    Example:
      >>> training(ExportOptions(encoder="all-MiniLM-L6-v2"), Path("cache"), "all-MiniLM-L6-v2")
      'python -m dive_jax.train --dataset=python_docs --encoder=all-MiniLM-L6-v2'
    """
    from dive_jax.sources import BUILT_IN_DATASET

    needless = options.dataset == BUILT_IN_DATASET and options.out is None
    place = "" if needless else f"--data_root={root} "
    return f"python -m dive_jax.train {place}--dataset={options.dataset} --encoder={encoder}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command on `arguments`, by default the process's; returns the exit status."""
    return cli.main("export", ABOUT, ExportOptions, work, arguments)


if __name__ == "__main__":
    sys.exit(main())
