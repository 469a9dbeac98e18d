import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from jax.extend.core import jaxprs_in_params
from jax.test_util import check_grads
from sklearn.metrics.pairwise import cosine_similarity

from dive_jax.losses import (
    neighbour_distillation,
    pair_distillation,
    prefix_cosines,
    prefix_similarities,
    rank_loss,
)
from dive_jax.numerics.vectors import unit
from tests import reference

RANDOM = np.random.default_rng(2027)
QUERIES, DOCUMENTS = RANDOM.normal(size=(4, 12)), RANDOM.normal(size=(7, 12))
FROZEN = RANDOM.normal(size=(7, 9))
NEIGHBOURS, NEAR = RANDOM.normal(size=(7, 3, 12)), RANDOM.uniform(-1, 1, (7, 3))
MASK = np.array([True, False, True, True, False, True, True])
# Two neighbours of three, and none for two rows.
NEAR_MASK = (np.arange(3) != RANDOM.integers(0, 3, 7)[:, None]) & (np.arange(7) % 4 != 2)[:, None]
WIDTHS = (2, 4, 7, 12)
WEIGHTS = RANDOM.uniform(1, 2, (4, 7))
sixteenths = hnp.arrays(np.int32, (3, 12), elements=st.integers(-64, 64))
similarities = jax.jit(functools.partial(prefix_similarities, widths=WIDTHS))


def narrow(*arrays):
    return [jnp.asarray(x, jnp.float32) for x in arrays]


def graded(function):
    """What a function of one argument returns, and the gradient of its weighted sum."""

    def both(x, weights=WEIGHTS):
        value, pull = jax.vjp(function, x)
        return value, pull(jnp.asarray(weights, value.dtype)[tuple(map(slice, value.shape))])[0]

    return jax.jit(both)


def pairs(frozen, mask=None, widths=WIDTHS):
    return graded(lambda x: pair_distillation(x, frozen, widths=widths, mask=mask))


def near(neighbours, frozen, mask=None, widths=WIDTHS):
    return graded(lambda x: neighbour_distillation(x, neighbours, frozen, widths=widths, mask=mask))


def test_similarities_are_the_reference_and_sklearns():
    expected = reference.prefix_similarities(QUERIES, DOCUMENTS, WIDTHS)
    with jax.enable_x64(True):
        got = prefix_similarities(jnp.asarray(QUERIES), jnp.asarray(DOCUMENTS), widths=WIDTHS)
        among = prefix_cosines(jnp.asarray(DOCUMENTS), widths=list(WIDTHS))
    assert got.dtype == jnp.float64
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-14)
    expected_among = reference.prefix_similarities(DOCUMENTS, DOCUMENTS, WIDTHS)
    np.testing.assert_allclose(among, expected_among, rtol=1e-12, atol=1e-14)
    for width, cosines in zip(WIDTHS, got, strict=True):
        other = cosine_similarity(QUERIES[:, :width], DOCUMENTS[:, :width])
        np.testing.assert_allclose(cosines, other, rtol=1e-12, atol=1e-14)
    small = prefix_similarities(*narrow(QUERIES, DOCUMENTS), widths=WIDTHS)
    np.testing.assert_allclose(small, expected, atol=1e-6)


