import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from jax.test_util import check_grads
from scipy.special import logsumexp

from dive_jax.losses import (
    active,
    allowed_negatives,
    batch_active,
    batch_hinge,
    first_occurrence,
    hinge,
)
from dive_jax.numerics.vectors import unit
from tests import reference

RANDOM = np.random.default_rng(2027)
SIMILARITY, POSITIVE = RANDOM.uniform(-1, 1, (9, 12)), RANDOM.uniform(-1, 1, 9)
NEGATIVES = RANDOM.uniform(size=(9, 12)) < 0.5
NEGATIVES[3], NEGATIVES[5] = False, np.arange(12) == 4
WEIGHTS = RANDOM.uniform(1, 2, 9)
modes = pytest.mark.parametrize("mode", ["sum", "mean"])
cosines = hnp.arrays(np.float32, (4, 5), elements=st.floats(-1, 1, width=32))
masks = hnp.arrays(bool, (4, 5))


def loss(similarity, positive, negatives, margin=0.2, temperature=0.05, mode="sum"):
    return batch_hinge(
        similarity, positive, negatives, margin=margin, temperature=temperature, mode=mode
    )


@functools.partial(jax.jit, static_argnames="mode")
def compiled(
    similarity, positive, negatives, weights=WEIGHTS, *, margin=0.2, temperature=0.05, mode="sum"
):
    """Losses, and the gradient of their weighted sum by similarity and positive."""

    def rows(similarity, positive):
        return loss(similarity, positive, negatives, margin, temperature, mode)

    value, pull = jax.vjp(rows, similarity, positive)
    return value, *pull(jnp.asarray(weights, value.dtype))


def step(*args, **settings):
    return jax.device_get(compiled(*args, **settings))


@modes
@pytest.mark.parametrize(("margin", "temperature"), [(0.2, 0.05), (2, 1), (0.7, 0.3)])
def test_the_loss_is_the_reference_and_scipys_logsumexp(mode, margin, temperature):
    expected = reference.batch_hinge(SIMILARITY, POSITIVE, NEGATIVES, margin, temperature, mode)
    settings = {"margin": margin, "temperature": temperature, "mode": mode}
    with jax.enable_x64(True):
        got = loss(
            jnp.asarray(SIMILARITY), jnp.asarray(POSITIVE), jnp.asarray(NEGATIVES), **settings
        )
    assert got.dtype == jnp.float64
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-14)
    narrow = loss(
        jnp.asarray(SIMILARITY), jnp.asarray(POSITIVE), jnp.asarray(NEGATIVES), **settings
    )
    np.testing.assert_allclose(narrow, expected, atol=2e-6)
    some = NEGATIVES.any(1)
    soft = temperature * logsumexp(np.where(NEGATIVES, SIMILARITY / temperature, -np.inf)[some], 1)
    soft -= temperature * np.log(NEGATIVES.sum(1)[some]) * (mode == "mean")
    np.testing.assert_allclose(got[some], np.maximum(0, margin + soft - POSITIVE[some]), atol=1e-12)


@modes
@pytest.mark.parametrize("temperature", [0.05, 1.0])
def test_with_one_negative_it_is_the_triplet_hinge(mode, temperature):
    place = RANDOM.integers(0, 12, 9)
    negatives = jnp.asarray(np.arange(12) == place[:, None])
    similarity, positive = (jnp.asarray(x, jnp.float32) for x in (SIMILARITY, POSITIVE))
    settings = {"margin": 0.7, "temperature": temperature, "mode": mode}
    value, by_s, by_p = step(similarity, positive, negatives, **settings)
    alone = similarity[np.arange(9), place]
    expected, pull = jax.vjp(lambda p, n: hinge(p, n, margin=0.7), positive, alone)
    slope_p, slope_n = pull(jnp.asarray(WEIGHTS, jnp.float32))
    np.testing.assert_array_equal(value, expected)
    np.testing.assert_array_equal(by_p, slope_p)
    spread = np.where(negatives, np.asarray(slope_n)[:, None], 0)
    np.testing.assert_allclose(by_s, spread, rtol=1e-6)
    assert 0 < np.count_nonzero(value) < 9
    alive = batch_active(similarity, positive, negatives, **settings)
    np.testing.assert_array_equal(alive, active(positive, alone, margin=0.7))


