"""Query-disjoint splits, their manifests, and which test documents training has seen."""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dive_jax.data.lines import numbered_lines, parse_object
from dive_jax.data.qrels import judged, relevant, relevant_to_any, union
from dive_jax.files import sha256_json, write_json
from dive_jax.types import InputError, Qrels

FORMAT_VERSION = 1


class Split(NamedTuple):
    """Judged queries in three disjoint parts.

    Attributes:
      train: Query ids, as all parts in the order of SHA-256("{seed}:{id}").
      validation: Queries that choose settings.
      test: Queries that choose nothing.
      seed: Seed of the order.
      kind: protocol or official.
      judgments: test or all: what a protocol split is made of.
      counts: What was dropped or odd, in words, and how often; nothing that did not occur.
      qrels_sha256: SHA-256 (hex) of the judgments of the three parts.
    """

    train: tuple[str, ...]
    validation: tuple[str, ...]
    test: tuple[str, ...]
    seed: int
    kind: str
    judgments: str
    counts: dict[str, int]
    qrels_sha256: str

    @property
    def ids_sha256(self) -> str:
        """SHA-256 (hex) of the three lists of ids."""
        return sha256_json([self.train, self.validation, self.test])

    @property
    def fingerprint(self) -> str:
        """SHA-256 (hex) of the judgments and of the three lists of ids."""
        return sha256_json([self.qrels_sha256, self.ids_sha256])


class Overlap(NamedTuple):
    """How much of what is scored has been trained on.

    Attributes:
      documents: Distinct relevant documents of the scored queries.
      seen_documents: Those of them that are relevant for a trained query.
      queries: Scored queries.
      unseen_queries: Those of them with no seen document among their relevant ones.
    """

    documents: int
    seen_documents: int
    queries: int
    unseen_queries: int


def hashed_order(ids: Iterable[str], seed: int) -> tuple[str, ...]:
    """Returns ids ordered by the SHA-256 of "{seed}:{id}", as hex."""
    return tuple(sorted(ids, key=lambda id: hashlib.sha256(f"{seed}:{id}".encode()).hexdigest()))


def _file(qrels_by_file: Mapping[str, Qrels], name: str) -> Qrels:
    if name not in qrels_by_file:
        raise InputError(
            f"qrels/{name}.tsv: missing, and this split needs it; "
            f"there are: {', '.join(sorted(qrels_by_file)) or 'none'}; "
            "choose another --split or --judgments"
        )
    return qrels_by_file[name]


def _by_precedence(qrels_by_file: Mapping[str, Qrels]) -> dict[str, Mapping[str, int]]:
    """Returns each judged query's judgments of one file: test before dev before train."""
    merged: dict[str, Mapping[str, int]] = {}
    for name in ("train", "dev", "test"):
        qrels = qrels_by_file.get(name, {})
        merged |= {query: qrels[query] for query in judged(qrels)}
    return merged


def qrels_of(split: Split, qrels_by_file: Mapping[str, Qrels]) -> dict[str, dict[str, int]]:
    """Returns the judgments that a split stands on, for its queries only.

    Args:
      split: A split of the same files.
      qrels_by_file: Judgments by file name (train, dev, test).

    Returns:
      The test file's (protocol, judgments test), the union of the files, the highest gain winning
      where they differ (protocol, judgments all), or each query's own file's (official).

    Raises:
      InputError: If a file is missing, or a query of the split has no judgment.
    """
    return _restricted(_source(split.kind, split.judgments, qrels_by_file)[0], split)


def _restricted(qrels: Qrels, split: Split) -> dict[str, dict[str, int]]:
    kept = {}
    for query in (*split.train, *split.validation, *split.test):
        if query not in qrels:
            raise InputError(f"query {query} of the split has no judgment; make the split anew")
        kept[query] = dict(qrels[query])
    return kept


def _source(
    kind: str, judgments: str, qrels_by_file: Mapping[str, Qrels]
) -> tuple[Qrels, dict[str, int]]:
    """Returns the judgments that a split is made of, and what is odd about them."""
    if kind == "official":
        return _by_precedence(qrels_by_file), {}
    if judgments == "test":
        qrels, differing = _file(qrels_by_file, "test"), 0
    else:
        qrels, differing = union(qrels_by_file)
    return qrels, {
        "judgments that differ between files (the highest gain counts)": differing,
        "queries without a relevant document": len(qrels) - len(judged(qrels)),
    }


def _protocol_parts(qrels: Qrels, seed: int) -> tuple[tuple[str, ...], ...]:
    order = hashed_order(judged(qrels), seed)
    if len(order) < 5:
        raise InputError(
            f"a 60/20/20 split needs at least 5 judged queries, got {len(order)}; "
            "choose --judgments=all or --split=official"
        )
    train, validation = 3 * len(order) // 5, len(order) // 5
    return order[:train], order[train : train + validation], order[train + validation :]