@pytest.mark.parametrize("width", [1, 5, 12])
def test_one_width_alone_is_the_plain_cosine_of_the_prefix(width):
    queries, documents = narrow(QUERIES, DOCUMENTS)
    got, pull = jax.vjp(
        lambda q, d: prefix_similarities(q, d, widths=(width,))[0], *narrow(QUERIES, DOCUMENTS)
    )
    plain, plain_pull = jax.vjp(
        lambda q, d: unit(q[:, :width]) @ unit(d[:, :width]).T, queries, documents
    )
    np.testing.assert_allclose(got, plain, atol=1e-6)
    weights = jnp.asarray(WEIGHTS, jnp.float32)
    for slope, expected in zip(pull(weights), plain_pull(weights), strict=True):
        np.testing.assert_allclose(slope, expected, rtol=1e-5, atol=1e-6)
    for row in range(4):
        optaxs = optax.losses.cosine_similarity(queries[row, :width], documents[row, :width])
        np.testing.assert_allclose(got[row, row], optaxs, atol=1e-6)
    among = prefix_similarities(queries, documents, widths=sorted({width, 3, 8}))
    place = sorted({width, 3, 8}).index(width)
    np.testing.assert_allclose(got, among[place], atol=1e-6)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_the_rank_loss_on_one_width_is_that_on_the_plain_cosine(reduction):
    gains = jnp.asarray(RANDOM.integers(0, 3, (4, 7)))

    def nested(q, d):
        by_width = prefix_similarities(q, d, widths=(5,))
        ranked = functools.partial(rank_loss, gains=gains, reduction=reduction)
        return jnp.sum(jax.vmap(ranked)(by_width))

    def plain(q, d):
        return rank_loss(unit(q[:, :5]) @ unit(d[:, :5]).T, gains, reduction=reduction)

    got, slopes = jax.value_and_grad(nested, (0, 1))(*narrow(QUERIES, DOCUMENTS))
    expected, wanted = jax.value_and_grad(plain, (0, 1))(*narrow(QUERIES, DOCUMENTS))
    np.testing.assert_allclose(got, expected, rtol=1e-6)
    for slope, other in zip(slopes, wanted, strict=True):
        np.testing.assert_allclose(slope, other, rtol=1e-4, atol=1e-6)


def test_all_widths_cost_one_product_of_the_greatest():
    def contracted(jaxpr):
        inner = [each for eqn in jaxpr.eqns for each in jaxprs_in_params(eqn.params)]
        own = [
            eqn.invars[0].aval.shape[eqn.params["dimension_numbers"][0][0][0]]
            for eqn in jaxpr.eqns
            if eqn.primitive.name == "dot_general"
        ]
        return sum(own) + sum(map(contracted, inner))

    make = functools.partial(prefix_similarities, widths=WIDTHS)
    assert contracted(jax.make_jaxpr(make)(*narrow(QUERIES, DOCUMENTS)).jaxpr) == WIDTHS[-1]


@given(sixteenths, sixteenths)
@settings(max_examples=40, deadline=None)
def test_scales_permutations_and_turns_within_a_block(queries, documents):
    """Cosines do not see the length; those of a prefix do not see a turn between its widths."""
    queries, documents = queries / 16, documents / 16
    got = np.asarray(similarities(*narrow(queries, documents)))
    assert np.all(np.abs(got) <= 1 + 1e-6)
    swap = [1, 0, 3, 2, 6, 5, 4, 11, 8, 9, 10, 7]
    for other in (
        similarities(*narrow(queries * 8, documents / 2)),
        similarities(*narrow(queries[:, swap], documents[:, swap])),
        np.asarray(similarities(*narrow(queries[::-1], documents[::-1])))[:, ::-1, ::-1],
        np.swapaxes(similarities(*narrow(documents, queries)), 1, 2),
    ):
        np.testing.assert_allclose(other, got, atol=1e-6)


@pytest.mark.parametrize("length", [0.0, 1e-30, 1e-13])
def test_a_prefix_without_a_direction_has_value_and_gradient_0(length):
    queries = QUERIES.copy()
    queries[1, :4] = 0
    queries[1, 0] = length
    queries[2] = 0
    queries[2, 3] = length

    def rows(q, d):
        return prefix_similarities(q, d, widths=WIDTHS)

    value, pull = jax.vjp(rows, *narrow(queries, DOCUMENTS))
    assert not np.any(value[:2, 1:3])
    assert not np.any(value[:, 2])
    assert np.all(np.abs(value[2:, 1]) > 0)
    np.testing.assert_allclose(
        value, reference.prefix_similarities(queries, DOCUMENTS, WIDTHS), atol=1e-6
    )
    by_query, by_document = pull(jnp.ones_like(value))
    assert np.isfinite(by_query).all()
    assert np.abs(by_query).max() < 100
    assert not np.any(by_query[2])
    short = jnp.zeros_like(value).at[:2, 1].set(1.0).at[:, 2].set(1.0)
    assert not any(np.any(slope) for slope in pull(short))
    assert np.isfinite(by_document).all()


