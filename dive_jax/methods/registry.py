"""Methods by name."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from dive_jax.methods import (
    auto,
    autoencoder,
    dive,
    dive_mlp,
    linear,
    matryoshka_adaptor,
    pca,
    projections,
    search_adaptor,
    smec,
)
from dive_jax.methods.protocol import Fit, Fitted, Fitting, Material, Method
from dive_jax.methods.tuning import FLAGS, held_kind, held_out, possible, tuned
from dive_jax.options import AdapterOptions
from dive_jax.types import InputError


def _with(fit: Fit, **settings: Any) -> Fit:
    """Returns a fit under some settings of its own, whatever the options say of them."""

    def fixed(material: Material, options: AdapterOptions, fitting: Fitting) -> Fitted:
        return fit(material, dataclasses.replace(options, **settings), fitting)

    return fixed


def _narrow(material: Material, options: AdapterOptions) -> None:
    options.check_dim(material.full_dim)


def _headed(material: Material, options: AdapterOptions) -> None:
    options.check_width(material.full_dim)


def _plain(fit: Fit, *, seeded: bool = False) -> Method:
    return Method(fit, seeded, check=_narrow)


def _trained(
    name: str,
    fit: Fit,
    *,
    tunes: tuple[str, ...] = (),
    stops: str = "off",
    width: Callable[[Material, AdapterOptions], None] = _narrow,
    **settings: Any,
) -> Method:
    """Returns a trained method that heeds some of the tuning options, and notes those it does not.

    Args:
      name: Of the method.
      fit: Trains it in one go.
      tunes: Which of `tuning.FLAGS` it heeds.
      stops: What --early_stopping=default means for it.
      width: Refuses an impossible width.
      **settings: Its own, whatever the options say of them.
    """

    def check(material: Material, options: AdapterOptions) -> None:
        width(material, options)
        if (kind := held_kind(possible(material, options, stops), tunes)) is not None:
            held_out(material, kind)

    return Method(_with(tuned(fit, name, tunes, stops), **settings), True, tunes, stops, check)


def _dive(name: str, fit: Any = dive.fit, *, stops: str = "off", **settings: Any) -> Method:
    named = functools.partial(fit, name=name)
    return _trained(name, named, tunes=FLAGS, stops=stops, width=_headed, **settings)


def _batch(name: str, fit: Any = dive.fit) -> Method:
    # How long to train differs tenfold between collections, and longer is better for queries of
    # documents that train, not for those of others.
    return _dive(name, fit, stops="both", basis="principal", ranking="batch")


def _projection(geometry: projections.Geometry) -> Method:
    fit = functools.partial(projections.fit, geometry=geometry, name=f"linear_{geometry}")

    def check(material: Material, options: AdapterOptions) -> None:
        _narrow(material, options)
        held_out(material, "validation")

    return Method(fit, seeded=True, check=check)


METHODS: dict[str, Method] = {
    "frozen": Method(linear.frozen, seeded=False),
    "truncate": _plain(linear.truncate),
    "random_projection": _plain(linear.random_projection, seeded=True),
    "pca": _plain(pca.fit),
    "autoencoder": _trained("autoencoder", autoencoder.fit, tunes=FLAGS[:1]),
    "matryoshka_adaptor": _trained("matryoshka_adaptor", matryoshka_adaptor.fit, basis="given"),
    "search_adaptor": _trained("search_adaptor", search_adaptor.fit, tunes=FLAGS, basis="given"),
    "smec": _trained("smec", smec.fit),
    "dive_mlp": _trained("dive_mlp", dive_mlp.fit, tunes=FLAGS[:1]),
    "dive": _dive("dive"),
    "dive_principal": _dive("dive_principal", basis="principal"),
    "dive_batch": _batch("dive_batch"),
    "dive_batch_linear": _batch("dive_batch_linear", dive.fit_linear),
    "linear_shared": _projection("shared"),
    "linear_dual": _projection("dual"),
    "linear_auto": _projection("auto"),
    "auto": Method(auto.fit, seeded=True, check=auto.check),
}
"""Every method, references first; the trained ones but the autoencoder need judgments."""

COMPARED = tuple(name for name in METHODS if name != auto.NAME and not name.startswith("linear_"))
"""The methods of a comparison unless others are named: those that give unit vectors."""

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
