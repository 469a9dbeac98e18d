"""python -m dive_jax.search: ask a compressed collection, beside the full vectors if you like."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dive_jax import cli
from dive_jax.options import SearchOptions
from dive_jax.types import InputError

ABOUT = (
    "Finds the documents nearest to a question, or to each of a file, with a run's adapter: "
    "exactly over the run's dataset, or in an index that dive_jax.index made."
)


def _questions(options: SearchOptions) -> list[Any]:
    from dive_jax.studies.asking import Question, read_questions

    if options.queries is not None:
        return read_questions(Path(options.queries))
    text = (options.query or "").strip()
    return [Question("query", text, "--query")]


def _check(options: SearchOptions) -> None:
    if (options.query is None) == (options.queries is None):
        got = "none" if options.query is None else "both"
        raise InputError(
            'wanted a question, as in search --run=RUN "how do I …", or --queries=FILE, got ' + got
        )
    if options.query is not None and not options.query.strip():
        raise InputError("--query: empty; wanted words")


def _note(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _answered(options: SearchOptions) -> dict[str, Any]:
    """Returns all that is printed, as JSON takes it."""
    from dive_jax.methods.protocol import load
    from dive_jax.studies import asking, indexing, searching
    from dive_jax.studies.encoding import Elsewhere
    from dive_jax.studies.finished import adapter_folder, source_of

    before = cli.trained_with(options.run)
    method = options.method or (before.method if before else "dive")
    adapter = adapter_folder(Path(options.run), method, options.seed)
    questions, compressor = _questions(options), load(adapter)
    source = source_of(options, before)
    root = options.data_root or (before.root if before else "") or ""
    index = None
    if options.index is not None:
        index = indexing.load(Path(options.index))
        indexing.check_index(index, Path(options.index), compressor.artefact, source.store)
    searching.check(compressor, source, k=options.top_k, index=index)
    folder = asking.texts_folder(source.dataset, root)
    how = Elsewhere(options.encode_with or sys.executable, options.weights)
    encoder = asking.encoder_of(source, folder, how, _note)
    answers = searching.search(
        asking.understand(questions, source, folder, encoder),
        compressor,
        source,
        k=options.top_k,
        index=index,
        compare=options.compare,
        chunk_rows=options.chunk_rows,
    )
    return {
        "format_version": 1,
        "dataset": source.dataset,
        "encoder": source.store.encoder,
        "adapter": adapter.name,
        "dim": compressor.dim,
        "full_dim": compressor.full_dim,
        "documents": len(source.ids.document if index is None else index.ids),
        "index": None if index is None else index.about["kind"],
        "depth": searching.DEPTH,
        "answers": searching.as_json(answers, searching.texts_of(answers, folder)),
    }


def work(options: SearchOptions) -> None:
    """Asks and prints."""
    _check(options)
    cli.configure_jax(options)
    told = _answered(options)
    if options.json:
        from dive_jax.files import to_json

        print(to_json(told), end="")
        return
    from dive_jax.report.rankings import print_answer

    how = f", {told['index']}" if told["index"] else ""
    compressed = f"{told['adapter']}, {told['dim']} wide{how}"
    for answer in told["answers"]:
        print_answer(answer, compressed, f"frozen, {told['full_dim']} wide")
    if options.compare:
        print(
            "was, now: the document's place in the other ranking; new, gone: not among the first "
            f"{told['depth']} there"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command on `arguments`, by default the process's; returns the exit status."""
    return cli.main("search", ABOUT, SearchOptions, work, arguments)


if __name__ == "__main__":
    sys.exit(main())