@pytest.mark.parametrize("scale", [1e-11, 1e-6, 1e15, 1e30])
def test_very_short_and_very_long_vectors_have_cosines(scale):
    got = graded(lambda q: prefix_similarities(q, *narrow(DOCUMENTS), widths=WIDTHS)[2])(
        *narrow(QUERIES * scale)
    )
    expected = reference.prefix_similarities(QUERIES, DOCUMENTS, WIDTHS)[2]
    np.testing.assert_allclose(got[0], expected, atol=1e-6)
    assert np.isfinite(got[1]).all()


def test_a_prefix_that_vanishes_beside_its_row_stays_finite():
    queries = QUERIES.copy()
    queries[:, :4] = np.array([1e-14, 1e-5, 0.1, 1.0])[:, None]
    queries[:, 4:] *= 1e10
    value, pull = jax.vjp(lambda q: similarities(q, *narrow(DOCUMENTS)), *narrow(queries))
    assert np.isfinite(pull(jnp.ones_like(value))[0]).all()
    np.testing.assert_array_equal(np.any(np.asarray(value[1]), axis=1), [False, False, True, True])
    expected = reference.prefix_similarities(queries[2:], DOCUMENTS, WIDTHS)
    np.testing.assert_allclose(value[:, 2:], expected, atol=1e-6)


def test_pair_distillation_is_the_reference():
    for mask in (None, MASK):
        given_ = None if mask is None else jnp.asarray(mask)
        expected = reference.pair_distillation(DOCUMENTS, FROZEN, WIDTHS, mask)
        with jax.enable_x64(True):
            got, _ = pairs(jnp.asarray(FROZEN), given_)(jnp.asarray(DOCUMENTS))
        assert got.dtype == jnp.float64
        np.testing.assert_allclose(got, expected, rtol=1e-11, atol=1e-13)
        small, _ = pairs(*narrow(FROZEN), given_)(*narrow(DOCUMENTS))
        np.testing.assert_allclose(small, expected, atol=1e-6)


def test_neighbour_distillation_is_the_reference():
    for mask in (None, NEAR_MASK):
        given_ = None if mask is None else jnp.asarray(mask)
        expected = reference.neighbour_distillation(DOCUMENTS, NEIGHBOURS, NEAR, WIDTHS, mask)
        with jax.enable_x64(True):
            got, _ = near(jnp.asarray(NEIGHBOURS), jnp.asarray(NEAR), given_)(
                jnp.asarray(DOCUMENTS)
            )
        assert got.dtype == jnp.float64
        np.testing.assert_allclose(got, expected, rtol=1e-11, atol=1e-13)
        small, _ = near(*narrow(NEIGHBOURS, NEAR), given_)(*narrow(DOCUMENTS))
        np.testing.assert_allclose(small, expected, atol=1e-6)


def test_with_all_other_rows_as_neighbours_it_is_the_pair_distillation():
    others = [[j for j in range(7) if j != i] for i in range(7)]
    frozen = cosine_similarity(FROZEN)
    chosen = np.stack([frozen[i, each] for i, each in enumerate(others)])
    documents, full = narrow(DOCUMENTS, FROZEN)

    def by_neighbours(x):
        return neighbour_distillation(x, x[jnp.asarray(others)], *narrow(chosen), widths=WIDTHS)

    got, slope = graded(by_neighbours)(documents)
    expected, wanted = pairs(full)(documents)
    np.testing.assert_allclose(got, expected, atol=1e-6)
    np.testing.assert_allclose(slope, wanted, rtol=1e-4, atol=1e-6)


