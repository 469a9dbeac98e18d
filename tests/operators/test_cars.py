import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given as over
from hypothesis import settings
from hypothesis import strategies as st

from dive_jax.operators import (
    asymmetry,
    cars,
    corrected,
    dual_only,
    dual_only_dimension,
    half_splits,
)
from tests.operators import reference

RANDOM = np.random.default_rng(17)
DIM = 6


def triples(rows, seed=0, dim=DIM):
    rng = np.random.default_rng(seed)
    query = rng.normal(size=(rows, dim))
    return query, query @ rng.normal(size=(dim, dim)), rng.normal(size=(rows, dim))


def there(arrays, dtype=jnp.float32):
    return [jnp.asarray(array, dtype) for array in arrays]


@pytest.mark.parametrize(
    ("rows", "ranks"),
    [(40, (1, 3, 6)), (13, (3, 1)), (5, (1, 2, 6)), (3, (1, 4)), (2, (1, 6))],
    ids=["whole", "odd", "few rows", "three", "two"],
)
def test_scores_are_those_of_the_plain_loop(rows, ranks):
    query, positive, negative = triples(rows)
    halves = half_splits(rows, 4, seed=3)
    expected, sizes = reference.cars(query, positive - negative, halves, ranks)
    with jax.enable_x64(True):
        got = cars(*there(triples(rows), jnp.float64), ranks=ranks, seed=3, splits=4)
        assert got.score.dtype == jnp.float64
    scale = 1e-9 * sizes.max()
    np.testing.assert_allclose(got.by_split, expected, atol=scale)
    np.testing.assert_allclose(got.score, expected.mean(axis=0), atol=scale)
    np.testing.assert_allclose(got.spread, expected.std(axis=0, ddof=1), atol=scale)
    np.testing.assert_allclose(got.size, sizes.mean(axis=0), atol=scale)
    np.testing.assert_array_equal(got.dual, expected.mean(axis=0) > 0)
    narrow = cars(*there((query, positive, negative)), ranks=ranks, seed=3, splits=4)
    np.testing.assert_allclose(narrow.score, expected.mean(axis=0), atol=2e-5 * sizes.max())


@pytest.mark.parametrize("rows", [40, 5])
def test_the_batch_changes_only_the_last_digits(rows):
    given = there(triples(rows))
    one = cars(*given, ranks=(1, 2), splits=7, batch=1)
    for batch in (3, 7, 50):
        other = cars(*given, ranks=(1, 2), splits=7, batch=batch)
        scale = 1e-5 * float(one.size.max())
        np.testing.assert_allclose(one.by_split, other.by_split, atol=scale)
        np.testing.assert_array_equal(one.positive, other.positive)


