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
from sklearn.metrics.pairwise import manhattan_distances

from dive_jax.losses import (
    Weighted,
    absolute_error,
    prediction_error,
    squared_error,
    weighted_mean,
)
from tests import reference

RANDOM = np.random.default_rng(2027)
FIRST, SECOND = RANDOM.normal(size=(2, 6, 5))
QUERIES, PREDICTED = RANDOM.normal(size=(6, 5)), RANDOM.normal(size=(8, 5))
# At most three documents a query of gain above 0; query 2 has none.
GAINS = np.zeros((6, 8), np.int32)
for row, several in enumerate([(3, 1, 2), (1,), (), (2, 2, 1), (-1, 1), (1, 1)]):
    GAINS[row, RANDOM.permutation(8)[: len(several)]] = several
QUERY_MASK = np.array([True, True, True, False, True, True])
DOCUMENT_MASK = np.arange(8) % 4 != 2
WEIGHTS = RANDOM.uniform(1, 2, 6)
ERRORS = {
    "absolute": (absolute_error, reference.absolute_error),
    "squared": (squared_error, reference.squared_error),
}
both = pytest.mark.parametrize(("error", "formula"), ERRORS.values(), ids=ERRORS)
kept = pytest.mark.parametrize("most_relevant", [None, 3, 5, 64], ids="most={}".format)
entries = hnp.arrays(np.float32, (3, 5), elements=st.floats(-4, 4, width=32))


def narrow(*arrays):
    return [jnp.asarray(x, jnp.float32) for x in arrays]


@functools.partial(jax.jit, static_argnames="most_relevant")
def compiled(
    queries, predicted, gains, most_relevant=None, real=None, documents=None, weights=WEIGHTS
):
    """Terms of each query, and the gradients of the weighted sum of their totals."""

    def terms(queries, predicted):
        return prediction_error(
            queries,
            predicted,
            gains,
            most_relevant=most_relevant,
            query_mask=real,
            document_mask=documents,
        )

    (total, weight), pull = jax.vjp(terms, queries, predicted)
    slopes = pull(Weighted(jnp.asarray(weights, total.dtype), jnp.zeros_like(weight)))
    return total, weight, *slopes


def step(*args, **settings):
    return jax.device_get(compiled(*args, **settings))


def slopes(gains, weights=WEIGHTS):
    """Gradients by hand: gain times the sign of each difference, pushed on both of its ends."""
    signs = np.sign(QUERIES[:, None, :] - PREDICTED[None, :, :])
    pulls = (weights[:, None] * np.maximum(gains, 0))[:, :, None] * signs
    return pulls.sum(1), -pulls.sum(0)


@both
def test_errors_are_the_reference(error, formula):
    with jax.enable_x64(True):
        got = error(jnp.asarray(FIRST), jnp.asarray(SECOND))
    assert got.dtype == jnp.float64
    np.testing.assert_allclose(got, formula(FIRST, SECOND), rtol=1e-13)
    np.testing.assert_allclose(error(*narrow(FIRST, SECOND)), formula(FIRST, SECOND), rtol=1e-5)


def test_errors_are_those_of_other_libraries():
    first, second = narrow(FIRST, SECOND)
    manhattan = np.diagonal(manhattan_distances(FIRST, SECOND))
    np.testing.assert_allclose(absolute_error(first, second), manhattan, rtol=1e-5)
    squares = jnp.mean(optax.losses.squared_error(first, second), axis=1)
    np.testing.assert_allclose(squared_error(first, second), squares, rtol=1e-5)


@both
@given(entries, entries)
@settings(max_examples=30, deadline=None)
def test_errors_follow_the_rows_and_ignore_the_order_of_coordinates(error, formula, a, b):
    got = np.asarray(error(*narrow(a, b)))
    np.testing.assert_allclose(error(*narrow(b, a)), got, rtol=1e-6)
    np.testing.assert_array_equal(error(*narrow(a[::-1], b[::-1])), got[::-1])
    np.testing.assert_allclose(error(*narrow(a[:, ::-1], b[:, ::-1])), got, rtol=1e-5)
    assert np.all(got >= 0)
    assert not np.any(error(*narrow(a, a)))


