"""Every form as dense layers computes what the form computes."""

import numpy as np
import pytest

from dive_jax.artefact import Artefact, apply
from dive_jax.interop.layers import layers, sides
from tests.interop.cases import DIM, FULL, LINEAR, artefacts, meta, normal, sides_of

CASES = artefacts()


def through(artefact: Artefact, rows: np.ndarray, side: str) -> np.ndarray:
    """The layers one after another, in float64."""
    for layer in layers(artefact, side):
        rows = rows @ layer.weight.astype(np.float64).T
        rows = rows if layer.bias is None else rows + layer.bias
        rows = np.maximum(rows, 0) if layer.relu else rows
    if artefact.meta["normalized"]:
        rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


@pytest.mark.parametrize("name", CASES)
def test_layers_compute_the_form(name: str):
    rows = normal(1, 5, FULL)
    for side in sides_of(CASES[name]):
        got = through(CASES[name], rows, side)
        np.testing.assert_allclose(got, apply(CASES[name], rows, side), atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_linear_adapters_are_one_layer(name: str):
    assert (len(layers(CASES[name])) == 1) == (name in LINEAR)
    assert not layers(CASES[name])[-1].relu


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_what_a_block_adds_to_passes_its_relu_exactly(size: float):
    """With a block of zeros, the first coordinates come out bit for bit."""
    nothing = {
        "hidden_weight": np.zeros((3, FULL), np.float32),
        "hidden_bias": np.zeros(3, np.float32),
        "out_weight": np.zeros((DIM, 3), np.float32),
        "out_bias": np.zeros(DIM, np.float32),
    }
    rows = normal(2, 5, FULL, scale=size)
    got = through(Artefact("residual", nothing, meta(normalized=False)), rows, "document")
    np.testing.assert_array_equal(got.astype(np.float32), rows[:, :DIM])


@pytest.mark.parametrize(
    ("only", "wanted"),
    [("both", ["query", "document"]), ("query", ["query"]), ("document", ["document"])],
)
def test_a_sided_adapter_has_a_map_for_each_side_that_it_is_for(only: str, wanted: list[str]):
    artefact = Artefact("sided", CASES["sided"].arrays, meta(sides=only))
    assert list(sides(artefact)) == wanted