def test_an_adapter_that_changes_nothing_is_at_rest_on_the_full_width():
    """Rounding differs between the two sides; its sign must not push every coordinate."""
    alike = RANDOM.normal(size=(60, 768)) + 3 * RANDOM.normal(size=(1, 768))
    rows = unit(*narrow(alike))
    place = jnp.asarray(RANDOM.integers(0, 60, (60, 5)))
    cosines = jnp.sum(rows[:, None, :] * rows[place], axis=2)

    @jax.jit
    def at(x, weights, rows, cosines):
        def losses(x):
            by_pair = pair_distillation(x, rows, widths=(256, 512, 768))
            by_neighbour = neighbour_distillation(x, x[place], cosines, widths=(256, 512, 768))
            return jnp.sum(by_pair, axis=1), jnp.sum(by_neighbour, axis=1)

        value, pull = jax.vjp(losses, x)
        return value, [pull(each)[0] for each in ((weights, 0 * weights), (0 * weights, weights))]

    for width, at_rest in ((2, True), (1, False)):
        weights = jnp.zeros(3).at[width].set(1.0)
        values, slopes = jax.device_get(at(rows, weights, rows, cosines))
        for value, slope in zip(values, slopes, strict=True):
            assert (value[width] == 0) == at_rest
            assert np.any(slope) != at_rest


def test_no_gradient_reaches_the_frozen_side():
    documents, frozen, neighbours, cosines = narrow(DOCUMENTS, FROZEN, NEIGHBOURS, NEAR)
    by_frozen = jax.grad(lambda f: jnp.sum(pair_distillation(documents, f, widths=WIDTHS)))(frozen)
    by_cosines, by_neighbours = jax.grad(
        lambda c, n: jnp.sum(neighbour_distillation(documents, n, c, widths=WIDTHS)), (0, 1)
    )(cosines, neighbours)
    assert not np.any(by_frozen)
    assert not np.any(by_cosines)
    assert np.any(by_neighbours)


def test_gradients_are_those_of_finite_differences():
    with jax.enable_x64(True):
        queries, documents = jnp.asarray(QUERIES), jnp.asarray(DOCUMENTS)
        frozen, cosines = jnp.asarray(FROZEN), jnp.asarray(NEAR)

        @jax.jit
        def all_three(q, d, n):
            return (
                prefix_similarities(q, d, widths=(3, 12)),
                pair_distillation(d, frozen, widths=(3, 12), mask=jnp.asarray(MASK)),
                neighbour_distillation(d, n, cosines, widths=(3, 12), mask=jnp.asarray(NEAR_MASK)),
            )

        check_grads(all_three, (queries, documents, jnp.asarray(NEIGHBOURS)), order=1)


def test_the_order_of_the_rows_does_not_matter():
    documents, frozen, neighbours, cosines = narrow(DOCUMENTS, FROZEN, NEIGHBOURS, NEAR)
    order = RANDOM.permutation(7)
    got, _ = pairs(frozen)(documents)
    turned, _ = pairs(frozen[order])(documents[order])
    np.testing.assert_allclose(turned, got[:, order], atol=1e-6)
    got, _ = near(neighbours, cosines)(documents)
    turned, _ = near(neighbours[order][:, ::-1], cosines[order][:, ::-1])(documents[order])
    np.testing.assert_allclose(turned, got[:, order], atol=1e-6)


