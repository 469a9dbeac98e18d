"""python -m dive_jax.export: texts to vectors, once, with any encoder."""

import sys
from collections.abc import Sequence

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
    name = stores[0].folder.name
    print(
        f"next: python -m dive_jax.train --data_root={stores[0].root} "
        f"--dataset={options.dataset} --encoder={name}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command on `arguments`, by default the process's; returns the exit status."""
    return cli.main("export", ABOUT, ExportOptions, work, arguments)


if __name__ == "__main__":
    sys.exit(main())
