import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from jax.test_util import check_grads
from scipy.special import logsumexp

from dive_jax.losses import headwise_ntxent, pair_count
from dive_jax.numerics.vectors import unit
from tests import reference

RANDOM = np.random.default_rng(2027)
# Five samples of three heads are 15 rows: tiles of 4 leave a ragged last one, 64 is beyond all.
tiles = pytest.mark.parametrize("tile", [None, 4, 64], ids="tile={}".format)


def unit_heads(*shape):
    heads = RANDOM.normal(size=shape)
    return heads / np.linalg.norm(heads, axis=-1, keepdims=True)


HEADS = unit_heads(5, 3, 6)
MASK = np.array([True, False, True, True, False])
WEIGHTS = RANDOM.uniform(1, 2, (5, 3))


HEADS32 = jnp.asarray(HEADS, jnp.float32)
EVERY = jnp.ones(5, bool)


@functools.partial(jax.jit, static_argnames="tile")
def step(heads, tile, mask=EVERY, temperature=0.1, weights=WEIGHTS):
    """Rows of losses, and the gradient of their weighted sum."""
    return value_and_gradient(heads, mask, weights, temperature=temperature, tile=tile)


def value_and_gradient(heads, mask, weights, **settings):
    def rows(heads):
        return headwise_ntxent(heads, mask=mask, **settings)

    value, pull = jax.vjp(rows, heads)
    return value, pull(jnp.asarray(weights, value.dtype))[0]


@tiles
@pytest.mark.parametrize("temperature", [0.05, 1.0, 3.0])
def test_the_loss_is_the_reference(tile, temperature):
    for mask in (EVERY, jnp.asarray(MASK)):
        expected = reference.ntxent(HEADS, temperature, mask)
        with jax.enable_x64(True):
            got, _ = step(jnp.asarray(HEADS), tile, mask, temperature)
        assert got.dtype == jnp.float64
        np.testing.assert_allclose(got, expected, rtol=1e-11, atol=1e-13)
        narrow, _ = step(HEADS32, tile, mask, temperature)
        np.testing.assert_allclose(narrow, expected, rtol=1e-5, atol=1e-5)


@tiles
def test_the_gradient_is_the_references(tile):
    expected = reference.ntxent_gradient(HEADS, 0.1, WEIGHTS)
    with jax.enable_x64(True):
        _, got = step(jnp.asarray(HEADS), tile)
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-11)
    _, narrow = step(HEADS32, tile)
    np.testing.assert_allclose(narrow, expected, rtol=1e-5, atol=1e-5)


@functools.partial(jax.jit, static_argnames=("temperature", "tile"))
def promised(heads, tile, mask, temperature, weights=WEIGHTS):
    """What `step` returns, where all heads are known to be unit vectors."""
    settings = {"temperature": temperature, "tile": tile, "unit": True}
    return value_and_gradient(heads, mask, weights, **settings)


@tiles
@pytest.mark.parametrize("temperature", [0.025, 0.05, 0.1, 3.0])
@pytest.mark.parametrize("mask", [EVERY, MASK, ~EVERY], ids=["every", "some", "none"])
def test_unit_heads_need_fewer_exponentials_for_the_same(tile, temperature, mask):
    mask = jnp.asarray(mask)
    value, gradient = promised(HEADS32, tile, mask, temperature)
    expected = reference.ntxent(HEADS, temperature, mask)
    np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-5)
    _, slow = step(HEADS32, tile, mask, temperature)
    np.testing.assert_allclose(gradient, slow, rtol=1e-5, atol=2e-6 / temperature)
    with jax.enable_x64(True):
        value, gradient = promised(jnp.asarray(HEADS), tile, mask, temperature)
        exact, slow = step(jnp.asarray(HEADS), tile, mask, temperature)
    np.testing.assert_allclose(value, exact, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(gradient, slow, rtol=1e-9, atol=1e-12)


def opposite(dtype):
    """Two samples whose heads are opposite unit vectors: the widest spread of logits."""
    heads = np.array([[[1.0, 0.0], [-1.0, 0.0]], [[1.0, 0.0], [1.0, 0.0]]])
    return jnp.asarray(heads, dtype)


@pytest.mark.parametrize("tile", [None, 4], ids="tile={}".format)
@pytest.mark.parametrize("temperature", [0.025, 0.02, 0.01])
def test_a_row_far_from_all_others_keeps_its_gradient(tile, temperature):
    """At 0.025 all its logits lie 80 under the bound; below that the promise is not used."""
    weights, mask = np.ones((2, 2)), jnp.ones(2, bool)
    value, gradient = promised(opposite(jnp.float32), tile, mask, temperature, weights)
    expected = reference.ntxent(np.asarray(opposite(float)), temperature, mask)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    expected = reference.ntxent_gradient(np.asarray(opposite(float)), temperature, weights)
    np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-4)


