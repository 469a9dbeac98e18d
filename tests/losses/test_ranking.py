import functools
import math

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
from scipy.special import log_expit

from dive_jax.losses import Weighted, rank_loss, rank_terms, weighted_mean
from tests import reference

RANDOM = np.random.default_rng(2027)
SIMILARITY = RANDOM.uniform(-1, 1, (6, 10))
# At most three documents a query of gain above 0; query 2 has none, in query 4 all are equal.
GAINS = np.zeros((6, 10), np.int32)
for row, several in enumerate([(3, 1, 2), (1,), (), (2, 2, 1), (0,), (1, 1)]):
    GAINS[row, RANDOM.permutation(10)[: len(several)]] = several
QUERY_MASK = np.array([True, True, True, False, True, True])
DOCUMENT_MASK = np.arange(10) % 4 != 2
WEIGHTS = RANDOM.uniform(1, 2, 6)
kept = pytest.mark.parametrize("most_relevant", [None, 3, 5, 64], ids="most={}".format)
cosines = hnp.arrays(np.float32, (3, 5), elements=st.floats(-1, 1, width=32))
grades = hnp.arrays(np.int32, (3, 5), elements=st.integers(-1, 3))


@functools.partial(jax.jit, static_argnames="most_relevant")
def compiled(similarity, gains, most_relevant=None, queries=None, documents=None, weights=WEIGHTS):
    """Terms of each query, and the gradient of the weighted sum of their totals."""

    def terms(similarity):
        return rank_terms(
            similarity,
            gains,
            most_relevant=most_relevant,
            query_mask=queries,
            document_mask=documents,
        )

    (total, weight), pull = jax.vjp(terms, similarity)
    slope = pull(Weighted(jnp.asarray(weights, total.dtype), jnp.zeros_like(weight)))[0]
    return total, weight, slope


def step(*args, **settings):
    return jax.device_get(compiled(*args, **settings))


def agree(got, expected, weights=WEIGHTS, **tolerance):
    totals, counts, slopes = expected
    np.testing.assert_allclose(got[0], totals, **tolerance)
    np.testing.assert_array_equal(got[1], counts)
    np.testing.assert_allclose(got[2], weights[:, None] * slopes, **tolerance)