@modes
def test_a_query_without_negatives_is_silent_whatever_it_holds(mode):
    for filler in (0.0, np.nan, np.inf):
        similarity = jnp.asarray(np.where(NEGATIVES, SIMILARITY, filler), jnp.float32)
        positive = jnp.asarray(np.where(NEGATIVES.any(1), POSITIVE, filler), jnp.float32)
        value, by_s, by_p = step(similarity, positive, jnp.asarray(NEGATIVES), mode=mode)
        assert value[3] == 0
        assert by_p[3] == 0
        assert not np.any(np.asarray(by_s)[~NEGATIVES])
        assert np.isfinite(value).all()
        assert np.isfinite(by_s).all()
        expected = reference.batch_hinge(SIMILARITY, POSITIVE, NEGATIVES, 0.2, 0.05, mode)
        np.testing.assert_allclose(value, expected, atol=2e-6)
        by_t = jax.grad(
            lambda t, s=similarity, p=positive: jnp.sum(
                loss(s, p, jnp.asarray(NEGATIVES), temperature=t, mode=mode)
            )
        )
        assert np.isfinite(by_t(jnp.float32(0.05)))


@given(cosines, masks, st.sampled_from(["sum", "mean"]))
@settings(max_examples=60, deadline=None)
def test_active_is_where_there_is_a_value_and_a_gradient(similarity, negatives, mode):
    positive = jnp.asarray(similarity[:, 0])
    given_ = jnp.asarray(similarity), positive, jnp.asarray(negatives)
    value, by_s, by_p = step(*given_, np.ones(4), margin=0.5, mode=mode)
    alive = np.asarray(batch_active(*given_, margin=0.5, mode=mode))
    np.testing.assert_array_equal(alive, np.asarray(value) > 0)
    np.testing.assert_array_equal(by_p, np.where(alive, -1, 0))
    np.testing.assert_allclose(np.sum(by_s, axis=1), np.where(alive, 1, 0), atol=1e-6)
    assert not np.any(np.asarray(by_s)[~alive])
    assert not np.any(np.asarray(by_s)[~negatives])


def test_a_sufficient_lead_has_no_gradient_end_to_end():
    """Through unit vectors and a linear map, queries that lead by enough leave all at rest."""
    keys = jax.random.split(jax.random.key(0), 3)
    queries, documents = (jax.random.normal(key, (10, 16)) for key in keys[:2])
    queries = queries.at[:6].set(documents[:6])
    negatives = ~jnp.eye(10, dtype=bool)

    def total(matrix, queries, keep):
        q, d = unit(queries @ matrix), unit(documents @ matrix)
        rows = loss(q @ d.T, jnp.sum(q * d, 1), negatives, margin=0.1)
        return jnp.sum(jnp.where(keep, rows, 0.0)), rows

    matrix = jnp.eye(16) + 0.02 * jax.random.normal(keys[2], (16, 16))
    gradient = jax.jit(jax.grad(total, (0, 1), has_aux=True))
    (_, by_query), rows = gradient(matrix, queries, jnp.ones(10, bool))
    silent = np.asarray(rows) == 0
    assert 0 < silent.sum() < 10
    assert not np.any(np.asarray(by_query)[silent])
    assert np.all(np.any(np.asarray(by_query)[~silent], axis=1))
    (by_matrix, _), _ = gradient(matrix, queries, jnp.asarray(silent))
    assert not np.any(by_matrix)


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["plain", "jit"])
def test_a_lead_equal_to_the_margin_is_enough(wrap):
    similarity, negatives = jnp.full((2, 1), 0.25), jnp.ones((2, 1), bool)
    positive = jnp.array([0.75, 0.5])
    value, _, slope = wrap(lambda s, p: compiled(s, p, negatives, np.ones(2), margin=0.5))(
        similarity, positive
    )
    np.testing.assert_array_equal(value, [0, 0.25])
    np.testing.assert_array_equal(slope, [0, -1])
    alive = wrap(lambda s, p: batch_active(s, p, negatives, margin=0.5))(similarity, positive)
    np.testing.assert_array_equal(alive, [False, True])