def exponentials_of_blocks(**settings):
    """Counts exponentials over the whole block in value and gradient, as compiled."""

    def loss(heads):
        return jnp.sum(headwise_ntxent(heads, **settings))

    heads = jax.ShapeDtypeStruct((16, 4, 8), jnp.float32)
    lowered = jax.jit(jax.value_and_grad(loss)).lower(heads)
    return sum("64x64" in line and "exponential" in line for line in lowered.as_text().splitlines())


def test_one_exponential_serves_value_and_gradient_of_unit_heads():
    assert exponentials_of_blocks(temperature=0.1, unit=True) == 1
    assert exponentials_of_blocks(temperature=0.1) == 3
    assert exponentials_of_blocks(temperature=0.01, unit=True) == 3


def test_unit_heads_differentiate_in_any_mode():
    with jax.enable_x64(True):
        settings = {"temperature": 0.3, "mask": jnp.asarray(MASK), "unit": True}
        rows = jax.jit(lambda heads: headwise_ntxent(heads, **settings))
        check_grads(rows, (jnp.asarray(HEADS),), order=2, modes=("fwd", "rev"))


@tiles
def test_no_mask_is_a_mask_of_true(tile):
    got = headwise_ntxent(HEADS32, temperature=0.1, tile=tile)
    np.testing.assert_allclose(got, step(HEADS32, tile)[0], rtol=1e-6)


def test_it_is_optaxs_cross_entropy_with_the_positives_as_labels():
    """Wanted shares: 1/(H-1) on each other head of the sample, over all others but oneself."""
    flat = HEADS.reshape(15, 6)
    off = ~np.eye(15, dtype=bool)
    logits = (flat @ flat.T / 0.1)[off].reshape(15, 14)
    same = np.repeat(np.arange(5), 3)
    labels = ((same[:, None] == same[None, :])[off] / 2).reshape(15, 14)
    expected = optax.losses.softmax_cross_entropy(
        jnp.asarray(logits, jnp.float32), jnp.asarray(labels, jnp.float32)
    )
    got = headwise_ntxent(jnp.asarray(HEADS), temperature=0.1)
    np.testing.assert_allclose(got.reshape(15), expected, rtol=1e-5)


def test_with_two_heads_it_is_simclrs():
    """Then the denominator holds the negatives plus the one positive, as optax's does."""
    heads = jnp.asarray(unit_heads(6, 2, 5), jnp.float32)
    labels = jnp.repeat(jnp.arange(6), 2)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        expected = jax.jit(optax.losses.ntxent)(heads.reshape(12, 5), labels, 0.2)
    got = jnp.mean(headwise_ntxent(heads, temperature=0.2))
    np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_the_denominator_is_scipys():
    """At right angles to nothing: heads of one sample equal, so each positive has cosine 1."""
    heads = np.repeat(unit_heads(4, 1, 5), 3, axis=1)
    cosines = np.repeat(heads[:, 0] @ heads[:, 0].T, 3, axis=1)
    for i in range(4):
        expected = logsumexp(np.delete(cosines[i], 3 * i) / 0.1) - 10
        got = headwise_ntxent(jnp.asarray(heads), temperature=0.1)[i]
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("tile", [None, 4], ids="tile={}".format)
def test_gradients_are_those_of_finite_differences(tile):
    modes = ["fwd", "rev"] if tile is None else ["rev"]
    with jax.enable_x64(True):
        mask = jnp.asarray(MASK)

        @jax.jit
        def rows(heads, temperature):
            return headwise_ntxent(heads, temperature=temperature, mask=mask, tile=tile)

        check_grads(rows, (jnp.asarray(HEADS), jnp.asarray(0.3)), order=2, modes=modes)