@kept
def test_terms_and_gradients_are_the_full_cubes(most_relevant):
    for masks in ((None, None), (QUERY_MASK, DOCUMENT_MASK)):
        expected = reference.rank_terms(SIMILARITY, GAINS, *masks)
        given_ = [None if mask is None else jnp.asarray(mask) for mask in masks]
        with jax.enable_x64(True):
            got = step(jnp.asarray(SIMILARITY), jnp.asarray(GAINS), most_relevant, *given_)
            assert got[0].dtype == jnp.float64
        agree(got, expected, rtol=1e-12, atol=1e-13)
        narrow = jnp.asarray(SIMILARITY, jnp.float32)
        got = step(narrow, jnp.asarray(GAINS), most_relevant, *given_)
        agree(got, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("most_relevant", [1, 2])
def test_documents_beyond_the_most_relevant_lie_above_nothing(most_relevant):
    similarity = jnp.asarray(SIMILARITY, jnp.float32)
    expected = reference.rank_terms(SIMILARITY, GAINS, kept=most_relevant)
    agree(step(similarity, jnp.asarray(GAINS), most_relevant), expected, rtol=1e-5, atol=1e-6)
    counts = reference.rank_terms(SIMILARITY, GAINS)[1]
    few = np.sum(GAINS > 0, axis=1) <= most_relevant
    np.testing.assert_array_equal(expected[1] == counts, few)


def test_nothing_of_documents_by_documents_is_made():
    """The greatest array holds queries x most_relevant x documents, forward and backward."""
    similarity, gains = jnp.zeros((16, 64)), jnp.zeros((16, 64), jnp.int32)
    for most_relevant, largest in ((2, 16 * 2 * 64), (None, 16 * 64 * 64)):
        jaxpr = jax.make_jaxpr(functools.partial(compiled, most_relevant=most_relevant))(
            similarity, gains, weights=np.ones(16)
        )
        assert max(sizes(jaxpr.jaxpr)) == largest


def sizes(jaxpr):
    for equation in jaxpr.eqns:
        for inner in jaxprs_in_params(equation.params):
            yield from sizes(inner)
        yield from (math.prod(out.aval.shape) for out in equation.outvars)


def test_binary_gains_give_the_mean_softplus_of_two_other_libraries():
    gains = RANDOM.uniform(size=(6, 10)) < 0.3
    gaps = np.concatenate(
        [(s[y][:, None] - s[~y][None, :]).ravel() for s, y in zip(SIMILARITY, gains, strict=True)]
    )
    got = rank_loss(jnp.asarray(SIMILARITY, jnp.float32), jnp.asarray(gains))
    np.testing.assert_allclose(got, np.mean(-log_expit(gaps)), rtol=1e-6)
    entropy = optax.losses.sigmoid_binary_cross_entropy(
        jnp.asarray(gaps, jnp.float32), jnp.ones(len(gaps))
    )
    np.testing.assert_allclose(got, jnp.mean(entropy), rtol=1e-5)


def test_at_the_start_the_published_sum_is_near_22_600():
    """128 queries, 256 documents, one relevant each, all similarities equal."""
    similarity, gains = jnp.zeros((128, 256)), jnp.eye(128, 256)
    total = rank_loss(similarity, gains, reduction="sum", most_relevant=1)
    np.testing.assert_allclose(total, 128 * 255 * math.log(2), rtol=1e-5)
    assert 22_600 < total < 22_650
    np.testing.assert_allclose(rank_loss(similarity, gains, most_relevant=1), math.log(2), 1e-6)


def test_both_reductions():
    totals, counts, _ = reference.rank_terms(SIMILARITY, GAINS)
    given_ = jnp.asarray(SIMILARITY, jnp.float32), jnp.asarray(GAINS)
    published = rank_loss(*given_, reduction="sum", most_relevant=3)
    np.testing.assert_allclose(published, totals.sum(), rtol=1e-6)
    np.testing.assert_allclose(rank_loss(*given_), totals.sum() / counts.sum(), rtol=1e-6)
    queries, documents = jnp.asarray(QUERY_MASK), jnp.asarray(DOCUMENT_MASK)
    totals, counts, _ = reference.rank_terms(SIMILARITY, GAINS, QUERY_MASK, DOCUMENT_MASK)
    masked = rank_loss(*given_, query_mask=queries, document_mask=documents)
    np.testing.assert_allclose(masked, totals.sum() / counts.sum(), rtol=1e-6)


@given(cosines, grades)
@settings(max_examples=60, deadline=None)
def test_permutations_shifts_and_scales(similarity, gains):
    order, documents = RANDOM.permutation(3), RANDOM.permutation(5)
    shift = np.array([[1.0], [0.0], [-2.0]], np.float32)
    total, weight, _ = step(similarity, gains, weights=np.ones(3))
    turned = step(similarity[order][:, documents], gains[order][:, documents], weights=np.ones(3))
    shifted = step(similarity + shift, gains, weights=np.ones(3))
    doubled = step(similarity, 2 * gains, weights=np.ones(3))
    clipped = step(similarity, np.maximum(gains, 0), weights=np.ones(3))
    tolerance = {"rtol": 1e-5, "atol": 1e-5}
    np.testing.assert_allclose(turned[0], total[order], **tolerance)
    np.testing.assert_array_equal(turned[1], weight[order])
    np.testing.assert_allclose(shifted[0], total, **tolerance)
    np.testing.assert_allclose(doubled[0], 2 * total, **tolerance)
    np.testing.assert_array_equal(doubled[1], weight)
    np.testing.assert_array_equal(clipped[0], total)


@pytest.mark.parametrize("dtype", [jnp.int8, jnp.uint8, jnp.bfloat16, jnp.float32])
def test_gains_may_be_of_any_kind(dtype):
    similarity = jnp.asarray(SIMILARITY, jnp.float32)
    got = step(similarity, jnp.asarray(GAINS).astype(dtype), 3)
    agree(got, reference.rank_terms(SIMILARITY, GAINS), rtol=1e-5, atol=1e-6)
    fractions = reference.rank_terms(SIMILARITY, GAINS / 4)
    quarters = step(similarity, jnp.asarray(GAINS / 4, jnp.float32), 3)
    agree(quarters, fractions, rtol=1e-5, atol=1e-6)


def test_no_gradient_reaches_the_gains():
    similarity, gains = jnp.asarray(SIMILARITY, jnp.float32), jnp.asarray(GAINS, jnp.float32)
    by_s, by_y = jax.grad(rank_loss, (0, 1))(similarity, gains)
    assert np.any(by_s)
    assert not np.any(by_y)


def test_gradients_are_those_of_finite_differences():
    with jax.enable_x64(True):
        masks = {"query_mask": jnp.asarray(QUERY_MASK), "document_mask": jnp.asarray(DOCUMENT_MASK)}
        for settings_ in ({"most_relevant": 3}, {"reduction": "sum", **masks}):
            loss = jax.jit(lambda s, k=settings_: rank_loss(s, jnp.asarray(GAINS), **k))
            check_grads(loss, (jnp.asarray(SIMILARITY),), order=2)


@kept
@pytest.mark.parametrize("filler", [0.0, 7.0, np.nan, np.inf])
def test_a_padded_batch_is_the_unpadded_one(most_relevant, filler):
    both = QUERY_MASK[:, None] & DOCUMENT_MASK
    filled = jnp.asarray(np.where(both, SIMILARITY, filler), jnp.float32)
    gains = jnp.asarray(np.where(both, GAINS, filler), jnp.float32)
    got = step(filled, gains, most_relevant, jnp.asarray(QUERY_MASK), jnp.asarray(DOCUMENT_MASK))
    small = jnp.asarray(SIMILARITY[both].reshape(5, 8), jnp.float32)
    plain = jnp.asarray(GAINS[both].reshape(5, 8))
    total, weight, slope = step(small, plain, most_relevant, weights=WEIGHTS[QUERY_MASK])
    np.testing.assert_allclose(got[0][QUERY_MASK], total, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(got[1][QUERY_MASK], weight)
    np.testing.assert_allclose(np.asarray(got[2])[both], np.ravel(slope), atol=1e-6)
    assert not np.any(np.asarray(got[2])[~both])
    assert got[0][3] == got[1][3] == 0


@pytest.mark.parametrize("gain", [0, 1])
@pytest.mark.parametrize("shape", [(3, 5), (3, 1), (1, 1), (0, 4), (4, 0)], ids=str)
def test_without_a_triple_it_is_0_with_gradient_0(shape, gain):
    @functools.partial(jax.jit, static_argnames="reduction")
    def loss(similarity, real, reduction):
        settings = {"reduction": reduction, "most_relevant": 2, "query_mask": real}
        return jax.value_and_grad(rank_loss)(similarity, jnp.full(shape, gain), **settings)

    for reduction in ("mean", "sum"):
        for real in (True, False):
            value, slope = jax.device_get(
                loss(jnp.full(shape, 0.3), np.full(shape[0], real), reduction)
            )
            assert value == 0
            assert not np.any(slope)


def test_extreme_similarities_stay_finite_and_a_nan_is_not_hidden():
    similarity, gains = jnp.array([[1e4, -1e4], [-1e4, 1e4]]), jnp.array([[1, 0], [1, 0]])
    total, _, slope = step(similarity, gains, 1, weights=np.ones(2))
    np.testing.assert_allclose(total, [0, 2e4], rtol=1e-6)
    np.testing.assert_allclose(slope, [[0, 0], [-1, 1]], atol=1e-6)
    assert np.isnan(rank_loss(similarity.at[0, 0].set(jnp.nan), gains))


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_low_precision_is_computed_in_float32(dtype):
    similarity = jnp.asarray(SIMILARITY, dtype)
    total, _, slope = step(similarity, jnp.asarray(GAINS), 3)
    assert total.dtype == jnp.float32
    assert slope.dtype == dtype
    wide = step(similarity.astype(jnp.float32), jnp.asarray(GAINS), 3)
    np.testing.assert_allclose(total, wide[0], rtol=1e-6)


def test_widths_seeds_and_masks_can_be_mapped():
    similarity = jnp.asarray(RANDOM.uniform(-1, 1, (3, 6, 10)), jnp.float32)
    masks = jnp.asarray(RANDOM.uniform(size=(3, 10)) < 0.6)
    gains = jnp.asarray(GAINS)
    mapped = jax.vmap(lambda s, m: compiled(s, gains, 3, documents=m))(similarity, masks)
    for each in range(3):
        alone = step(similarity[each], gains, 3, documents=masks[each])
        for got, expected in zip(mapped, alone, strict=True):
            np.testing.assert_allclose(got[each], expected, atol=1e-5)


def test_weighted_mean_divides_the_sums_and_is_at_rest_without_weight():
    total, weight = jnp.array([3.0, 0.0, 1.5]), jnp.array([1.0, 0.0, 0.5])
    np.testing.assert_allclose(weighted_mean(total, weight), 3)
    value, slopes = jax.value_and_grad(weighted_mean, (0, 1))(total, jnp.zeros(3))
    assert value == 0
    assert not np.any(slopes)
    assert weighted_mean(jnp.zeros(0), jnp.zeros(0)) == 0


@pytest.mark.parametrize("most_relevant", [0, -1])
def test_most_relevant_below_1_is_refused(most_relevant):
    with pytest.raises(ValueError, match=r"most_relevant: wanted at least 1 document, got"):
        rank_terms(jnp.ones((2, 3)), jnp.ones((2, 3)), most_relevant=most_relevant)


@pytest.mark.errors
def test_wrong_arrays_are_refused():
    similarity = jnp.ones((2, 3))
    with pytest.raises(ValueError, match=r"gains: wanted numbers \[2, 3\], got float32 \[3, 2\]"):
        jax.jit(rank_terms)(similarity, similarity.T)
    with pytest.raises(ValueError, match=r"similarity: wanted shape \[queries documents\], got"):
        rank_loss(jnp.ones(3), jnp.ones(3))
    with pytest.raises(ValueError, match=r"similarity: wanted floats, got int32"):
        rank_loss(jnp.ones((2, 3), jnp.int32), similarity)
    with pytest.raises(ValueError, match=r"gains: wanted numbers \[2, 3\], got complex64"):
        rank_loss(similarity, jnp.ones((2, 3), jnp.complex64))
    with pytest.raises(ValueError, match=r"mask: wanted bool \[2\], got bool \[3\]"):
        rank_loss(similarity, similarity, query_mask=jnp.ones(3, bool))
    with pytest.raises(ValueError, match=r"mask: wanted bool \[3\], got float32 \[3\]"):
        rank_loss(similarity, similarity, document_mask=jnp.ones(3))
    with pytest.raises(ValueError, match=r"reduction: wanted one of mean, sum, got 'max'"):
        rank_loss(similarity, similarity, reduction="max")
