"""Methods by name."""

from dive_jax.methods import dive, linear, pca
from dive_jax.methods.protocol import Method
from dive_jax.types import InputError

METHODS: dict[str, Method] = {
    "frozen": Method(linear.frozen, seeded=False),
    "truncate": Method(linear.truncate, seeded=False),
    "pca": Method(pca.fit, seeded=False),
    "dive": Method(dive.fit, seeded=True),
}


def find(name: str) -> Method:
    """Returns a method by name.

    Raises:
      InputError: If there is none of that name; lists those there are.
    """
    if name not in METHODS:
        raise InputError(f"--method: wanted one of {', '.join(METHODS)}, got {name!r}")
    return METHODS[name]