@tiles
def test_a_temperature_may_be_learnt_in_float32(tile):
    slope = jax.grad(lambda t: jnp.sum(headwise_ntxent(HEADS32, temperature=t, tile=tile)))(
        jnp.float32(0.3)
    )
    by = [np.sum(reference.ntxent(HEADS, t)) for t in (0.299, 0.301)]
    np.testing.assert_allclose(slope, (by[1] - by[0]) / 0.002, rtol=1e-4)


@tiles
def test_samples_heads_and_rotations(tile):
    expected, _ = step(HEADS32, tile)
    samples, heads = RANDOM.permutation(5), RANDOM.permutation(3)
    turn, _ = np.linalg.qr(RANDOM.normal(size=(6, 6)))
    moved, _ = step(HEADS32[samples][:, heads], tile)
    np.testing.assert_allclose(moved, expected[samples][:, heads], atol=1e-5)
    for turned in (HEADS @ turn, -HEADS):
        got, _ = step(jnp.asarray(turned, jnp.float32), tile)
        np.testing.assert_allclose(got, expected, atol=1e-5)


def test_longer_heads_are_a_lower_temperature():
    longer = headwise_ntxent(2 * HEADS32, temperature=0.4)
    np.testing.assert_allclose(longer, headwise_ntxent(HEADS32, temperature=0.1), rtol=1e-5)


@given(
    hnp.arrays(np.float32, (5, 3, 4), elements=st.floats(-3, 3, width=32)),
    hnp.arrays(np.bool_, 5),
    st.sampled_from([0.02, 0.1, 1.0]),
)
@settings(max_examples=40, deadline=None)
def test_tiles_change_nothing(raw, mask, temperature):
    heads, mask = unit(jnp.asarray(raw)), jnp.asarray(mask)
    value, gradient = step(heads, None, mask, temperature)
    tiled, tiled_gradient = step(heads, 4, mask, temperature)
    assert np.isfinite(value).all()
    assert np.isfinite(gradient).all()
    np.testing.assert_allclose(tiled, value, rtol=1e-6, atol=1e-5)
    np.testing.assert_allclose(tiled_gradient, gradient, rtol=1e-5, atol=2e-6 / temperature)
    assert np.all(np.asarray(value) >= -1e-5)  # each term is minus the log of a share