def test_the_gradient_is_the_sign_and_0_at_0():
    first, second = narrow([[1.0, -2.0, 0.5, 0.0]], [[0.0, 1.0, 0.5, -0.0]])
    by_first, by_second = jax.grad(lambda a, b: jnp.sum(absolute_error(a, b)), (0, 1))(
        first, second
    )
    np.testing.assert_array_equal(by_first, [[1, -1, 0, 0]])
    assert not np.any(by_second)
    by_first, by_second = jax.grad(lambda a, b: jnp.sum(squared_error(a, b)), (0, 1))(first, second)
    np.testing.assert_array_equal(by_first, [[0.5, -1.5, 0, 0]])
    assert not np.any(by_second)


@both
def test_gradients_of_errors_are_those_of_finite_differences(error, formula):
    with jax.enable_x64(True):
        loss = jax.jit(lambda x: error(x, jnp.asarray(SECOND)))
        check_grads(loss, (jnp.asarray(FIRST),), order=2)


@both
@pytest.mark.parametrize("rows", [0, 1, 3])
def test_degenerate_errors_are_finite_and_a_nan_is_not_hidden(error, formula, rows):
    value, pull = jax.vjp(lambda x: error(x, x), jnp.zeros((rows, 4)))
    assert value.shape == (rows,)
    assert not np.any(value)
    assert not np.any(pull(jnp.ones(rows))[0])
    assert np.isnan(error(jnp.full((1, 4), jnp.nan), jnp.zeros((1, 4)))).all()


@both
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_errors_of_low_precision_are_computed_in_float32(error, formula, dtype):
    first, second = jnp.asarray(FIRST, dtype), jnp.asarray(SECOND, jnp.float32)
    got, pull = jax.vjp(lambda x: error(x, second), first)
    assert got.dtype == jnp.float32
    assert pull(jnp.ones(6))[0].dtype == dtype
    expected = formula(np.asarray(first, np.float32), np.asarray(second))
    np.testing.assert_allclose(got, expected, rtol=1e-5)


@both
def test_errors_can_be_mapped(error, formula):
    first, second = narrow(RANDOM.normal(size=(3, 6, 5)), SECOND)
    mapped = jax.jit(jax.vmap(lambda x: error(x, second)))(first)
    for each in range(3):
        np.testing.assert_allclose(mapped[each], error(first[each], second), rtol=1e-6)


