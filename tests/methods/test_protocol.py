from typing import Any

import numpy as np
import pytest

from dive_jax.artefact import Artefact, apply
from dive_jax.methods.protocol import Compressor
from dive_jax.methods.registry import MAIN, METHODS, find
from dive_jax.types import InputError

RNG = np.random.default_rng(0)
META = {
    "format_version": 1,
    "method": "toy",
    "sides": "both",
    "dim": 3,
    "full_dim": 8,
    "normalized": True,
    "encoder": "toy",
    "fingerprint": "0" * 64,
}


def array(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


RESIDUAL = {
    "hidden_weight": array(5, 8),
    "hidden_bias": array(5),
    "out_weight": array(3, 5),
    "out_bias": array(3),
}
MLP = {
    "weight_0": array(5, 8),
    "bias_0": array(5),
    "weight_1": array(3, 5),
    "bias_1": array(3),
}


def stage(t: int, width: int, hidden: int, kept: list[int]) -> dict[str, np.ndarray]:
    return {
        f"hidden_weight_{t}": array(hidden, width),
        f"hidden_bias_{t}": array(hidden),
        f"out_weight_{t}": array(width, hidden),
        f"out_bias_{t}": array(width),
        f"kept_{t}": np.array(kept, np.int32),
    }


FORMS = {
    "prefix": ("prefix", {}),
    "linear": ("linear", {"weight": array(3, 8)}),
    "linear with offset": ("linear", {"weight": array(3, 8), "offset": array(3)}),
    "residual": ("residual", RESIDUAL),
    "residual on a basis": ("residual", RESIDUAL | {"base": array(3, 8)}),
    "mlp": ("mlp", MLP),
    "chain": ("chain", stage(0, 8, 6, [0, 2, 3, 7]) | stage(1, 4, 2, [1, 2, 3])),
}
VECTORS = array(21, 8) * 5


def compressor(form: str, **changes: Any) -> Compressor:
    kind, arrays = FORMS[form]
    return Compressor(Artefact(kind, arrays, META | changes))


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("normalized", [True, False])
def test_equals_the_numpy_reader(form: str, normalized: bool):
    made = compressor(form, normalized=normalized)
    wanted = apply(made.artefact, unit(VECTORS))
    np.testing.assert_allclose(made.compress(VECTORS), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("form", FORMS)
def test_rows_are_unit_and_depend_on_themselves_alone(form: str):
    made = compressor(form)
    together = made.compress(VECTORS)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-6)
    alone = np.concatenate([made.compress(VECTORS[i : i + 1]) for i in range(len(VECTORS))])
    np.testing.assert_allclose(together, alone, atol=1e-6)
    np.testing.assert_allclose(made.compress(VECTORS, chunk_rows=4), together, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("order", ["C", "F"])
def test_any_float_type_and_order(dtype: type, order: str):
    vectors = np.asarray(VECTORS, dtype, order=order)
    wanted = compressor("residual").compress(vectors.astype(np.float32))
    np.testing.assert_allclose(compressor("residual").compress(vectors), wanted, atol=1e-6)


@pytest.mark.parametrize("scale", [1e-30, 1e-6, 1e6, 1e30])
def test_length_of_the_input_does_not_matter(scale: float):
    wanted = compressor("residual").compress(VECTORS)
    got = compressor("residual").compress((VECTORS * scale).astype(np.float32))
    np.testing.assert_allclose(got, wanted, atol=1e-6)


def test_no_rows_give_no_rows():
    assert compressor("residual").compress(VECTORS[:0]).shape == (0, 3)


def changed(row: int, value: float) -> np.ndarray:
    vectors = VECTORS.astype(np.float64)
    vectors[row] = value
    return vectors


@pytest.mark.parametrize(
    ("vectors", "side", "message"),
    [
        (changed(7, 0.0), "document", "row 7 is all zeros"),
        (changed(7, np.nan), "document", "row 7 has a value that is not finite"),
        (changed(7, np.inf), "document", "row 7 has a value that is not finite"),
        (changed(7, 1e300), "document", "row 7 has a value that is not finite"),
        (VECTORS[:, :5], "document", r"wanted \[rows, 8\], got \[21, 5\]"),
        (VECTORS[0], "document", r"wanted \[rows, 8\], got \[8\]"),
        ([[1.0] * 8], "document", r"wanted \[rows, 8\], got list"),
        (VECTORS.astype(int), "document", "wanted floating-point numbers, got int64"),
        (VECTORS, "passage", "wanted query or document, got 'passage'"),
    ],
)
def test_bad_vectors(vectors: Any, side: str, message: str):
    with pytest.raises(InputError, match=message):
        compressor("prefix").compress(vectors, side=side, chunk_rows=4)


def test_an_adapter_of_one_side_refuses_the_other():
    with pytest.raises(InputError, match="maps the query side only, not the document side"):
        compressor("prefix", sides="query").compress(VECTORS)


def test_unknown_methods_are_named():
    with pytest.raises(InputError, match="wanted one of frozen, truncate, random_projection, pca"):
        find("magic")
    assert set(MAIN) <= set(METHODS)
