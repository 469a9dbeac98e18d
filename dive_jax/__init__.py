"""Shrink frozen text embeddings with compiled JAX adapters.

Importing this package loads nothing heavy: `fit`, `load` and `Compressor` are resolved when used.
"""

import importlib
from typing import Any

__version__ = "0.1.0"

_LAZY = {
    "fit": "dive_jax.methods.fit",
    "load": "dive_jax.methods.protocol",
    "Compressor": "dive_jax.methods.protocol",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'dive_jax' has no attribute {name!r}")