def test_equal_negatives_add_the_logarithm_of_their_number_to_the_margin_or_do_not():
    args = jnp.full((1, 254), 0.25), jnp.full(1, 0.25), jnp.ones((1, 254), bool)
    np.testing.assert_allclose(loss(*args, mode="sum"), 0.2 + 0.05 * np.log(254), rtol=1e-6)
    np.testing.assert_allclose(loss(*args, mode="sum") - 0.2, 0.277, atol=1e-3)
    np.testing.assert_allclose(loss(*args, mode="mean"), 0.2, rtol=1e-6)
    _, slope, _ = step(*args, np.ones(1))
    np.testing.assert_allclose(slope, 1 / 254, rtol=1e-5)


@modes
def test_a_low_temperature_sees_the_hardest_negative_alone(mode):
    similarity, positive = (jnp.asarray(x, jnp.float32) for x in (SIMILARITY, POSITIVE))
    hardest = jnp.max(jnp.where(NEGATIVES, similarity, -jnp.inf), axis=1)
    value, by_s, _ = step(
        similarity, positive, jnp.asarray(NEGATIVES), margin=0.7, temperature=1e-8, mode=mode
    )
    expected = np.where(NEGATIVES.any(1), jax.nn.relu(0.7 - (positive - hardest)), 0)
    np.testing.assert_allclose(value, expected, atol=1e-6)
    assert np.isfinite(by_s).all()
    assert np.all(np.count_nonzero(by_s, axis=1) <= 1)


@modes
def test_permutations_and_a_common_shift(mode):
    args = [jnp.asarray(x, jnp.float32) for x in (SIMILARITY, POSITIVE)]
    expected = np.asarray(loss(*args, jnp.asarray(NEGATIVES), mode=mode))
    rows, columns = RANDOM.permutation(9), RANDOM.permutation(12)
    similarity, negatives = (x[rows][:, columns] for x in (args[0], NEGATIVES))
    turned = loss(similarity, args[1][rows], jnp.asarray(negatives), mode=mode)
    np.testing.assert_allclose(turned, expected[rows], atol=1e-6)
    shifted = loss(args[0] + 1, args[1] + 1, jnp.asarray(NEGATIVES), mode=mode)
    np.testing.assert_allclose(shifted, expected, atol=1e-6)


@modes
def test_gradients_are_those_of_finite_differences(mode):
    with jax.enable_x64(True):
        far = POSITIVE - 0.1 * RANDOM.uniform(1, 2, 9)  # the hinge has a kink
        args = jnp.asarray(SIMILARITY), jnp.asarray(far), jnp.asarray(0.7), jnp.asarray(0.3)

        @jax.jit
        def rows(similarity, positive, margin, temperature):
            negatives = jnp.asarray(NEGATIVES)
            return loss(similarity, positive, negatives, margin, temperature, mode)

        lead = reference.batch_hinge(SIMILARITY, far, NEGATIVES, 0.7, 0.3, mode)
        assert np.all((lead == 0) | (lead > 1e-3))
        check_grads(rows, args, order=2)


@modes
@pytest.mark.parametrize("filler", [0.0, 7.0, np.nan, -np.inf])
def test_a_padded_batch_is_the_unpadded_one(mode, filler):
    real_q, real_d = np.arange(9) % 4 != 1, np.arange(12) % 3 != 2
    both = real_q[:, None] & real_d
    rows = RANDOM.permutation(40)[:12]
    excluded = ~NEGATIVES
    padded = allowed_negatives(
        jnp.asarray(np.where(both, excluded, False)),
        jnp.asarray(np.where(real_d, rows, rows[0])),
        query_mask=jnp.asarray(real_q),
        document_mask=jnp.asarray(real_d),
    )
    plain = allowed_negatives(jnp.asarray(excluded[real_q][:, real_d]), jnp.asarray(rows[real_d]))
    filled = jnp.asarray(np.where(both, SIMILARITY, filler), jnp.float32)
    positive = jnp.asarray(np.where(real_q, POSITIVE, filler), jnp.float32)
    value, by_s, by_p = step(filled, positive, padded, mode=mode)
    small = jnp.asarray(SIMILARITY[real_q][:, real_d], jnp.float32)
    expected, slope_s, slope_p = step(
        small, jnp.asarray(POSITIVE[real_q], jnp.float32), plain, WEIGHTS[real_q], mode=mode
    )
    np.testing.assert_allclose(value[real_q], expected, atol=1e-6)
    np.testing.assert_allclose(by_s[real_q][:, real_d], slope_s, atol=1e-6)
    np.testing.assert_allclose(by_p[real_q], slope_p, atol=1e-6)
    assert not np.any(np.asarray(by_s)[~both])
    assert not np.any(value[~real_q])


