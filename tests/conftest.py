"""Strict settings for every test, and what several test folders share."""

import importlib.util
import os
import tempfile
from pathlib import Path

# Before anything imports jax. Matplotlib must not look for a screen.
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", str(Path(tempfile.gettempdir()) / "dive_jax_test_compilations")
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "0")

import hypothesis
import pytest

# No example fails for its time. CI tries the same ones every time; at a desk each run new ones.
hypothesis.settings.register_profile("desk", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "desk")


def pytest_configure(config: pytest.Config) -> None:
    """Types and shapes of every annotated call are checked, unless error wording is under test."""
    if "errors" not in str(config.getoption("-m")).replace("not errors", ""):
        from jaxtyping import install_import_hook

        import tests.checker  # the hook finds it by name, once it is loaded

        assert tests.checker
        install_import_hook("dive_jax", "tests.checker.check")
    import jax

    jax.config.update("jax_numpy_dtype_promotion", "strict")
    jax.config.update("jax_numpy_rank_promotion", "raise")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of another environment skip, however they were chosen."""
    for item in items:
        for package in ("torch", "llm2vec"):
            if item.get_closest_marker(package) and importlib.util.find_spec(package) is None:
                item.add_marker(pytest.mark.skip(reason=f"needs {package}, which is not installed"))


@pytest.fixture(scope="session")
def data_root() -> Path:
    """Folder of the real collections; skips where there is none."""
    if not (folder := os.environ.get("DIVE_JAX_DATA")):
        pytest.skip("DIVE_JAX_DATA is unset: no real collections at hand")
    return Path(folder)