@pytest.mark.parametrize("filler", [0.0, 7.0, np.nan, np.inf])
def test_a_padded_batch_is_the_unpadded_one(filler):
    filled = [np.where(MASK[:, None], x, filler) for x in (DOCUMENTS, FROZEN)]
    got = pairs(*narrow(filled[1]), jnp.asarray(MASK))(*narrow(filled[0]))
    value, slope = jax.device_get(got)
    plain = pairs(*narrow(FROZEN[MASK]))(*narrow(DOCUMENTS[MASK]), WEIGHTS[:, MASK])
    np.testing.assert_allclose(value[:, MASK], plain[0], atol=1e-6)
    np.testing.assert_allclose(slope[MASK], plain[1], rtol=1e-6, atol=1e-6)
    assert not np.any(value[:, ~MASK])
    assert not np.any(slope[~MASK])


@pytest.mark.parametrize("filler", [0.0, 7.0, np.nan, np.inf])
def test_padded_neighbours_do_not_count(filler):
    some = NEAR_MASK.any(1)
    documents = np.where(some[:, None], DOCUMENTS, filler)
    neighbours = np.where(NEAR_MASK[:, :, None], NEIGHBOURS, filler)
    cosines = np.where(NEAR_MASK, NEAR, filler)
    got = near(*narrow(neighbours, cosines), jnp.asarray(NEAR_MASK))(*narrow(documents))
    value, slope = jax.device_get(got)
    left = NEIGHBOURS[NEAR_MASK].reshape(5, 2, 12), NEAR[NEAR_MASK].reshape(5, 2)
    plain = near(*narrow(*left))(*narrow(DOCUMENTS[some]), WEIGHTS[:, some])
    np.testing.assert_allclose(value[:, some], plain[0], atol=1e-6)
    np.testing.assert_allclose(slope[some], plain[1], rtol=1e-6, atol=1e-6)
    assert not np.any(value[:, ~some])
    assert not np.any(slope[~some])


@pytest.mark.parametrize("rows", [0, 1, 2])
@pytest.mark.parametrize("entry", [0.0, 1.0])
def test_degenerate_batches_are_finite(rows, entry):
    alike = jnp.full((rows, 12), entry)
    got, slope = pairs(jnp.ones((rows, 3)))(alike)
    assert got.shape == (4, rows)
    assert np.any(got) == (rows > 1 and entry == 0)
    assert not np.any(slope)
    for count in (0, 2):
        given_ = jnp.full((rows, count, 12), entry), jnp.zeros((rows, count))
        got, slope = near(*given_)(alike)
        assert np.any(got) == (rows > 0 and count > 0 and entry == 1)
        assert np.isfinite(slope).all()


@pytest.mark.parametrize("valid", [0, 1, 2])
def test_few_valid_rows_are_finite(valid):
    mask = np.arange(7) < valid
    got, slope = pairs(*narrow(FROZEN), jnp.asarray(mask))(*narrow(DOCUMENTS))
    expected = reference.pair_distillation(DOCUMENTS, FROZEN, WIDTHS, mask)
    np.testing.assert_allclose(got, expected, atol=1e-6)
    assert np.isfinite(slope).all()
    assert np.any(slope) == (valid > 1)


def test_a_nan_is_not_hidden():
    documents, frozen, neighbours, cosines = narrow(DOCUMENTS, FROZEN, NEIGHBOURS, NEAR)
    bad = documents.at[0, 0].set(jnp.nan)
    assert np.isnan(pairs(frozen)(bad)[0][:, 0]).all()
    assert np.isnan(near(neighbours, cosines)(bad)[0][:, 0]).all()


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_low_precision_is_computed_in_float32(dtype):
    documents, neighbours = jnp.asarray(DOCUMENTS, dtype), jnp.asarray(NEIGHBOURS, dtype)
    frozen, cosines = narrow(FROZEN, NEAR)
    wide = [np.asarray(x, np.float32) for x in (documents, neighbours)]
    got, slope = pairs(frozen)(documents)
    assert got.dtype == jnp.float32
    assert slope.dtype == dtype
    expected = reference.pair_distillation(wide[0], np.asarray(frozen), WIDTHS)
    np.testing.assert_allclose(got, expected, atol=1e-6)
    got, slope = near(neighbours, cosines)(documents)
    assert slope.dtype == dtype
    expected = reference.neighbour_distillation(*wide, np.asarray(cosines), WIDTHS)
    np.testing.assert_allclose(got, expected, atol=1e-6)
    mixed = prefix_similarities(documents, *narrow(DOCUMENTS), widths=WIDTHS)
    assert mixed.dtype == jnp.float32
    expected = reference.prefix_similarities(wide[0], np.float32(DOCUMENTS), WIDTHS)
    np.testing.assert_allclose(mixed, expected, atol=1e-6)


