"""What the tests of compressing share."""

from pathlib import Path

import numpy as np
import pytest

from dive_jax.methods.protocol import Compressor
from tests.vector_files import CHUNK, VECTORS, write_adapter


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_adapter(tmp_path_factory.mktemp("adapter") / "one")


@pytest.fixture(scope="module")
def wanted(adapter: Path) -> np.ndarray:
    return Compressor.load(adapter).compress(VECTORS, chunk_rows=CHUNK)
