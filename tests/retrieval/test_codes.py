"""Fewer bytes a vector: error bounds, ends of ranges, bits, sizes, and FAISS's own codec."""

import faiss
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dive_jax.retrieval import codes
from dive_jax.retrieval.codes import Ranges, calibrate, from_int8, to_binary, to_float16, to_int8
from dive_jax.types import InputError


def vectors(seed, rows=40, dim=5):
    rng = np.random.default_rng(seed)
    scale = rng.uniform(0.01, 3, dim)
    return (rng.standard_normal((rows, dim)) * scale + rng.normal(0, 2, dim)).astype(np.float32)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000))
def test_a_round_trip_moves_no_value_by_more_than_half_a_step(seed):
    x = vectors(seed)
    ranges = calibrate(x)
    step = (x.max(axis=0).astype(np.float64) - x.min(axis=0)) / 254
    error = np.abs(from_int8(to_int8(x, ranges), ranges).astype(np.float64) - x)
    assert (error <= step / 2 + 1e-6 * np.abs(x).max()).all()
    assert (error.max(axis=0) > step / 5).all()  # The bound is near what happens.


def test_the_ends_of_a_range_are_its_end_codes_and_come_back():
    x = vectors(1)
    ranges = calibrate(x)
    coded = to_int8(x, ranges)
    assert (coded.min(), coded.max()) == (-127, 127)
    assert (coded[x.argmin(axis=0), range(5)] == -127).all()
    assert (coded[x.argmax(axis=0), range(5)] == 127).all()
    ends = from_int8(np.repeat(np.int8([[-127], [127]]), 5, axis=1), ranges)
    np.testing.assert_allclose(ends, [x.min(axis=0), x.max(axis=0)], rtol=1e-6)


def test_all_255_levels_are_evenly_spaced_and_keep_their_order():
    ranges = Ranges(np.float32([-0.5]), np.float32([0.25]))
    every = np.arange(-127, 128, dtype=np.int8)[:, None]
    values = from_int8(every, ranges)
    np.testing.assert_allclose(np.diff(values[:, 0]), 0.75 / 254, rtol=1e-4)
    np.testing.assert_array_equal(to_int8(values, ranges), every)


def test_values_outside_are_clipped_to_the_nearest_end():
    ranges = calibrate(np.float32([[-1, 0], [1, 4]]))
    outside = np.float32([[-9, -1e30], [1e30, 5]])
    np.testing.assert_array_equal(to_int8(outside, ranges), [[-127, -127], [127, 127]])
    np.testing.assert_array_equal(from_int8(to_int8(outside, ranges), ranges), [[-1, 0], [1, 4]])


@pytest.mark.parametrize("value", [0.0, 0.1, -3e-40, 3e38])
def test_a_constant_dimension_comes_back_as_it_is(value):
    x = np.full((6, 2), value, np.float32)
    x[:, 1] = np.linspace(-1, 1, 6)
    ranges = calibrate(x)
    other = x + np.float32([0.5, 0])  # What is stored later may differ from the sample.
    for each in (x, other):
        coded = to_int8(each, ranges)
        assert (coded[:, 0] == 0).all()
        np.testing.assert_array_equal(from_int8(coded, ranges)[:, 0], x[:, 0])


def test_coverage_leaves_the_outermost_values_out():
    x = np.arange(101, dtype=np.float32)[:, None]
    x[100] = 1e6
    assert calibrate(x) == (0, 1e6)
    np.testing.assert_allclose(calibrate(x, coverage=0.9), [[5], [95]])
    assert calibrate(x, coverage=1e-9) == (50, 50)


def test_calibration_leaves_float16_range_and_its_sample_alone():
    x = np.float16([[-6e4, 1], [6e4, 2]])
    before = x.copy()
    ranges = calibrate(x)
    assert ranges.low.dtype == ranges.high.dtype == np.float32
    np.testing.assert_array_equal(ranges, np.float32([[-60000, 1], [60000, 2]]))
    coded = to_int8(x, ranges)
    np.testing.assert_array_equal(coded, [[-127, -127], [127, 127]])
    np.testing.assert_array_equal(x, before)