@pytest.mark.parametrize("tile", [1, 2, 5, 7, 14, 15, 16])
def test_any_tile_agrees(tile):
    mask = jnp.asarray(MASK)
    value, gradient = step(HEADS32, None, mask)
    tiled, tiled_gradient = step(HEADS32, tile, mask)
    np.testing.assert_allclose(tiled, value, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(tiled_gradient, gradient, rtol=1e-5, atol=1e-5)


@tiles
@pytest.mark.parametrize("filler", [0.0, 5.0, np.nan, np.inf])
def test_a_padded_batch_is_the_unpadded_one(tile, filler):
    padded = jnp.asarray(np.where(MASK[:, None, None], HEADS, filler), jnp.float32)
    rows, gradient = step(padded, tile, jnp.asarray(MASK), 1.0)
    expected, slope = step(HEADS32[MASK], tile, jnp.ones(3, bool), 1.0, WEIGHTS[MASK])
    np.testing.assert_allclose(rows[MASK], expected, rtol=1e-6)
    np.testing.assert_allclose(gradient[MASK], slope, atol=1e-6)
    assert not np.any(rows[~MASK])
    assert not np.any(gradient[~MASK])


@tiles
@pytest.mark.parametrize("valid", [0, 1, 2])
def test_few_valid_samples_are_finite(tile, valid):
    mask = jnp.arange(5) < valid
    value, gradient = step(HEADS32, tile, mask)
    np.testing.assert_allclose(value, reference.ntxent(HEADS, 0.1, mask), rtol=1e-5, atol=1e-5)
    assert np.isfinite(gradient).all()
    assert np.any(gradient) == (valid > 0)


@tiles
def test_one_head_has_nothing_to_agree_with(tile):
    value, gradient = step(HEADS32[:, :1], tile, weights=WEIGHTS[:, :1])
    assert value.shape == (5, 1)
    assert not np.any(value)
    assert not np.any(gradient)


@tiles
@pytest.mark.parametrize("heads", [2, 3])
def test_a_batch_of_one_contrasts_its_own_heads(tile, heads):
    value, gradient = step(HEADS32[:1, :heads], tile, EVERY[:1], weights=WEIGHTS[:1, :heads])
    expected = reference.ntxent(HEADS[:1, :heads], 0.1)
    assert np.any(expected) == (heads > 2)  # of two heads, each is the other's whole denominator
    np.testing.assert_allclose(value, expected, atol=1e-5)
    assert np.isfinite(gradient).all()


def test_an_empty_batch_is_empty():
    assert headwise_ntxent(HEADS32[:0], temperature=0.1).shape == (0, 3)


DEGENERATE = {
    "zeros": np.zeros((5, 3, 6)),
    "equal": np.broadcast_to(HEADS[:1, :1], (5, 3, 6)),
    "one zero row": np.where(np.arange(5)[:, None, None] == 2, 0, HEADS),
    "opposite": HEADS[:1, :1] * np.sign(RANDOM.normal(size=(5, 3, 1))),
}


@tiles
@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_heads_are_finite(tile, name):
    heads = DEGENERATE[name]
    value, gradient = step(jnp.asarray(heads, jnp.float32), tile)
    np.testing.assert_allclose(value, reference.ntxent(heads, 0.1), rtol=1e-5, atol=1e-5)
    slope = reference.ntxent_gradient(heads, 0.1, WEIGHTS)
    np.testing.assert_allclose(gradient, slope, rtol=1e-5, atol=1e-4)
    value, gradient = step(jnp.asarray(heads, jnp.float32), tile, temperature=1e-4)
    assert np.isfinite(value).all()
    assert np.isfinite(gradient).all()


@tiles
def test_zero_heads_pass_through_unit_without_a_gradient(tile):
    def loss(raw):
        return jnp.sum(headwise_ntxent(unit(raw), temperature=0.1, tile=tile))

    gradient = jax.jit(jax.grad(loss))(HEADS32.at[1, 2].set(0.0))
    assert np.isfinite(gradient).all()
    assert not np.any(gradient[1, 2])
    assert np.any(gradient[1, 1])


@tiles
def test_what_is_not_finite_is_not_hidden(tile):
    broken = HEADS32.at[0, 0, 0].set(jnp.nan)
    assert np.isnan(step(broken, tile)[0]).any()
    assert np.isnan(promised(broken, tile, EVERY, 0.1)[0]).any()


@tiles
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_low_precision_is_widened_before_the_soft_max(tile, dtype):
    heads = HEADS32.astype(dtype)
    got, gradient = step(heads, tile)
    assert got.dtype == jnp.float32
    assert gradient.dtype == dtype
    expected = reference.ntxent(np.asarray(heads, np.float32), 0.1)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
    exact = reference.ntxent_gradient(np.asarray(heads, np.float32), 0.1, WEIGHTS)
    np.testing.assert_allclose(np.asarray(gradient, np.float32), exact, rtol=4e-3, atol=1e-5)


@tiles
def test_it_can_be_mapped_scanned_and_compiled(tile):
    stacked = jnp.asarray(unit_heads(3, 5, 3, 6), jnp.float32)
    masks = jnp.asarray(np.stack([MASK, ~MASK, np.ones(5, bool)]))
    temperatures = jnp.array([0.1, 0.2, 0.5])
    alone = [step(z, tile, m, t) for z, m, t in zip(stacked, masks, temperatures, strict=True)]

    def one(z, mask, temperature):
        return step(z, tile, mask, temperature)

    mapped = jax.vmap(one)(stacked, masks, temperatures)
    _, scanned = jax.lax.scan(
        lambda carry, each: (carry, one(*each)), 0, (stacked, masks, temperatures)
    )
    shared = jax.vmap(lambda z: one(z, masks[0], 0.1))(stacked)
    for values, gradients in (mapped, scanned):
        for each, (value, gradient) in enumerate(alone):
            np.testing.assert_allclose(values[each], value, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(gradients[each], gradient, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(shared[0][0], alone[0][0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(shared[1][0], alone[0][1], rtol=1e-5, atol=1e-5)


def test_a_large_batch_agrees_in_tiles():
    heads = jnp.asarray(unit_heads(64, 4, 16), jnp.float32)
    mask, weights = jnp.arange(64) < 61, jnp.full((64, 4), 1 / 256)
    value, gradient = step(heads, None, mask, 0.05, weights)
    for tile in (50, 64):
        tiled, tiled_gradient = step(heads, tile, mask, 0.05, weights)
        np.testing.assert_allclose(tiled, value, rtol=1e-6)
        np.testing.assert_allclose(tiled_gradient, gradient, atol=1e-6)


def test_tiles_bound_the_memory_of_value_and_gradient():
    heads = jax.ShapeDtypeStruct((256, 4, 16), jnp.float32)
    mask, weights = jnp.ones(256, bool), jnp.ones((256, 4))

    def temporary(tile):
        lowered = step.lower(heads, tile, mask, 0.1, weights)
        return lowered.compile().memory_analysis().temp_size_in_bytes

    block = 1024 * 1024 * 4
    assert temporary(None) >= block
    assert temporary(32) < block / 4


@pytest.mark.parametrize(("batch", "heads"), [(1, 1), (1, 4), (6, 1), (5, 3), (128, 4)])
def test_pairs_are_counted(batch, heads):
    sample = np.repeat(np.arange(batch), heads)
    same = sample[:, None] == sample[None, :]
    positives = np.count_nonzero(same & ~np.eye(len(sample), dtype=bool))
    assert pair_count(batch, heads) == positives + np.count_nonzero(~same)
    assert pair_count(128, 4) == 261_632


@pytest.mark.parametrize("temperature", [0.0, -0.1, float("nan"), float("inf")])
def test_temperatures_outside_the_range_are_refused(temperature):
    with pytest.raises(ValueError, match="temperature: wanted 0 < temperature and finite, got"):
        jax.jit(lambda z: headwise_ntxent(z, temperature=temperature))(HEADS32)


@pytest.mark.parametrize("tile", [0, -3])
def test_tiles_of_no_rows_are_refused(tile):
    with pytest.raises(ValueError, match=f"tile: wanted at least 1 row, got {tile}"):
        headwise_ntxent(HEADS32, temperature=0.1, tile=tile)


def test_pairs_of_nothing_are_refused():
    with pytest.raises(ValueError, match="got 0 and 4"):
        pair_count(0, 4)


@pytest.mark.errors
def test_wrong_arrays_are_refused():
    with pytest.raises(ValueError, match=r"heads: wanted shape \[batch heads dim\], got \[5, 3\]"):
        jax.jit(lambda z: headwise_ntxent(z, temperature=0.1))(jnp.ones((5, 3)))
    with pytest.raises(ValueError, match=r"heads: wanted floats, got int32"):
        headwise_ntxent(jnp.ones((5, 3, 2), jnp.int32), temperature=0.1)
    with pytest.raises(ValueError, match=r"mask: wanted bool \[5\], got bool \[15\]"):
        headwise_ntxent(HEADS32, temperature=0.1, mask=jnp.ones(15, bool))
    with pytest.raises(ValueError, match=r"mask: wanted bool \[5\], got int32 \[5\]"):
        headwise_ntxent(HEADS32, temperature=0.1, mask=jnp.ones(5, jnp.int32))