def _official_parts(
    qrels_by_file: Mapping[str, Qrels], seed: int
) -> tuple[tuple[tuple[str, ...], ...], dict[str, int]]:
    files = {name: _file(qrels_by_file, name) for name in ("train", "test")}
    if "dev" in qrels_by_file:
        files["dev"] = qrels_by_file["dev"]
    ids = {name: set(judged(qrels)) for name, qrels in files.items()}
    dev = ids.get("dev", set())
    counts = {
        f"queries without a relevant document ({name})": len(qrels) - len(ids[name])
        for name, qrels in files.items()
    } | {
        "training queries dropped: they are test queries too": len(ids["train"] & ids["test"]),
        "validation queries dropped: they are test queries too": len(dev & ids["test"]),
        "training queries dropped: they are validation queries too": len(
            (ids["train"] & dev) - ids["test"]
        ),
    }
    train = hashed_order(ids["train"] - ids["test"] - dev, seed)
    validation = hashed_order(dev - ids["test"], seed)
    needed = 1 if "dev" in files else 2
    if len(train) < needed:
        raise InputError(
            f"qrels/train.tsv: wanted at least {needed} judged queries that no other file has, "
            f"got {len(train)}; choose --split=protocol"
        )
    if "dev" not in files:
        held = max(1, len(train) // 4)
        train, validation = train[:-held], train[-held:]
    for name, part in (("dev", validation), ("test", ids["test"])):
        if not part:
            raise InputError(f"qrels/{name}.tsv: wanted at least 1 judged query, got none")
    return (train, validation, hashed_order(ids["test"], seed)), counts


def make_split(
    qrels_by_file: Mapping[str, Qrels],
    *,
    split: str = "protocol",
    judgments: str = "test",
    seed: int = 2027,
) -> Split:
    """Splits the judged queries into train, validation and test.

    Args:
      qrels_by_file: Judgments by file name (train, dev, test), of existing documents only.
      split: protocol: 60/20/20 (floor, floor, rest) in hashed order. official: the files as
        given; a query in two files belongs to test before dev before train; without a dev file
        the last quarter of train in hashed order is validation.
      judgments: For protocol: split the test file's queries, or those of all files.
      seed: Seed of the hashed order.

    Returns:
      The split; queries without a relevant document are left out and counted.

    Raises:
      InputError: If a file that is needed is missing, or a part would be empty.

    Source:
      Zhao, DIVE (arXiv 2605.20689), section 4.
    """
    if split not in ("protocol", "official"):
        raise InputError(f"--split: wanted protocol or official, got {split}")
    if judgments not in ("test", "all"):
        raise InputError(f"--judgments: wanted test or all, got {judgments}")
    qrels, counts = _source(split, judgments, qrels_by_file)
    if split == "official":
        (train, validation, test), counts = _official_parts(qrels_by_file, seed)
    else:
        train, validation, test = _protocol_parts(qrels, seed)
    odd = {what: count for what, count in counts.items() if count}
    made = Split(train, validation, test, seed, split, judgments, odd, "")
    return made._replace(qrels_sha256=sha256_json(_restricted(qrels, made)))


def trained_ids(split: Split, protocol: str) -> tuple[str, ...]:
    """Returns the queries trained on: train (select), or train and validation (final)."""
    return split.train + split.validation if _is_final(protocol) else split.train


def scored_ids(split: Split, protocol: str) -> tuple[str, ...]:
    """Returns the queries scored: validation (select) or test (final)."""
    return split.test if _is_final(protocol) else split.validation


def _is_final(protocol: str) -> bool:
    if protocol not in ("select", "final"):
        raise InputError(f"--protocol: wanted select or final, got {protocol}")
    return protocol == "final"


def unseen_queries(
    queries: Iterable[str], trained_queries: Iterable[str], qrels: Qrels
) -> tuple[str, ...]:
    """Returns the queries none of whose relevant documents is relevant for a trained query.

    Args:
      queries: Ids of scored queries.
      trained_queries: Ids of the queries trained on.
      qrels: Judgments of both.

    Returns:
      Ids, in the order of `queries`.

    Example:
      >>> unseen_queries(["b", "c"], ["a"], {"a": {"x": 1}, "b": {"x": 1}, "c": {"y": 1, "x": 0}})
      ('c',)
    """
    seen = relevant_to_any(trained_queries, qrels)
    return tuple(query for query in queries if not seen & relevant(qrels[query]))


def overlap(queries: Iterable[str], trained_queries: Iterable[str], qrels: Qrels) -> Overlap:
    """Counts the scored documents and queries that training has seen; see `unseen_queries`."""
    queries, trained_queries = tuple(queries), tuple(trained_queries)
    documents, seen = relevant_to_any(queries, qrels), relevant_to_any(trained_queries, qrels)
    unseen = unseen_queries(queries, trained_queries, qrels)
    return Overlap(len(documents), len(documents & seen), len(queries), len(unseen))


def manifest(split: Split) -> dict[str, Any]:
    """Returns what a split's manifest holds; as JSON the same byte for byte for the same split."""
    return {
        "format_version": FORMAT_VERSION,
        "split": split.kind,
        "judgments": split.judgments,
        "seed": split.seed,
        "train": list(split.train),
        "validation": list(split.validation),
        "test": list(split.test),
        "qrels_sha256": split.qrels_sha256,
        "ids_sha256": split.ids_sha256,
        "fingerprint": split.fingerprint,
    }


def save_manifest(path: Path, split: Split) -> None:
    """Writes a split's manifest as JSON, whole or not at all."""
    write_json(path, manifest(split))


def check_manifest(path: Path, split: Split) -> None:
    """Raises `InputError` unless the manifest at `path` is that of `split`.

    Args:
      path: A manifest that `save_manifest` wrote.
      split: The split made of the judgments at hand.
    """
    found = parse_object("\n".join(line for _, line in numbered_lines(path)), str(path))
    wanted = manifest(split)
    for key in sorted(wanted, key=lambda key: key != "format_version"):
        if found.get(key) != wanted[key]:
            listed = isinstance(wanted[key], list)
            what = "other queries" if listed else f"wanted {wanted[key]}, got {found.get(key)}"
            raise InputError(
                f"{path}: not the split of these judgments and settings ({key}: {what[:160]}); "
                "restore the dataset and the flags that made it, or start another --run_dir"
            )