def test_int8_products_agree_with_faiss_scalar_quantiser():
    """FAISS has 256 levels and decodes to their middles: it differs by at most a step a value."""
    x, queries = vectors(2, 300, 16), vectors(3, 20, 16)
    index = faiss.IndexScalarQuantizer(
        16, faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT
    )
    index.train(x)
    index.add(x)
    scores, rows = index.search(queries, 300)
    ours = queries @ from_int8(to_int8(x, calibrate(x)), calibrate(x)).T
    steps = (x.max(axis=0) - x.min(axis=0)) / 254
    bound = np.abs(queries) @ steps
    far = np.abs(np.take_along_axis(ours, rows, axis=1) - scores).max(axis=1)
    assert (far <= bound).all()


def test_float16_is_numpys():
    x = np.float32([[1 / 3, -1e-8, 65504]])
    np.testing.assert_array_equal(to_float16(x), x.astype(np.float16))
    assert to_float16(x).dtype == np.float16


@pytest.mark.parametrize("dim", [1, 7, 8, 9, 20])
def test_bits_are_signs_eight_to_a_byte_with_zeros_behind(dim):
    x = np.random.default_rng(dim).integers(-1, 2, (30, dim)).astype(np.float32)
    x[0, 0] = -0.0
    text = ["".join("1" if value > 0 else "0" for value in row) for row in x]
    expected = [int(row.ljust(-(-dim // 8) * 8, "0"), 2).to_bytes(-(-dim // 8)) for row in text]
    assert [row.tobytes() for row in to_binary(x)] == expected


@pytest.mark.parametrize("dim", [1, 8, 100, 128])
def test_sizes_are_those_of_the_arrays(dim):
    x = np.zeros((1, dim), np.float32)
    made = [x, to_float16(x), to_int8(x, calibrate(x)), to_binary(x)]
    sizes = [codes.bytes_per_vector(kind, dim) for kind in codes.KINDS]
    assert sizes == [each.nbytes for each in made]
    assert codes.bytes_per_vector("binary", dim, rescore="float32") == sizes[3] + sizes[0]
    assert codes.bytes_per_vector("binary", dim, rescore="int8") == sizes[3] + sizes[2]


def test_narrow_binary_is_remarked_on():
    assert [codes.remark("binary", dim) is None for dim in (383, 384, 1023, 1024)] == [
        False,
        False,
        False,
        True,
    ]
    assert "int8 below 384" in str(codes.remark("binary", 383))
    assert "advised from 1,024" in str(codes.remark("binary", 384))
    assert not any(codes.remark(kind, 2) for kind in ("float32", "float16", "int8"))


NAN = np.float32([[0, 1], [np.nan, 1], [np.inf, 0]])
UNIT_RANGES = Ranges(np.float32([-1, -1]), np.float32([1, 1]))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: calibrate(NAN), r"calibration sample: .* in row 1 of these 3"),
        (lambda: calibrate(NAN[:0]), "calibration sample: wanted at least one row, got none"),
        (lambda: calibrate(NAN[:1], coverage=0), "coverage: wanted above 0 and at most 1, got 0"),
        (lambda: calibrate(NAN[:1], coverage=1.5), "coverage: wanted above 0 and at most 1"),
        (lambda: to_int8(NAN, UNIT_RANGES), r"vectors for int8: .* in row 1 of these 3"),
        (lambda: to_int8(NAN[:1, :1], UNIT_RANGES), "calibration: wanted one range for each of 1"),
        (lambda: from_int8(np.int8([[1]]), UNIT_RANGES), "calibration: wanted one range for each"),
        (
            lambda: to_int8(NAN[:1], Ranges(np.float32([0, 2]), np.float32([0, 1]))),
            "calibration: wanted finite low <= high, got 2 and 1 in dimension 1",
        ),
        (
            lambda: to_int8(NAN[:1], Ranges(np.float32([np.nan, 0]), np.float32([0, 1]))),
            "calibration: wanted finite low <= high, got nan and 0 in dimension 0",
        ),
        (lambda: to_float16(NAN), "vectors as float16: .* in row 1 of these 3"),
        (lambda: to_float16(np.float32([[0], [7e4]])), "vectors as float16: .* in row 1 of"),
        (lambda: codes.bytes_per_vector("int8", 0), "dim: wanted at least 1, got 0"),
    ],
)
def test_mistakes_are_told_in_one_line(call, message):
    with pytest.raises(InputError, match=f"^{message}") as caught:
        call()
    assert "\n" not in str(caught.value)
