"""An encoder's files, in a folder or on the hub: what they say, their fingerprint, their faults."""

# pyright: reportMissingImports=false

import contextlib
import importlib.util
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dive_jax.files import sha256_file, sha256_json
from dive_jax.types import InputError

_WEIGHTS = ("*.safetensors", "*.bin")
"""Patterns of weight files; the first that matches is what is loaded."""

_SENTENCE_MODULES = ("Transformer", "Pooling", "Normalize")
_POOLINGS = {"mean": "mean", "cls": "cls", "lasttoken": "last"}
_POOLING_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "lasttoken",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
}


def need(extra: str, *packages: str) -> None:
    """Raises `InputError` unless packages are installed; says which extra brings them."""
    if missing := [each for each in packages if importlib.util.find_spec(each) is None]:
        raise InputError(
            f"--encoder: needs {' and '.join(missing)}, not installed here; "
            f"pip install 'dive_jax[{extra}]'"
        )


def is_folder(weights: str) -> bool:
    """Says whether weights are meant to be in a folder of this machine, and not on the hub.

    Raises:
      InputError: If it is written like a path but there is no such folder.
    """
    if (folder := Path(weights).expanduser()).is_dir():
        return True
    if folder.is_absolute() or weights.startswith((".", "~")) or weights.count("/") > 1:
        what = "is a file" if folder.is_file() else "no such folder"
        raise InputError(f"{weights}: {what}; wanted a folder with config.json, tokenizer, weights")
    return False


def folder_of(weights: str, revision: str | None = None) -> Path | None:
    """Returns the folder of weights: itself, or where the hub's cache holds them; else None."""
    if is_folder(weights):
        return Path(weights).expanduser()
    from huggingface_hub import try_to_load_from_cache

    for name in ("config.json", "adapter_config.json"):
        found = try_to_load_from_cache(weights, name, revision=revision)
        if isinstance(found, str):
            return Path(found).parent
    return None


def commit(weights: str, revision: str | None = None) -> str | None:
    """Returns the hub's commit that weights were loaded from; None for a folder."""
    folder = None if is_folder(weights) else folder_of(weights, revision)
    return folder.name if folder is not None and folder.parent.name == "snapshots" else None


def read_json(weights: str, name: str, revision: str | None = None) -> Any:
    """Returns the content of a JSON file among the weights; None where there is none.

    Raises:
      InputError: If the file is damaged, or the hub is needed and cannot be reached.
    """
    if is_folder(weights):
        path = Path(weights).expanduser() / name
        if not path.is_file():
            return None
    else:
        from huggingface_hub import hf_hub_download, try_to_load_from_cache
        from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

        found = try_to_load_from_cache(weights, name, revision=revision)
        if found is not None and not isinstance(found, str):
            return None  # the cache knows that the hub has no such file
        try:
            path = Path(found or hf_hub_download(weights, name, revision=revision))
        except LocalEntryNotFoundError:
            raise
        except EntryNotFoundError:
            return None
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON ({error}); fetch the encoder again") from None


def _pooling(config: Mapping[str, Any]) -> str | None:
    """Returns mean, cls or last; None for what only sentence-transformers itself can do."""
    modes = config.get("pooling_mode")
    if modes is None:
        modes = [mode for flag, mode in _POOLING_FLAGS.items() if config.get(flag)] or ["mean"]
    modes = [modes] if isinstance(modes, str) else list(modes)
    if len(modes) != 1 or config.get("include_prompt", True) is not True:
        return None
    return _POOLINGS.get(modes[0])


def _prompts(config: Any) -> dict[str, str]:
    prompts = config.get("prompts") if isinstance(config, dict) else None
    if not isinstance(prompts, dict):
        return {}
    default = prompts.get(config.get("default_prompt_name")) or ""
    document = prompts.get("document") or prompts.get("passage") or default
    return {"query_prefix": prompts.get("query") or default, "document_prefix": document}