def test_halves_depend_on_the_seed_alone():
    for count in (2, 9, 10):
        halves = half_splits(count, 20, 4)
        assert halves.shape == (20, 2, count // 2)
        for pair in halves:
            assert len(set(pair.ravel())) == 2 * (count // 2)
            assert 0 <= pair.min() <= pair.max() < count
        np.testing.assert_array_equal(half_splits(count, 5, 4), halves[:5])
    assert (half_splits(10, 5, 4) != half_splits(10, 5, 5)).any()
    left_out = {9 * 8 // 2 - int(pair.sum()) for pair in half_splits(9, 60, 0)}
    assert left_out == set(range(9))


@over(st.integers(0, 2**16))
@settings(max_examples=20, deadline=None)
def test_identity_of_the_corrected_score(seed):
    first, other = np.random.default_rng(seed).normal(size=(2, 4, 3))
    got = corrected(*(jnp.asarray(np.sum(a)) for a in (first * other, first**2, other**2)))
    plain = np.sum(first * other) - np.sum((first - other) ** 2) / 4
    halves = np.sum(((first + other) / 2) ** 2) - np.sum((first - other) ** 2) / 2
    np.testing.assert_allclose([got, plain], halves, atol=1e-5)


def test_its_mean_over_gaussian_halves_is_signal_less_cost():
    dim, rank, count, sigma, draws = 6, 2, 10, 1.5, 20_000
    rng = np.random.default_rng(0)
    axes = jnp.asarray(np.linalg.qr(rng.normal(size=(dim, dim)))[0][:rank], jnp.float32)
    kappa = dual_only_dimension(dim, rank)
    direction = rng.normal(size=(dim, dim)) * 0.8
    project = jax.jit(jax.vmap(lambda z: dual_only(axes, z)))
    signal = float(np.sum(reference.dual_only(np.asarray(axes), direction) ** 2))
    noise = rng.normal(size=(2, draws, dim, dim)) * sigma * np.sqrt(2 / count)
    first, other = (
        project(jnp.asarray(direction / count**0.5 + n, jnp.float32)).reshape(draws, -1)
        for n in noise
    )
    scores = corrected(
        *(jnp.sum(a * b, 1) for a, b in ((first, other), (first, first), (other,) * 2))
    )
    error = float(jnp.std(scores)) / draws**0.5
    expected = (signal - sigma**2 * kappa) / count
    assert abs(float(jnp.mean(scores)) - expected) < 4 * error
    assert error < 0.02 * abs(expected)


def test_a_repeated_turn_is_dual_and_noise_is_shared():
    rng = np.random.default_rng(1)
    query = rng.normal(size=(400, DIM))
    turn = reference.rotation(np.eye(DIM), 1.0)
    turned = cars(*there((query, query @ turn, 0 * query)), ranks=(2, 4))
    assert turned.dual.all()
    noise = cars(*there((query, query, rng.normal(size=(400, DIM)))), ranks=(2, 4))
    assert not noise.dual.any()
    assert (noise.score < 0).all()


@pytest.mark.parametrize("rows", [200, 5])
def test_ties_go_to_shared(rows):
    """The documents are the queries: every half's moment is semi-definite, every score is 0."""
    for seed in range(4):
        query = triples(rows, seed)[0]
        got = cars(*there((query, query, 0 * query)), ranks=(1, 3, 6))
        assert not got.dual.any()
        if rows == 200:
            assert (np.abs(got.score) <= got.rounding).all()
        assert (got.rounding < 1e-4 * np.sum(query**2) ** 2).all()
    nothing = cars(*there((query, query, query)), ranks=(1, 3))
    assert not nothing.dual.any()
    assert not nothing.score.any()
    assert (nothing.positive == 0).all()


def test_negative_definite_moments_are_dual():
    query = triples(60)[0] * [8, 4, 2, 1, 0.5, 0.2]
    got = cars(*there((query, -query, 0 * query)), ranks=(1, 6), splits=3)
    assert got.dual.all()
    assert (got.positive == 0).all()
    assert (
        cars(*there((query, query, 0 * query)), ranks=(2,), splits=3).positive.tolist()
        == [[2, 2]] * 3
    )


@pytest.mark.parametrize("rows", [40, 5])
def test_what_is_not_finite_is_not_hidden(rows):
    query, positive, negative = there(triples(rows))
    for bad in (jnp.nan, jnp.inf):
        got = cars(query.at[1, 2].set(bad), positive, negative, ranks=(1, 3))
        assert np.isnan(got.score).all()
        assert not got.dual.any()


def test_the_size_of_vectors_does_not_matter():
    query, positive, negative = triples(40)
    one = cars(*there((query, positive, negative)), ranks=(1, 3))
    for scale in (1e-12, 1e8):
        other = cars(*there((scale * query, positive, negative)), ranks=(1, 3))
        ratio = np.asarray(other.score, np.float64) / np.asarray(one.score) / scale / scale
        np.testing.assert_allclose(ratio, 1, rtol=1e-3)


@pytest.mark.parametrize("rank", [1, 2, 6])
def test_plug_in_asymmetry_is_the_distance_of_the_fits(rank):
    matrix = RANDOM.normal(size=(DIM, DIM))
    expected = reference.error(reference.dual(matrix, rank), reference.shared(matrix, rank))
    with jax.enable_x64(True):
        got = asymmetry(jnp.asarray(matrix), ranks=(rank, 1))[0]
    np.testing.assert_allclose(got, expected, rtol=1e-9)


def test_it_maps_and_compiles():
    given = jnp.stack([jnp.stack(there(triples(20, seed))) for seed in (0, 1)])
    mapped = jax.jit(jax.vmap(lambda t: cars(*t, ranks=(1, 2), splits=4)))(given)
    for place in (0, 1):
        alone = cars(*given[place], ranks=(1, 2), splits=4)
        scale = 1e-5 * float(alone.size.max())
        np.testing.assert_allclose(mapped.score[place], alone.score, atol=scale)
    assert cars(*given[0], ranks=(2,), splits=1).spread == 0


def test_wrong_numbers_are_told():
    rows = jnp.ones((3, 2))
    for given, message in (
        ({"ranks": (1, 3)}, "wanted 1 <= rank <= 2, got 3"),
        ({"ranks": ()}, "wanted some"),
        ({"ranks": (1,), "splits": 0}, "splits: wanted at least 1, got 0"),
        ({"ranks": (1,), "seed": -1}, "seed: wanted at least 0, got -1"),
        ({"ranks": (1,), "batch": 0}, "at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            cars(rows, rows, rows, **given)
    with pytest.raises(ValueError, match="rows: wanted at least 2, got 1"):
        cars(rows[:1], rows[:1], rows[:1], ranks=(1,))
