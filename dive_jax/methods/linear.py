"""The references: all coordinates, and the first ones."""

from dive_jax.artefact import Artefact
from dive_jax.methods.protocol import Compressor, Fitted, Fitting, Material
from dive_jax.options import AdapterOptions
from dive_jax.types import InputError


def frozen(material: Material, options: AdapterOptions, fitting: Fitting) -> Fitted:
    """Keeps the full vectors, normalised."""
    artefact = Artefact("prefix", {}, material.meta("frozen", material.full_dim))
    return Fitted([Compressor(artefact)], {})


def truncate(material: Material, options: AdapterOptions, fitting: Fitting) -> Fitted:
    """Keeps the first `dim` coordinates, normalised again."""
    if options.dim > material.full_dim:
        raise InputError(
            f"--dim: wanted at most the full width {material.full_dim}, got {options.dim}"
        )
    return Fitted([Compressor(Artefact("prefix", {}, material.meta("truncate", options.dim)))], {})
