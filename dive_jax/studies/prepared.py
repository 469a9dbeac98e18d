"""The record of a prepared collection: what it holds, where it came from, and whether it stands."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dive_jax.data.beir import QRELS_FILES, Collection, load_collection
from dive_jax.data.lines import numbered_lines, parse_object
from dive_jax.data.qrels import judged
from dive_jax.files import sha256_file
from dive_jax.types import InputError

FORMAT_VERSION = 1
RECORD = "prepared.json"
"""File in the collection's folder that tells where it came from."""

PUBLISHED = {
    "scifact": (5183, 300),
    "fiqa": (57638, 648),
    "arguana": (8674, 1401),
    "quora": (522931, 10000),
}
"""Documents and judged test queries of the published figures (arXiv 2605.20689, section 4)."""

FILES = ("corpus.jsonl", "queries.jsonl", *(f"qrels/{name}.tsv" for name in QRELS_FILES))
"""Files of a collection, those that may be there."""

_KINDS = {"documents": int, "queries": int, "judged": dict, "counts": dict}
_KINDS |= {"files": dict, "source": dict}


class Wanted(NamedTuple):
    """What to prepare.

    Attributes:
      dataset: Its name, one collection: a forum of CQADupStack, not all twelve.
      target: The folder to write.
      source: "hub", a zip, or a folder in BEIR's layout or with copies of the hub's repositories.
      revision: Revision of the hub's repository of texts; None for the newest.
      qrels_revision: The same for the judgments.
      repository: One repository of the hub that holds both; None for those that are known.
    """

    dataset: str
    target: Path
    source: str
    revision: str | None = None
    qrels_revision: str | None = None
    repository: str | None = None

    @property
    def filling(self) -> str:
        """What else the user can do."""
        return (
            f"fill {self.target} with corpus.jsonl, queries.jsonl and qrels/test.tsv, or give "
            "--source=ZIP or FOLDER"
        )


def there(wanted: Wanted) -> dict[str, Any] | None:
    """Returns the record of a finished collection; None where the folder is yet to be made."""
    target, path = wanted.target, wanted.target / RECORD
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return None
    if not path.exists():
        return _described(load_collection(target)) | {"dataset": wanted.dataset}
    found = read_object(path)
    for name, kind in _KINDS.items():
        if not isinstance(found.get(name), kind):
            raise InputError(f"{path}: {name} is missing or odd; remove {target} to make it again")
    origin = found["source"]
    sizes = {name: (target / name).stat().st_size for name in FILES if (target / name).is_file()}
    if sizes != {
        name: each["bytes"] if isinstance(each, dict) else None
        for name, each in found["files"].items()
    }:
        raise InputError(f"{target}: changed since it was made; remove it to make it again")
    asked = {name: getattr(wanted, name) for name in ("revision", "qrels_revision", "repository")}
    for name, value in asked.items():
        got = origin.get("texts" if name == "repository" else name)
        if value is not None and value not in (got, origin.get(f"asked_{name}")):
            raise InputError(
                f"--{name}: {target} holds {got}, wanted {value}; remove it, or name another "
                "--data_root"
            )
    return found


def _described(collection: Collection) -> dict[str, Any]:
    return {
        "documents": len(collection.document_ids),
        "queries": len(collection.query_ids),
        "judged": {name: len(judged(qrels)) for name, qrels in collection.qrels.items()},
        "counts": collection.counts,
        "fingerprint": collection.fingerprint,
    }


def made_record(dataset: str, origin: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Reads a collection as training would, and returns what there is to tell of it."""
    collection = load_collection(folder)
    if not any(judged(qrels) for qrels in collection.qrels.values()):
        raise InputError(
            f"{dataset}: no judgment names a query and a document that exist; texts and judgments "
            "do not belong together"
        )
    files = {
        name: {"bytes": (folder / name).stat().st_size, "sha256": sha256_file(folder / name)}
        for name in FILES
        if (folder / name).exists()
    }
    head = {"format_version": FORMAT_VERSION, "dataset": dataset, "source": dict(origin)}
    return head | _described(collection) | {"files": files}


def remark(record: Mapping[str, Any]) -> str | None:
    """Returns how a collection differs in size from the published one, None if it does not.

    Example:
      >>> remark({"dataset": "scifact", "documents": 5183, "judged": {"test": 300}})
    """
    published = PUBLISHED.get(record["dataset"])
    got = record["documents"], record["judged"].get("test", 0)
    if published is None or got == published:
        return None
    return (
        f"{record['dataset']}: published figures are for {published[0]:,} documents and "
        f"{published[1]:,} judged test queries, this has {got[0]:,} and {got[1]:,}"
    )


def read_object(path: Path) -> dict[str, Any]:
    """Reads a file that holds one JSON object."""
    return parse_object("\n".join(line for _, line in numbered_lines(path)), str(path))
