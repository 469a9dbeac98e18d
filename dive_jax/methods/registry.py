"""Methods by name."""

import dataclasses
import functools
from typing import Any

from dive_jax.methods import (
    autoencoder,
    dive,
    dive_mlp,
    linear,
    matryoshka_adaptor,
    pca,
    search_adaptor,
    smec,
)
from dive_jax.methods.protocol import Fit, Fitted, Fitting, Material, Method
from dive_jax.options import AdapterOptions
from dive_jax.types import InputError


def _with(fit: Fit, **settings: Any) -> Fit:
    """Returns a fit under some settings of its own, whatever the options say of them."""

    def fixed(material: Material, options: AdapterOptions, fitting: Fitting) -> Fitted:
        return fit(material, dataclasses.replace(options, **settings), fitting)

    return fixed


def _dive(name: str, **settings: Any) -> Method:
    return Method(_with(functools.partial(dive.fit, name=name), **settings), seeded=True)


def _linear(name: str, **settings: Any) -> Method:
    return Method(_with(functools.partial(dive.fit_linear, name=name), **settings), seeded=True)


METHODS: dict[str, Method] = {
    "frozen": Method(linear.frozen, seeded=False),
    "truncate": Method(linear.truncate, seeded=False),
    "random_projection": Method(linear.random_projection, seeded=True),
    "pca": Method(pca.fit, seeded=False),
    "autoencoder": Method(autoencoder.fit, seeded=True),
    "matryoshka_adaptor": Method(_with(matryoshka_adaptor.fit, basis="given"), seeded=True),
    "search_adaptor": Method(_with(search_adaptor.fit, basis="given"), seeded=True),
    "smec": Method(smec.fit, seeded=True),
    "dive_mlp": Method(dive_mlp.fit, seeded=True),
    "dive": Method(dive.fit, seeded=True),
    "dive_principal": _dive("dive_principal", basis="principal"),
    "dive_batch": _dive("dive_batch", basis="principal", ranking="batch"),
    "dive_batch_linear": _linear("dive_batch_linear", basis="principal", ranking="batch"),
}
"""Every method, references first; the trained ones but the autoencoder need judgments."""

COMPARED = tuple(name for name in METHODS if name != "auto")
"""The methods of a comparison, unless they are named."""

MAIN = ("frozen", "truncate", "pca", "dive")
"""The methods of the main job, `python -m dive_jax.train`."""


def find(name: str) -> Method:
    """Returns a method by name.

    Raises:
      InputError: If there is none of that name; lists those there are.
    """
    if name not in METHODS:
        raise InputError(f"--method: wanted one of {', '.join(METHODS)}, got {name!r}")
    return METHODS[name]