def facts(weights: str, revision: str | None = None) -> dict[str, Any]:
    """Returns what a sentence-transformers model says of itself; nothing for other models.

    Args:
      weights: Folder or hub id.
      revision: Of the hub.

    Returns:
      kind (transformer, or pipeline if only sentence-transformers can run it), pooling,
      max_tokens (None: the tokenizer's), query_prefix and document_prefix, as far as known.

    Raises:
      InputError: If a file is damaged.
    """
    modules = read_json(weights, "modules.json", revision)
    if modules is None:
        return {}
    try:
        names = [each["type"].rpartition(".")[2] for each in modules]
        paths = [each["path"] for each in modules]
    except (TypeError, KeyError, AttributeError):
        raise InputError(f"{weights}: modules.json is not one of sentence-transformers") from None
    found = _prompts(read_json(weights, "config_sentence_transformers.json", revision))
    bert = read_json(weights, "sentence_bert_config.json", revision) or {}
    pooling = None
    if names[:2] == list(_SENTENCE_MODULES[:2]) and not paths[0]:
        pooling = _pooling(read_json(weights, f"{paths[1]}/config.json", revision) or {})
    plain = names in ([*_SENTENCE_MODULES[:2]], [*_SENTENCE_MODULES]) and pooling is not None
    if not plain or bert.get("do_lower_case"):
        return {"kind": "pipeline", "pooling": " + ".join(names), "max_tokens": None} | found
    return {"pooling": pooling, "max_tokens": bert.get("max_seq_length")} | found


def fingerprint(names: Sequence[str], revision: str | None = None) -> str:
    """Returns the SHA-256 (hex) of the weight files of folders or hub ids, in order.

    The same for a folder and for the hub's cache, whatever they are called. PEFT weights whose
    `adapter_config.json` names a base bring in the base's. Where the files cannot be found, the
    name stands for them.

    Args:
      names: Folders or hub ids.
      revision: Of the first.
    """
    found: dict[str, Any] = {}
    waiting = [(name, revision if index == 0 else None) for index, name in enumerate(names)]
    while waiting:
        name, of = waiting.pop(0)
        folder = folder_of(name, of)
        key = name if folder is None else str(folder.resolve())
        if key in found:
            continue
        found[key] = key if folder is None else _hashes(folder)
        adapter = None if folder is None else read_json(str(folder), "adapter_config.json")
        if isinstance(adapter, dict) and isinstance(adapter.get("base_model_name_or_path"), str):
            with contextlib.suppress(InputError):  # the base was moved, and is named otherwise
                base = adapter["base_model_name_or_path"]
                waiting += [(base, None)] if folder_of(base) is not None else []
    return sha256_json(list(found.values()))


def _hashes(folder: Path) -> list[str]:
    for pattern in _WEIGHTS:
        if files := sorted(folder.rglob(pattern)):
            return [sha256_file(file) for file in files]
    return []


def _causes(error: BaseException | None) -> list[BaseException]:
    chain = []
    while error is not None and error not in chain:
        chain.append(error)
        error = error.__cause__ or error.__context__
    return chain


def _told(error: BaseException) -> str:
    """Returns what a loading error means, in a line."""
    chain = _causes(error)
    names = {each.__name__ for one in chain for each in type(one).__mro__}
    texts = " ".join(str(one) for one in chain)
    if "GatedRepoError" in names:
        return "is gated on the hub; accept its licence there and log in, or name a folder"
    if "RevisionNotFoundError" in names:
        return "has no such revision on the hub; check --revision"
    if "RepositoryNotFoundError" in names or "HFValidationError" in names:
        return "no preset, no folder, and no model of the hub; check --encoder"
    if names & {"LocalEntryNotFoundError", "OfflineModeIsEnabled", "ConnectionError"}:
        return (
            "is not on this machine, and the hub cannot be reached; fetch it where there is a "
            "network and name its folder with --weights"
        )
    if "trust_remote_code" in texts:
        return "needs code of its own from the hub, which is not run here; name another encoder"
    said = " ".join(str(error).split())
    return f"cannot be loaded ({type(error).__name__}: {said[:200]})"


@contextlib.contextmanager
def explained(weights: str) -> Iterator[None]:
    """Loads quietly, and turns whatever goes wrong into one line about the encoder's files.

    Args:
      weights: What is loaded, for the line.

    Raises:
      InputError: For every error but a lack of memory.
    """
    import logging

    from transformers.utils import logging as chatter

    loggers = [logging.getLogger(name) for name in ("huggingface_hub", "httpx")]
    before, levels = chatter.get_verbosity(), [each.level for each in loggers]
    chatter.set_verbosity(chatter.CRITICAL)
    chatter.disable_progress_bar()
    for each in loggers:
        each.setLevel(logging.CRITICAL)
    try:
        yield
    except (InputError, MemoryError):
        raise
    except Exception as error:
        if "OutOfMemoryError" in type(error).__name__:
            raise MemoryError(f"{weights}: does not fit into the device's memory") from None
        raise InputError(f"{weights}: {_told(error)}") from error
    finally:
        chatter.set_verbosity(before)
        for each, level in zip(loggers, levels, strict=True):
            each.setLevel(level)
