"""The offline encoder on disk, so that a question need not wait for it to be fitted again."""

import json
import os
import shutil
from pathlib import Path

import numpy as np

from dive_jax.encoders import lsa
from dive_jax.encoders.lsa import Lsa
from dive_jax.files import write_json
from dive_jax.types import InputError

_TERMS, _WEIGHTS, _COMPONENTS = "terms.json", "weights.npy", "components.npy"


def save(encoder: Lsa, folder: Path) -> None:
    """Writes a fitted encoder: terms, their document weights, components. No pickle.

    Args:
      encoder: What `lsa.fit` returned.
      folder: Made whole or not at all; one that is there stays.
    """
    aside = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
    try:
        aside.mkdir(parents=True)
        terms = encoder.vectorizer.get_feature_names_out().tolist()
        write_json(aside / _TERMS, {"seed": encoder.seed, "terms": terms})
        np.save(aside / _WEIGHTS, encoder.vectorizer.idf_)
        np.save(aside / _COMPONENTS, encoder.components)
        if not folder.exists():
            os.rename(aside, folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def load(folder: Path) -> Lsa:
    """Reads a fitted encoder; its components stay on disk until they are used.

    Args:
      folder: What `save` wrote.

    Returns:
      The encoder; it gives the same bits as the one saved.

    Raises:
      InputError: If a file is missing or damaged.
    """
    try:
        told = json.loads((folder / _TERMS).read_text(encoding="utf-8"))
        vectorizer = lsa.vectorizer(told["terms"])
        vectorizer.idf_ = np.load(folder / _WEIGHTS, allow_pickle=False)
        components = np.load(folder / _COMPONENTS, mmap_mode="r", allow_pickle=False)
        return Lsa(vectorizer, components, told["seed"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{folder}: not a saved encoder ({reason}); remove it") from error
