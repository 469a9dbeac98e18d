"""What an import costs: nothing heavy before it is used."""

import subprocess
import sys

import pytest

HEAVY = [
    "flax",
    "optax",
    "orbax",
    "absl",
    "faiss",
    "datasets",
    "transformers",
    "torch",
    "sklearn",
    "matplotlib",
    "rich",
]


def loaded(statement: str) -> set[str]:
    """Returns the top-level modules that a fresh process holds after a statement."""
    script = f"{statement}; import sys; print(*(name.split('.')[0] for name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.parametrize("module", ["dive_jax.losses", "dive_jax.operators"])
def test_public_functions_load_jax_and_nothing_heavy(module: str):
    assert loaded(f"import {module}") & set(HEAVY) == set()


def test_the_package_itself_loads_not_even_jax():
    assert loaded("import dive_jax") & {*HEAVY, "jax", "numpy"} == set()


@pytest.mark.parametrize("command", ["train", "evaluate", "compress", "prepare", "index", "search"])
def test_commands_load_no_jax_before_their_flags_are_parsed(command: str):
    assert loaded(f"import dive_jax.{command}") & ({*HEAVY, "jax"} - {"absl"}) == set()


def test_names_of_the_package_resolve_when_used():
    import dive_jax

    assert callable(dive_jax.fit)
    assert callable(dive_jax.load)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        dive_jax.nothing  # noqa: B018
