"""python -m dive_jax.prepare: get a BEIR collection into the folder of the datasets."""

import sys
from collections.abc import Sequence
from pathlib import Path

from dive_jax import cli
from dive_jax.options import PrepareOptions
from dive_jax.types import InputError

ABOUT = (
    "Gets a BEIR collection (documents, queries, judgments) from the datasets hub, a zip or a "
    "folder, checks it, and writes <data_root>/<dataset> in BEIR's layout with prepared.json, "
    "which tells where it came from. What is finished is not done again. Needs the extra "
    "datasets for the hub only."
)


def work(options: PrepareOptions) -> None:
    """Prepares every collection that the dataset stands for."""
    from dive_jax.report.progress import Progress
    from dive_jax.sources import parts
    from dive_jax.studies.prepared import Wanted, remark
    from dive_jax.studies.preparing import check_name, prepare

    if not options.dataset:
        raise InputError("--dataset: wanted a name, such as scifact or cqadupstack")
    check_name(options.dataset)
    names = parts(options.dataset)
    pins = ("revision", "qrels_revision", "repository")
    pinned = [name for name in pins if getattr(options, name) is not None]
    if pinned and len(names) > 1:
        raise InputError(
            f"--{pinned[0]}: {options.dataset} has {len(names)} repositories; pin them one at a "
            f"time, such as --dataset={options.dataset}/android"
        )
    for name in names:
        wanted = Wanted(
            dataset=name,
            target=Path(options.root) / name,
            source=options.source,
            **{pin: getattr(options, pin) for pin in pins},
        )
        record = prepare(wanted, lambda total, label, unit: Progress(total, label, unit))
        judged = " / ".join(f"{file} {count:,}" for file, count in record["judged"].items())
        print(
            f"{wanted.target}: {record['documents']:,} documents, {record['queries']:,} queries, "
            f"judged queries {judged}" + ("" if record["new"] else "; was there already"),
            flush=True,
        )
        for what, count in record["counts"].items():
            print(f"  {count:,} {what}")
        if told := remark(record):
            print(told, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command on `arguments`, by default the process's; returns the exit status."""
    return cli.main("prepare", ABOUT, PrepareOptions, work, arguments)


if __name__ == "__main__":
    sys.exit(main())