@modes
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 1)], ids=str)
def test_degenerate_batches_are_finite(mode, shape):
    value, by_s, by_p = step(
        jnp.zeros(shape), jnp.zeros(shape[0]), jnp.ones(shape, bool), WEIGHTS[: shape[0]], mode=mode
    )
    assert value.shape == shape[:1]
    assert all(np.isfinite(x).all() for x in (value, by_s, by_p))
    assert np.any(value) == (shape == (1, 1))


@modes
def test_extreme_similarities_stay_finite_and_a_nan_is_not_hidden(mode):
    similarity = jnp.array([[1e4, -1e4], [-1e4, 1e4], [1e4, 1e4]])
    for temperature in (1e-6, 0.05, 1e3):
        value, by_s, _ = step(
            similarity, jnp.zeros(3), jnp.ones((3, 2), bool), np.ones(3), temperature=temperature
        )
        assert np.isfinite(value).all()
        np.testing.assert_allclose(np.sum(by_s, axis=1), 1, rtol=1e-5)
    bad = loss(jnp.full((1, 2), jnp.nan), jnp.zeros(1), jnp.ones((1, 2), bool), mode=mode)
    assert np.isnan(bad).all()


@modes
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_low_precision_is_computed_in_float32(mode, dtype):
    similarity, positive = jnp.asarray(SIMILARITY, dtype), jnp.asarray(POSITIVE, dtype)
    value, by_s, _ = step(similarity, positive, jnp.asarray(NEGATIVES), mode=mode)
    assert value.dtype == jnp.float32
    assert by_s.dtype == dtype
    wide = similarity.astype(jnp.float32), positive.astype(jnp.float32)
    np.testing.assert_allclose(value, loss(*wide, jnp.asarray(NEGATIVES), mode=mode), rtol=1e-6)


def test_seeds_masks_and_settings_can_be_mapped():
    similarity = jnp.asarray(RANDOM.uniform(-1, 1, (3, 9, 12)), jnp.float32)
    negatives = jnp.asarray(np.stack([NEGATIVES, ~NEGATIVES, NEGATIVES]))
    margins, temperatures = jnp.array([0.1, 0.5, 2.0]), jnp.array([0.05, 0.1, 1.0])
    positive = jnp.asarray(POSITIVE, jnp.float32)

    def one(s, n, m, t):
        return compiled(s, positive, n, margin=m, temperature=t)

    mapped = jax.jit(jax.vmap(one))(similarity, negatives, margins, temperatures)
    for each in range(3):
        alone = one(similarity[each], negatives[each], margins[each], temperatures[each])
        for got, expected in zip(mapped, alone, strict=True):
            np.testing.assert_allclose(got[each], expected, atol=2e-6)


@given(hnp.arrays(np.int32, 10, elements=st.integers(-3, 3)), hnp.arrays(bool, 10))
@settings(max_examples=60, deadline=None)
def test_first_occurrence_is_the_reference_and_numpys_unique(rows, mask):
    got = np.asarray(first_occurrence(jnp.asarray(rows), mask=jnp.asarray(mask)))
    np.testing.assert_array_equal(got, reference.first_occurrence(rows, mask))
    _, places = np.unique(rows, return_index=True)
    np.testing.assert_array_equal(
        np.nonzero(first_occurrence(jnp.asarray(rows)))[0], sorted(places)
    )