@kept
def test_predictions_and_their_gradients_are_the_reference(most_relevant):
    totals, weights = reference.prediction_error(QUERIES, PREDICTED, GAINS)
    with jax.enable_x64(True):
        given_ = jnp.asarray(QUERIES), jnp.asarray(PREDICTED), jnp.asarray(GAINS)
        total, weight, by_query, by_predicted = step(*given_, most_relevant)
    assert total.dtype == jnp.float64
    np.testing.assert_allclose(total, totals, rtol=1e-12)
    np.testing.assert_array_equal(weight, weights)
    np.testing.assert_allclose(by_query, slopes(GAINS)[0], rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(by_predicted, slopes(GAINS)[1], rtol=1e-12, atol=1e-13)
    small = step(*narrow(QUERIES, PREDICTED), jnp.asarray(GAINS), most_relevant)
    np.testing.assert_allclose(small[0], totals, rtol=1e-5)
    np.testing.assert_allclose(small[3], slopes(GAINS)[1], rtol=1e-5, atol=1e-6)
    masks = jnp.asarray(QUERY_MASK), jnp.asarray(DOCUMENT_MASK)
    masked = step(*narrow(QUERIES, PREDICTED), jnp.asarray(GAINS), most_relevant, *masks)
    expected = reference.prediction_error(QUERIES, PREDICTED, GAINS, QUERY_MASK, DOCUMENT_MASK)
    np.testing.assert_allclose(masked[0], expected[0], rtol=1e-5)
    np.testing.assert_array_equal(masked[1], expected[1])


def test_with_binary_gains_it_is_the_mean_distance_of_another_library():
    distances = manhattan_distances(QUERIES, PREDICTED)
    relevant = GAINS > 0
    terms = prediction_error(*narrow(QUERIES, PREDICTED), jnp.asarray(relevant))
    np.testing.assert_allclose(weighted_mean(*terms), distances[relevant].mean(), rtol=1e-5)
    graded = prediction_error(*narrow(QUERIES, PREDICTED), jnp.asarray(GAINS))
    expected = np.average(distances, weights=np.maximum(GAINS, 0))
    np.testing.assert_allclose(weighted_mean(*graded), expected, rtol=1e-5)


@pytest.mark.parametrize("most_relevant", [1, 2])
def test_documents_beyond_the_most_relevant_are_left_out(most_relevant):
    totals, weights = reference.prediction_error(QUERIES, PREDICTED, GAINS, kept=most_relevant)
    got = step(*narrow(QUERIES, PREDICTED), jnp.asarray(GAINS), most_relevant)
    np.testing.assert_allclose(got[0], totals, rtol=1e-5)
    np.testing.assert_array_equal(got[1], weights)
    few = np.sum(GAINS > 0, axis=1) <= most_relevant
    np.testing.assert_array_equal(weights == np.maximum(GAINS, 0).sum(1), few)


def test_nothing_grows_with_queries_times_documents_times_dim():
    def sizes(jaxpr):
        for equation in jaxpr.eqns:
            for inner in jaxprs_in_params(equation.params):
                yield from sizes(inner)
            yield from (np.prod(out.aval.shape) for out in equation.outvars)

    for most_relevant in (None, 3):
        jaxpr = jax.make_jaxpr(functools.partial(compiled, most_relevant=most_relevant))(
            jnp.zeros((16, 40)), jnp.zeros((32, 40)), jnp.zeros((16, 32)), weights=np.ones(16)
        )
        assert max(sizes(jaxpr.jaxpr)) == 32 * 40


def test_gradients_of_predictions_are_those_of_finite_differences():
    with jax.enable_x64(True):
        masks = {"query_mask": jnp.asarray(QUERY_MASK), "document_mask": jnp.asarray(DOCUMENT_MASK)}

        @jax.jit
        def loss(queries, predicted):
            terms = prediction_error(
                queries, predicted, jnp.asarray(GAINS), most_relevant=3, **masks
            )
            return weighted_mean(*terms)

        args = jnp.asarray(QUERIES), jnp.asarray(PREDICTED)
        check_grads(loss, args, order=1, modes=["fwd", "rev"])


def test_no_gradient_reaches_the_gains():
    def loss(gains):
        return weighted_mean(*prediction_error(*narrow(QUERIES, PREDICTED), gains))

    assert not np.any(jax.grad(loss)(jnp.asarray(GAINS, jnp.float32)))


@given(entries, st.permutations(range(3)), st.permutations(range(5)))
@settings(max_examples=20, deadline=None)
def test_predictions_follow_permutations(predicted, order, coordinates):
    queries, guesses = np.float32(QUERIES[:3]), predicted
    gains = np.array([[2, 0, 1], [0, 0, 0], [1, 1, 1]])
    total, weight, *_ = step(queries, guesses, gains, weights=np.ones(3))
    turned = step(
        queries[::-1][:, coordinates],
        guesses[order][:, coordinates],
        gains[::-1][:, order],
        weights=np.ones(3),
    )
    np.testing.assert_allclose(turned[0], total[::-1], rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(turned[1], weight[::-1])


@kept
@pytest.mark.parametrize("filler", [0.0, 7.0, np.nan, np.inf])
def test_a_padded_batch_is_the_unpadded_one(most_relevant, filler):
    pairs = QUERY_MASK[:, None] & DOCUMENT_MASK
    queries = np.where(QUERY_MASK[:, None], QUERIES, filler)
    predicted = np.where(DOCUMENT_MASK[:, None], PREDICTED, filler)
    got = step(
        *narrow(queries, predicted, np.where(pairs, GAINS, filler)),
        most_relevant,
        jnp.asarray(QUERY_MASK),
        jnp.asarray(DOCUMENT_MASK),
    )
    expected = step(
        *narrow(QUERIES[QUERY_MASK], PREDICTED[DOCUMENT_MASK]),
        jnp.asarray(GAINS[pairs].reshape(5, 6)),
        most_relevant,
        weights=WEIGHTS[QUERY_MASK],
    )
    real = [QUERY_MASK, QUERY_MASK, QUERY_MASK, DOCUMENT_MASK]
    for value, mask, wanted in zip(got, real, expected, strict=True):
        np.testing.assert_allclose(value[mask], wanted, rtol=1e-6, atol=1e-6)
        assert not np.any(value[~mask])


@pytest.mark.parametrize("shape", [(3, 4), (1, 1), (0, 4), (3, 0)], ids=str)
def test_without_a_relevant_document_it_is_0_with_gradient_0(shape):
    queries, predicted = jnp.ones((shape[0], 5)), jnp.zeros((shape[1], 5))

    @jax.jit
    @functools.partial(jax.value_and_grad, argnums=(0, 1))
    def loss(queries, predicted, gain, real):
        gains, mask = jnp.full(shape, gain), jnp.full(shape[0], real)
        return weighted_mean(*prediction_error(queries, predicted, gains, query_mask=mask))

    for gain, real in ((0, True), (-1, True), (1, False)):
        value, slopes_ = jax.device_get(loss(queries, predicted, gain, real))
        assert value == 0
        assert not any(np.any(slope) for slope in slopes_)


def test_an_exact_prediction_is_at_rest_and_a_nan_is_not_hidden():
    queries = narrow(QUERIES)[0]
    total, _, *by = step(queries, queries, jnp.eye(6), 1)
    assert not np.any(total)
    assert not any(np.any(slope) for slope in by)
    assert np.isnan(step(queries.at[0, 0].set(jnp.nan), queries, jnp.eye(6), 1)[0][0])


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_predictions_of_low_precision_are_computed_in_float32(dtype):
    queries, predicted = jnp.asarray(QUERIES, dtype), jnp.asarray(PREDICTED, dtype)
    total, _, by_query, by_predicted = step(queries, predicted, jnp.asarray(GAINS), 3)
    assert total.dtype == jnp.float32
    assert by_query.dtype == by_predicted.dtype == dtype
    wide = [np.asarray(x, np.float32) for x in (queries, predicted)]
    np.testing.assert_allclose(total, reference.prediction_error(*wide, GAINS)[0], rtol=1e-5)


def test_seeds_and_masks_can_be_mapped():
    batches = narrow(RANDOM.normal(size=(3, 6, 5)))[0]
    masks = jnp.asarray(RANDOM.uniform(size=(3, 8)) < 0.6)
    predicted, gains = narrow(PREDICTED)[0], jnp.asarray(GAINS)
    mapped = jax.vmap(lambda q, m: compiled(q, predicted, gains, 3, documents=m))(batches, masks)
    for each in range(3):
        alone = step(batches[each], predicted, gains, 3, documents=masks[each])
        for got, expected in zip(mapped, alone, strict=True):
            np.testing.assert_allclose(got[each], expected, rtol=1e-5, atol=1e-6)


def test_most_relevant_below_1_is_refused():
    with pytest.raises(ValueError, match=r"most_relevant: wanted at least 1 document, got 0"):
        prediction_error(jnp.ones((2, 3)), jnp.ones((4, 3)), jnp.ones((2, 4)), most_relevant=0)


@pytest.mark.errors
@both
def test_wrong_shapes_of_errors_are_refused(error, formula):
    with pytest.raises(
        ValueError, match=r"ed and frozen: wanted one shape, got \[2, 3\] and \[2, 4\]"
    ):
        jax.jit(error)(jnp.ones((2, 3)), jnp.ones((2, 4)))
    with pytest.raises(ValueError, match=r"frozen: wanted floats, got int32"):
        error(jnp.ones((2, 3)), jnp.ones((2, 3), jnp.int32))
    with pytest.raises(ValueError, match=r"wanted shape \[rows dim\], got \[3\]"):
        error(jnp.ones(3), jnp.ones(3))


@pytest.mark.errors
def test_wrong_shapes_of_predictions_are_refused():
    with pytest.raises(ValueError, match=r"one dim, got \[2, 3\] and \[4, 5\]"):
        jax.jit(prediction_error)(jnp.ones((2, 3)), jnp.ones((4, 5)), jnp.ones((2, 4)))
    with pytest.raises(ValueError, match=r"gains: wanted numbers \[2, 4\], got float32 \[4, 2\]"):
        prediction_error(jnp.ones((2, 3)), jnp.ones((4, 3)), jnp.ones((4, 2)))
    with pytest.raises(ValueError, match=r"mask: wanted bool \[4\], got bool \[2\]"):
        prediction_error(
            jnp.ones((2, 3)), jnp.ones((4, 3)), jnp.ones((2, 4)), document_mask=jnp.ones(2, bool)
        )
