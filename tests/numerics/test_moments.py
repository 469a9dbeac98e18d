import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dive_jax.numerics import moments
from dive_jax.types import InputError
from tests import reference

ROWS = np.random.default_rng(2027).normal(loc=0.5, size=(23, 5))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_moments_are_the_reference(dtype):
    rows = ROWS.astype(dtype)
    moment = moments.add(moments.empty(5), rows)
    assert moment.count == 23
    assert moment.total.dtype == moment.second.dtype == np.float64
    np.testing.assert_allclose(moments.uncentred(moment), reference.second_moment(rows), rtol=1e-13)
    np.testing.assert_allclose(moments.centred(moment), reference.covariance(rows), rtol=1e-12)
    np.testing.assert_allclose(moments.mean(moment), rows.astype(np.float64).mean(axis=0))


def test_centred_is_numpys_population_covariance():
    moment = moments.stream([ROWS])
    np.testing.assert_allclose(moments.centred(moment), np.cov(ROWS.T, ddof=0), rtol=1e-12)


@given(
    hnp.arrays(np.int64, (12, 3), elements=st.integers(-50, 50)),
    st.lists(st.integers(0, 12), max_size=4),
    st.permutations(range(12)),
)
@settings(max_examples=60, deadline=None)
def test_any_chunks_in_any_order_give_the_same_sums(rows, cuts, order):
    # Whole numbers: float64 sums are exact, so equality is too.
    rows = rows.astype(np.float32)
    whole = moments.stream([rows])
    chunks = np.split(rows[list(order)], sorted(cuts))
    streamed = moments.stream(chunks)
    merged = moments.empty(3)
    for chunk in chunks:
        merged = moments.merge(moments.stream([chunk]), merged)
    for other in (streamed, merged):
        assert other.count == whole.count == 12
        np.testing.assert_array_equal(other.total, whole.total)
        np.testing.assert_array_equal(other.second, whole.second)


def test_rows_are_read_in_blocks(monkeypatch):
    whole = moments.stream([ROWS])
    monkeypatch.setattr(moments, "_BLOCK_ENTRIES", 20)
    blocks = moments.stream([ROWS])
    assert blocks.count == 23
    np.testing.assert_allclose(blocks.second, whole.second, atol=1e-13)
    np.testing.assert_allclose(blocks.total, whole.total, atol=1e-13)


def test_half_precision_rows_are_widened_before_they_are_summed():
    rows = np.full((40000, 2), 0.5, np.float16)  # float16 overflows at 65,504
    moment = moments.stream([rows, rows, rows, rows, rows, rows, rows])
    np.testing.assert_array_equal(moment.second, np.full((2, 2), 7 * 40000 * 0.25))


def test_memory_maps_are_read(tmp_path):
    np.save(tmp_path / "rows.npy", np.asfortranarray(ROWS.astype(np.float16)))
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    streamed = moments.stream(mapped[i : i + 4] for i in range(0, 23, 4))
    np.testing.assert_allclose(
        moments.uncentred(streamed), reference.second_moment(ROWS.astype(np.float16)), rtol=1e-13
    )


def test_what_is_given_stays_as_it_is():
    first = moments.stream([ROWS])
    total, second = first.total.copy(), first.second.copy()
    moments.merge(moments.add(first, ROWS), first)
    np.testing.assert_array_equal(first.total, total)
    np.testing.assert_array_equal(first.second, second)
    with pytest.raises(AttributeError):
        first.count = 3


def test_second_moment_is_exactly_symmetric():
    moment = moments.stream([ROWS, ROWS[:7]])
    np.testing.assert_array_equal(moment.second, moment.second.T)


def test_no_rows_are_no_change_but_have_no_mean():
    nothing = moments.add(moments.empty(5), ROWS[:0])
    assert nothing.count == 0
    np.testing.assert_array_equal(
        moments.merge(nothing, moments.stream([ROWS])).second, moments.stream([ROWS]).second
    )
    for taken in (moments.mean, moments.uncentred, moments.centred):
        with pytest.raises(InputError, match="at least one row"):
            taken(nothing)
    with pytest.raises(InputError, match="at least one chunk"):
        moments.stream([])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_is_named_by_its_row(bad, monkeypatch):
    monkeypatch.setattr(moments, "_BLOCK_ENTRIES", 20)
    rows = ROWS.copy()
    rows[17, 3] = bad
    with pytest.raises(InputError, match="row 17"):
        moments.stream([rows])


def test_widths_that_differ_are_refused():
    with pytest.raises(InputError, match=r"\[rows, 4\], got \[23, 5\]"):
        moments.add(moments.empty(4), ROWS)
    with pytest.raises(InputError, match="one width, got 4 and 5"):
        moments.merge(moments.empty(4), moments.empty(5))
    with pytest.raises(InputError, match="at least 1, got 0"):
        moments.empty(0)


@pytest.mark.errors
def test_rows_that_are_no_rows_of_floats_are_refused():
    with pytest.raises(InputError, match=r"\[rows, 5\], got \[5\]"):
        moments.add(moments.empty(5), ROWS[0])
    with pytest.raises(InputError, match="got int64"):
        moments.add(moments.empty(5), np.ones((2, 5), np.int64))