def test_seeds_and_masks_can_be_mapped():
    batches, masks = narrow(RANDOM.normal(size=(3, 7, 12)))[0], np.stack([MASK, ~MASK, MASK])
    frozen, neighbours, cosines = narrow(FROZEN, NEIGHBOURS, NEAR)

    def one(x, mask):
        return (
            *pairs(frozen, mask)(x),
            *near(neighbours, cosines, jnp.broadcast_to(mask[:, None], (7, 3)))(x),
        )

    mapped = jax.vmap(one)(batches, jnp.asarray(masks))
    for each in range(3):
        alone = one(batches[each], jnp.asarray(masks[each]))
        for got, expected in zip(mapped, alone, strict=True):
            np.testing.assert_allclose(got[each], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("widths", [(), (0, 4), (4, 4), (5, 3), (4, 13), (-1,)], ids=str)
def test_widths_that_do_not_ascend_within_the_rows_are_refused(widths):
    documents, frozen, neighbours, cosines = narrow(DOCUMENTS, FROZEN, NEIGHBOURS, NEAR)
    for call in (
        lambda d: prefix_cosines(d, widths=widths),
        lambda d: prefix_similarities(d, d, widths=widths),
        lambda d: pair_distillation(d, frozen, widths=widths),
        lambda d: neighbour_distillation(d, neighbours, cosines, widths=widths),
    ):
        with pytest.raises(ValueError, match=r"widths: wanted numbers that ascend within 1 to 12"):
            jax.jit(call)(documents)


@pytest.mark.errors
def test_wrong_arrays_are_refused():
    documents, frozen, neighbours, cosines = narrow(DOCUMENTS, FROZEN, NEIGHBOURS, NEAR)
    with pytest.raises(ValueError, match=r"one dim, got \[7, 12\] and \[7, 9\]"):
        jax.jit(lambda d: prefix_similarities(d, frozen, widths=(2,)))(documents)
    with pytest.raises(ValueError, match=r"rows: wanted shape \[rows dim\], got \[12\]"):
        prefix_cosines(documents[0], widths=(2,))
    with pytest.raises(ValueError, match=r"documents: wanted floats, got int32"):
        prefix_similarities(documents, jnp.ones((7, 12), jnp.int32), widths=(2,))
    with pytest.raises(ValueError, match=r"as many rows, got 7 and 6"):
        pair_distillation(documents, frozen[:6], widths=(2,))
    with pytest.raises(ValueError, match=r"mask: wanted bool \[7\], got bool \[6\]"):
        pair_distillation(documents, frozen, widths=(2,), mask=jnp.ones(6, bool))
    with pytest.raises(ValueError, match=r"got \[7, 12\], \[7, 3, 12\] and \[7, 2\]"):
        neighbour_distillation(documents, neighbours, cosines[:, :2], widths=(2,))
    with pytest.raises(ValueError, match=r"got \[7, 9\], \[7, 3, 12\] and \[7, 3\]"):
        neighbour_distillation(frozen, neighbours, cosines, widths=(2,))
    with pytest.raises(ValueError, match=r"mask: wanted bool \[7, 3\], got bool \[7\]"):
        neighbour_distillation(documents, neighbours, cosines, widths=(2,), mask=jnp.ones(7, bool))