def test_negatives_are_told_by_id_and_by_text():
    """Two queries; documents 5 and 6 have one text, and 5 is relevant for query 0 alone."""
    rows = np.array([5, 8, 6, 9, 8, 5, 9])
    text = {5: 0, 6: 0, 8: 1, 9: 2}
    relevant = [{5}, {9}]
    excluded = [[text[r] in {text[j] for j in known} for r in rows] for known in relevant]
    real = jnp.array([True, True, True, True, True, True, False])
    got = allowed_negatives(jnp.array(excluded), jnp.asarray(rows), document_mask=real)
    chosen = [set(rows[np.asarray(each)]) for each in got]
    assert chosen == [{8, 9}, {5, 6, 8}]
    np.testing.assert_array_equal(np.sum(got, axis=1), [2, 3])
    texts = jnp.asarray([text[r] for r in rows])
    once = allowed_negatives(jnp.array(excluded), texts, document_mask=real)
    np.testing.assert_array_equal(np.sum(once, axis=1), [2, 2])
    none = allowed_negatives(jnp.array(excluded), jnp.asarray(rows), query_mask=jnp.zeros(2, bool))
    assert not np.any(none)
    similarity = jnp.asarray(RANDOM.uniform(-1, 1, (2, 7)), jnp.float32)
    repeated = loss(similarity, jnp.zeros(2), got)
    distinct = loss(similarity[:, :4], jnp.zeros(2), got[:, :4])
    np.testing.assert_allclose(repeated, distinct, rtol=1e-6)


@pytest.mark.parametrize("function", [batch_hinge, batch_active])
def test_settings_outside_their_range_are_refused(function):
    args = jnp.zeros((2, 3)), jnp.zeros(2), jnp.ones((2, 3), bool)
    for margin in (0.0, -0.1, 2.1, float("nan")):
        with pytest.raises(ValueError, match=r"margin: wanted 0 < margin <= 2, got"):
            jax.jit(lambda *args, m=margin: function(*args, margin=m))(*args)
    for temperature in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match=r"temperature: wanted 0 < temperature and finite"):
            function(*args, margin=0.2, temperature=temperature)


@pytest.mark.errors
@pytest.mark.parametrize("function", [batch_hinge, batch_active])
def test_wrong_arrays_are_refused(function):
    s, p, n = jnp.zeros((2, 3)), jnp.zeros(2), jnp.ones((2, 3), bool)
    with pytest.raises(ValueError, match=r"one value for each query of similarity, got \[3\]"):
        jax.jit(lambda s, p, n: function(s, p, n, margin=0.2))(s, jnp.zeros(3), n)
    with pytest.raises(ValueError, match=r"negatives: wanted bool \[2, 3\], got bool \[3, 2\]"):
        function(s, p, n.T, margin=0.2)
    with pytest.raises(ValueError, match=r"negatives: wanted bool \[2, 3\], got float32 \[2, 3\]"):
        function(s, p, s, margin=0.2)
    with pytest.raises(ValueError, match=r"similarity: wanted floats, got int32"):
        function(jnp.zeros((2, 3), jnp.int32), p, n, margin=0.2)
    with pytest.raises(ValueError, match=r"mode: wanted one of sum, mean, got 'max'"):
        function(s, p, n, margin=0.2, mode="max")


@pytest.mark.errors
def test_wrong_rows_and_masks_are_refused():
    excluded, rows = jnp.ones((2, 3), bool), jnp.arange(3)
    with pytest.raises(ValueError, match=r"got bool \[2, 3\] and \[2\]"):
        allowed_negatives(excluded, jnp.arange(2))
    with pytest.raises(ValueError, match=r"got float32 \[2, 3\] and \[3\]"):
        allowed_negatives(jnp.ones((2, 3)), rows)
    with pytest.raises(ValueError, match=r"rows: wanted integers \[documents\], got float32 \[3\]"):
        first_occurrence(jnp.ones(3))
    with pytest.raises(ValueError, match=r"mask: wanted bool \[3\], got bool \[2\]"):
        first_occurrence(rows, mask=jnp.ones(2, bool))
    with pytest.raises(ValueError, match=r"mask: wanted bool \[2\], got bool \[3\]"):
        allowed_negatives(excluded, rows, query_mask=jnp.ones(3, bool))
